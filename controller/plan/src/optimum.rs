//! How far `mlfabric` is from the best plan there is, on cases so small that all can be tried.
//!
//! "All" is what transfers can do that take what is left of their links, one after the other: every
//! sequence in which they do, every cut into groups, every choice of aggregators, and the best
//! order of commits that the deadlines allow for what arrives then. A plan in which flows share a
//! link beyond that may be better still; then it is the best that is known, and its ratio is 1.
//! Nothing may be dropped: bounds leave room for all. Pure, and the same cases every time.

use alloc::vec::Vec;

use serde::Serialize;

use crate::case::{Case, Objective};
use crate::policy::mlfabric::Mlfabric;
use crate::policy::{Policy, PolicyError};
use crate::sample::{Numbers, Shape};

mod oracle;

pub use oracle::best_cost;

/// How far plans are from the optimum.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distance {
    /// Cases that were planned.
    pub cases: u64,
    /// Those whose plan is as good as the optimum.
    pub optimal: u64,
    /// Mean of cost over optimal cost, from the start of the plan.
    pub mean_ratio: f64,
    /// 95th percentile.
    pub p95_ratio: f64,
    /// The largest.
    pub max_ratio: f64,
}

/// One kind of cases.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Kind {
    /// What is special.
    pub name: &'static str,
    /// The most updates of a case.
    #[serde(skip)]
    pub updates_max: u32,
    /// The most aggregators; at least one if any.
    #[serde(skip)]
    pub aggregators_max: u32,
    /// Whether one update is so old that it must go early.
    #[serde(skip)]
    pub has_deadlines: bool,
    /// What is compared.
    #[serde(skip)]
    pub objective: Objective,
}

/// The distance of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Which.
    #[serde(flatten)]
    pub kind: Kind,
    /// How far.
    #[serde(flatten)]
    pub distance: Distance,
}

/// All kinds.
pub const KINDS: [Kind; 6] = [
    kind("order, mean", 7, 0, false, Objective::Mean),
    kind("order, deadlines, mean", 7, 0, true, Objective::Mean),
    kind("order, last", 7, 0, false, Objective::Last),
    kind("groups, mean", 5, 2, false, Objective::Mean),
    kind("groups, deadlines, mean", 5, 2, true, Objective::Mean),
    kind("groups, last", 5, 2, false, Objective::Last),
];

const fn kind(
    name: &'static str,
    updates_max: u32,
    aggregators_max: u32,
    has_deadlines: bool,
    objective: Objective,
) -> Kind {
    Kind { name, updates_max, aggregators_max, has_deadlines, objective }
}

/// Plans this many cases, the kinds in turns: the distance over all, and of each kind.
///
/// # Errors
/// [`PolicyError`] if a case is not planned, which no valid case is.
pub fn measure(cases: u64) -> Result<(Distance, Vec<Row>), PolicyError> {
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); KINDS.len()];
    for number in 0..cases {
        let place = usize::try_from(number % KINDS.len() as u64).unwrap_or(0);
        ratios[place].push(KINDS[place].ratio(number / KINDS.len() as u64)?);
    }
    let rows = KINDS.into_iter().zip(&ratios);
    let rows = rows.map(|(kind, ratios)| Row { kind, distance: Distance::of(ratios) });
    Ok((Distance::of(&ratios.concat()), rows.collect()))
}

impl Distance {
    /// Of costs, each over the optimum of its case.
    #[must_use]
    pub fn of(ratios: &[f64]) -> Self {
        let mut sorted = ratios.to_vec();
        sorted.sort_by(f64::total_cmp);
        let p95 = (sorted.len() * 95).div_ceil(100).saturating_sub(1);
        Self {
            cases: sorted.len() as u64,
            optimal: sorted.iter().filter(|ratio| **ratio <= 1.0).count() as u64,
            mean_ratio: sorted.iter().sum::<f64>() / sorted.len().max(1) as f64,
            p95_ratio: sorted.get(p95).copied().unwrap_or(1.0),
            max_ratio: sorted.last().copied().unwrap_or(1.0),
        }
    }
}

impl Kind {
    /// Cost of the plan of a seed's case over the least that is known.
    fn ratio(&self, seed: u64) -> Result<f64, PolicyError> {
        let case = self.case(seed);
        let plan = Mlfabric.plan(&case)?;
        debug_assert!(plan.dropped.is_empty(), "all can commit in time");
        let commits = plan.transfers.iter().flatten().map(|t| u128::from(t.commit_ns));
        let (cost, times) = match self.objective {
            Objective::Mean => (commits.sum::<u128>(), case.updates.len() as u128),
            Objective::Last => (commits.max().unwrap_or(0), 1),
        };
        // Times from the plan's start, not from the clock's zero.
        let zero = u128::from(case.now_ns) * times;
        let best = best_cost(&case).min(cost);
        Ok((cost - zero) as f64 / (best - zero) as f64)
    }

    /// A small case: unequal links, sizes and ages; every second one's over two orders of
    /// magnitude.
    #[must_use]
    pub fn case(&self, seed: u64) -> Case {
        let mut numbers = Numbers::new(seed);
        let mut below = |len: u32| u32::try_from(numbers.within(0, len.into())).unwrap_or(0);
        let updates = 2 + below(self.updates_max - 1);
        let aggregators =
            if self.aggregators_max > 0 { 1 + below(self.aggregators_max) } else { 0 };
        let shape = Shape {
            updates,
            hosts: updates + aggregators + 1,
            servers: 1,
            replicas: false,
            aggregators,
            reservations: 2,
            racks: 0,
            equal: seed.is_multiple_of(4),
            deadlines: false,
        };
        let mut spec = shape.spec(seed);
        let is_wide = seed % 4 == 1 || seed % 4 == 3;
        for (i, update) in spec.updates.iter_mut().enumerate() {
            // One update per worker.
            update.host = format!("w{i:05}");
            update.version = 100 - u64::from(below(3));
            if is_wide {
                update.size_bytes = 1_000_000 * [1, 1, 2, 5, 10, 40][below(6) as usize];
                if let Some(host) = spec.hosts.get_mut(&update.host) {
                    host.up_bytes_per_sec = 12_500_000 * [1, 2, 5, 10, 20, 100][below(6) as usize];
                }
            }
        }
        let server = &mut spec.servers[0];
        server.version = 100;
        server.tau_max = Some(1_000);
        if self.has_deadlines {
            // One slot to spare.
            server.tau_max = Some(u64::from(updates) + 1);
            spec.updates[below(updates) as usize].version = 100 - u64::from(updates);
        }
        spec.options.no_drop = true;
        spec.options.objective = self.objective;
        Case::new(&spec).expect("a small case is valid")
    }
}
