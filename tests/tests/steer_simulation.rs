//! Thousands of seeds of an allreduce job that is paused, resumed and resized while its controller
//! and its box are killed at any moment of that: no update is lost or comes twice, all workers stop
//! before the same round, and the job ends.
//!
//! A failure prints its seed; `WEFT_SIM_SEED=n` runs it alone with a log of every event,
//! `WEFT_SIM_SCALE=10` ten times as many, `WEFT_SIM_COUNT=20` twenty.

use std::env;

use weft_sim::steer::{Seen, run};

const SEEDS: u64 = 2_000;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().expect("a number"))
}

#[test]
fn seeds() {
    let one = number("WEFT_SIM_SEED");
    let count =
        number("WEFT_SIM_COUNT").unwrap_or_else(|| SEEDS * number("WEFT_SIM_SCALE").unwrap_or(1));
    let seeds = one.map_or(0..count, |seed| seed..seed + 1);
    let is_whole = one.is_none() && number("WEFT_SIM_COUNT").is_none();
    let mut seen = Seen::default();
    let mut failures = Vec::new();
    for seed in seeds {
        let report = run(seed, one.is_some());
        seen.add(&report.seen);
        if !report.violations.is_empty() {
            failures.push((seed, report.violations));
        }
    }
    println!("{seen:?}");
    for (seed, violations) in failures.iter().take(10) {
        println!("seed {seed}: {violations:#?}");
    }
    assert!(failures.is_empty(), "{} seeds failed", failures.len());
    if is_whole {
        // In every step of both: running, pausing, paused, resizing.
        for (state, kills) in seen.controllers_killed.iter().zip(&seen.boxes_killed).enumerate() {
            assert!(*kills.0 > 20 && *kills.1 > 20, "state {state}: {seen:?}");
        }
        assert!(seen.pauses > 1000 && seen.resizes > 1000, "{seen:?}");
        assert!(seen.reverts > 20 && seen.refusals > 500, "{seen:?}");
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 0..20 {
        assert_eq!(run(seed, false).fingerprint, run(seed, false).fingerprint, "seed {seed}");
    }
}
