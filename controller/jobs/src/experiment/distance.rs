//! How far the rules for widths are from the optimum, on cases so small that it is known.
//!
//! Up to 4 jobs on up to 16 GPUs, with 0.1 s to 10 s of computing an iteration, models of 1 MB to
//! 400 MB and a collective at 10 Gb/s. The same cases every time.

use alloc::vec::Vec;

use weft_plan::optimum::Distance;
use weft_plan::sample::Numbers;

use crate::model::collective::in_network::Measured;
use crate::model::collective::{Collective, InNetwork, Network, Shared};
use crate::policy::elastic::widths::{Demand, Growth, grow, optimum, total_s};

/// The distance of a rule where jobs sum in one way.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// How they sum.
    pub collective: &'static str,
    /// The rule's name.
    pub rule: &'static str,
    /// Of the seconds of all jobs together.
    pub distance: Distance,
}

/// Measures every rule with every collective on so many cases.
#[must_use]
pub fn measure(cases: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for collective in collectives() {
        for (rule, growth) in [("doubling", Growth::Doubling), ("optimus", Growth::One)] {
            let ratios: Vec<f64> = (0..cases).map(|seed| ratio(seed, collective, growth)).collect();
            let distance = Distance::of(&ratios);
            rows.push(Row { collective: collective.name(), rule, distance });
        }
    }
    rows
}

/// Seconds of a rule over those of the optimum, which are not more.
fn ratio(seed: u64, collective: Collective, growth: Growth) -> f64 {
    let (jobs, gpus) = case(seed, collective);
    let (_, best_s) = optimum(&jobs, gpus).expect("as many GPUs as jobs");
    let ratio = total_s(&jobs, &grow(&jobs, gpus, growth)) / best_s;
    // Sums of the same numbers in another order differ in their last bits.
    if (ratio - 1.0).abs() < 1e-12 { 1.0 } else { ratio }
}

/// The jobs and GPUs of a seed.
#[must_use]
pub fn case(seed: u64, collective: Collective) -> (Vec<Demand<Shared>>, u32) {
    let mut numbers = Numbers::new(seed);
    let mut within = |from, to| u32::try_from(numbers.within(from, to)).expect("small");
    let count = within(1, 5);
    let gpus = within(count.into(), 17);
    let jobs = (0..count).map(|_| {
        let iterations = f64::from(within(10, 2_000));
        let compute_s = f64::from(within(1, 100)) / 10.0;
        let bytes = f64::from(within(1, 400)) * 1e6;
        Demand { iterations, speed: Shared { compute_s, bytes, collective }, least: 1 }
    });
    (jobs.collect(), gpus)
}

/// Those of the cases, at 10 Gb/s: 30 µs a message, additions at 8 GB/s, Weft as measured with an
/// aggregator of 8 lcores.
#[must_use]
pub fn collectives() -> [Collective; 4] {
    let network =
        Network { latency_s: 30e-6, transfer_s_per_byte: 0.8e-9, reduce_s_per_byte: 0.125e-9 };
    let weft = InNetwork {
        measured: Measured::committed(),
        rate_bytes_per_s: 1.25e9,
        lcores: 8,
        counts_hosts: true,
    };
    [
        Collective::Ring(network),
        Collective::HalvingDoubling(network),
        Collective::BinaryBlocks(network),
        Collective::InNetwork(weft),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rule_beats_the_optimum() {
        for collective in collectives() {
            for seed in 0..500 {
                for growth in [Growth::Doubling, Growth::One] {
                    let ratio = ratio(seed, collective, growth);
                    assert!(ratio >= 1.0, "{}, {growth:?}, {seed}: {ratio}", collective.name());
                }
            }
        }
    }

    /// Doubling is the better rule where powers of two are faster than what lies between; where
    /// every worker helps, one more is as good as the best, and doubling leaves GPUs over.
    #[test]
    fn each_rule_is_near_the_optimum_on_its_own_ground() {
        let rows = measure(500);
        let mean = |collective: &str, rule: &str| {
            let is_it = |row: &&Row| row.collective == collective && row.rule == rule;
            let row = rows.iter().find(is_it).expect("a row");
            std::println!("{collective}, {rule}: {:?}", row.distance);
            row.distance.mean_ratio
        };
        assert!(mean("halving-doubling", "doubling") < mean("halving-doubling", "optimus"));
        for collective in ["ring", "in-network"] {
            assert!(mean(collective, "optimus") < mean(collective, "doubling"));
            assert!(mean(collective, "optimus") < 1.01);
        }
        for row in rows.iter().filter(|row| row.rule == "doubling") {
            assert!(row.distance.max_ratio < 2.0, "{row:?}");
        }
    }
}
