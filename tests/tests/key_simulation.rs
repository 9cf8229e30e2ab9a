//! Thousands of seeds of processes that set, add to, pull and move rows over a network that loses,
//! duplicates, reorders, delays and damages datagrams, while the box restarts and processes die:
//! each row is at one process, each key is sequentially consistent, each sum is exact, and all that
//! was called ends.
//!
//! A failure prints its seed; `WEFT_SIM_SEED=n` runs it alone with a log of every datagram,
//! `WEFT_SIM_SCALE=10` ten times as many, `WEFT_SIM_COUNT=20` twenty.

use std::env;

use weft_sim::keys::{Seen, run};

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
    println!("{seen:#?}");
    for (seed, violations) in failures.iter().take(10) {
        println!("seed {seed}: {violations:#?}");
    }
    let first: Vec<_> = failures.iter().take(20).map(|(seed, _)| *seed).collect();
    assert!(failures.is_empty(), "{} seeds failed, {first:?} among them", failures.len());
    if is_whole {
        assert!(seen.moves > 20_000 && seen.judged > 50_000, "{seen:?}");
        assert!(seen.restarts > 300 && seen.killed > 400 && seen.cut_off > 200, "{seen:?}");
        assert!(seen.restored > 500 && seen.taken_back > 5, "{seen:?}");
        assert!(seen.stale > 20 && seen.full > 100 && seen.waits > 100, "{seen:?}");
        assert!(seen.passed_on > 500 && seen.hops_exceeded > 0, "{seen:?}");
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 0..24 {
        assert_eq!(run(seed, false).fingerprint, run(seed, false).fingerprint, "seed {seed}");
    }
}
