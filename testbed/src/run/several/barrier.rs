//! Decides how long gradients waited for the last of their round: at the server, or at the
//! aggregator that summed them, from a gradient's last chunk to that of the round's last. Pure.
//!
//! The measure is that of the simulator (`weft cluster lights`), so that the two can be held
//! against each other. Jobs in which nobody waits (`async`) have none.
//! Source: TensorLights (HPBDC'19), slides: barrier wait time.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use weft_control::Mode;

use crate::report::Quantiles;
use crate::run::Observed;
use crate::run::push::{BoxEvent, LogLine, PushProof};
use crate::scenario::{SERVER, Scenario};

/// How long gradients waited.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct BarrierWaits {
    /// Gradients.
    pub count: u64,
    /// On average.
    pub mean_ns: f64,
    /// 99 % waited at most so long.
    pub p99_ns: u64,
    /// The variance.
    pub variance_ns2: f64,
}

/// Finds how long the committed gradients of a job waited.
#[must_use]
pub fn barrier_waits(scenario: &Scenario, observed: &Observed, proof: &PushProof) -> BarrierWaits {
    let push = scenario.push.as_ref();
    if push.is_none_or(|push| push.mode == Mode::Async) {
        return BarrierWaits::default();
    }
    let versions: HashMap<(u8, u32, u64), u64> = observed
        .updates
        .iter()
        .map(|(rank, life, update)| ((*rank, *life, update.number), update.version))
        .collect();
    let arrivals = Arrivals::new(observed);
    // A round's updates are computed on one version.
    let mut rounds: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (index, rank, life, number) in &proof.places {
        let Some(decided) = proof.decided.get(*index) else { continue };
        let Some(version) = versions.get(&(*rank, *life, *number)) else { continue };
        let at_ns = arrivals.of(decided.group, *rank).unwrap_or(decided.t_ns);
        rounds.entry(*version).or_default().push(at_ns);
    }
    waits(rounds.values())
}

/// When gradients were there whole, by group and rank.
struct Arrivals(HashMap<(u32, Option<u8>), u64>);

impl Arrivals {
    /// A sum's arrival at the server is that of no gradient: its box knows these.
    fn new(observed: &Observed) -> Self {
        let mut first = HashMap::new();
        for (name, lines) in &observed.logs {
            let is_server = name == SERVER;
            for (key, t_ns) in lines.iter().filter_map(|line| arrival(line, is_server)) {
                first.entry(key).or_insert(t_ns);
            }
        }
        Self(first)
    }

    fn of(&self, group: u32, rank: u8) -> Option<u64> {
        self.0.get(&(group, Some(rank))).or_else(|| self.0.get(&(group, None))).copied()
    }
}

fn arrival(line: &LogLine, is_server: bool) -> Option<((u32, Option<u8>), u64)> {
    match line.event {
        BoxEvent::Gathered { group, rank } => Some(((group, Some(rank)), line.t_ns)),
        BoxEvent::Transferred { group, rank, .. } if is_server => Some(((group, rank), line.t_ns)),
        _ => None,
    }
}

fn waits<'a>(rounds: impl Iterator<Item = &'a Vec<u64>>) -> BarrierWaits {
    let waits = rounds.flat_map(|round| {
        let last_ns = round.iter().max().copied().unwrap_or(0);
        round.iter().map(move |at_ns| last_ns - at_ns)
    });
    let waits: Vec<u64> = waits.collect();
    let Some(quantiles) = Quantiles::of(&waits) else { return BarrierWaits::default() };
    let squares = waits.iter().map(|wait| (*wait as f64 - quantiles.mean).powi(2)).sum::<f64>();
    BarrierWaits {
        count: quantiles.count,
        mean_ns: quantiles.mean,
        p99_ns: quantiles.p99,
        variance_ns2: squares / quantiles.count as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gradient_waits_until_the_last_of_its_round_is_there() {
        let found = waits([vec![10, 30, 40], vec![100, 100, 90]].iter());
        // 30, 10, 0 and 0, 0, 10.
        assert_eq!((found.count, found.p99_ns), (6, 30));
        assert!((found.mean_ns - 50.0 / 6.0).abs() < 1e-9, "{found:?}");
        let mean = 50.0 / 6.0;
        let squares = (30.0_f64 - mean).powi(2) + 2.0 * (10.0 - mean).powi(2) + 3.0 * mean * mean;
        assert!((found.variance_ns2 - squares / 6.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_sum_at_the_server_says_nothing_of_the_gradients_that_its_box_gathered() {
        let line = |t_ns, event| LogLine { t_ns, rx_bytes: 0, event };
        let gathered = |t_ns, rank| line(t_ns, BoxEvent::Gathered { group: 7, rank });
        let transferred = |t_ns, group, rank| {
            let (bytes, duration_ns, wait_ns, idle_ns) = (1, 1, 0, 0);
            line(t_ns, BoxEvent::Transferred { group, rank, bytes, duration_ns, wait_ns, idle_ns })
        };
        let server = vec![transferred(50, 7, None), transferred(60, 8, Some(2))];
        let aggregator = vec![gathered(10, 0), gathered(20, 1), transferred(20, 7, Some(1))];
        let logs = vec![(SERVER.to_owned(), server), ("a0".to_owned(), aggregator)];
        let arrivals = Arrivals::new(&Observed { logs, ..Observed::default() });
        let found = [(7, 0), (7, 1), (8, 2), (9, 0)].map(|(group, rank)| arrivals.of(group, rank));
        assert_eq!(found, [Some(10), Some(20), Some(60), None]);
    }
}
