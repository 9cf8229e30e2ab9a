//! Thousands of seeds of processes that set, add to, pull and move rows over a network that loses,
//! duplicates, reorders, delays and damages datagrams, while the box restarts and processes die:
//! each row is at one process, each key is sequentially consistent, each sum is exact, and all that
//! was called ends.
//!
//! A failure prints its seed; `WEFT_SIM_SEED=n` runs it alone with a log of every datagram,
//! `WEFT_SIM_SCALE=10` ten times as many, `WEFT_SIM_COUNT=20` twenty.

use weft_sim::keys::{Seen, run, run_lanes, run_managed};
use weft_tests::seeds::run_seeds;

const SEEDS: u64 = 2_000;

#[test]
fn seeds() {
    let mut seen = Seen::default();
    let is_whole = run_seeds(SEEDS, |seed, is_logged| {
        let report = run(seed, is_logged);
        seen.add(&report.seen);
        report.violations
    });
    println!("{seen:#?}");
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

/// As before, with intents, clocks and copies: each pull has all own adds, goes never back, and is
/// as new as the bound says.
#[test]
fn managed_seeds() {
    let mut seen = Seen::default();
    let is_whole = run_seeds(SEEDS, |seed, is_logged| {
        let report = run_managed(seed, is_logged);
        seen.add(&report.seen);
        report.violations
    });
    println!("{seen:#?}");
    if is_whole {
        assert!(seen.intents > 50_000 && seen.clocks > 50_000, "{seen:?}");
        assert!(seen.copies > 20_000 && seen.copied > 50_000, "{seen:?}");
        assert!(seen.restarts > 300 && seen.killed > 400 && seen.cut_off > 200, "{seen:?}");
        assert!(seen.restored > 500 && seen.taken_back > 1, "{seen:?}");
    }
    for seed in 0..24 {
        assert_eq!(run_managed(seed, false).fingerprint, run_managed(seed, false).fingerprint);
    }
}

/// As the first, with two to four accesses to a key in flight: each operation happens once, between
/// its call and its end; and it is seen that no more order than that holds.
#[test]
fn seeds_with_several_in_flight() {
    let mut seen = Seen::default();
    let is_whole = run_seeds(SEEDS, |seed, is_logged| {
        let report = run_lanes(seed, is_logged);
        seen.add(&report.seen);
        report.violations
    });
    println!("{seen:#?}");
    if is_whole {
        assert!(seen.moves > 20_000 && seen.judged > 50_000, "{seen:?}");
        assert!(seen.overtaken > 100, "{seen:?}");
        assert!(seen.restarts > 300 && seen.killed > 400 && seen.cut_off > 200, "{seen:?}");
        assert!(seen.restored > 500 && seen.stale > 20 && seen.full > 100, "{seen:?}");
    }
    for seed in 0..24 {
        assert_eq!(run_lanes(seed, false).fingerprint, run_lanes(seed, false).fingerprint);
    }
}
