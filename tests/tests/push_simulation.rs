//! Thousands of seeds of the push system in virtual time, judged by the invariants I1 to I6, I9 and
//! I10 of DESIGN section 3: real engines of workers, aggregators, server and replica, and a
//! controller.
//!
//! A failure prints its seed and the command that replays it with a log of every frame.
//! `WEFT_SIM_SCALE=10` runs ten times as many seeds, `WEFT_SIM_COUNT=20` twenty of each kind.

use std::env;

use weft_tests::push_sim::run;
use weft_tests::push_sim::scenario::{Kind, Scenario};
use weft_tests::sim::coverage::Coverage;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// Runs the seeds of a kind, or the one that the environment names.
fn seeds(kind: Kind, name: &str, count: u64) -> Coverage {
    let one = number("WEFT_SIM_SEED");
    let scale = number("WEFT_SIM_SCALE").unwrap_or(1);
    let mut coverage = Coverage::default();
    let mut failures = Vec::new();
    let count = number("WEFT_SIM_COUNT").unwrap_or(count * scale);
    for seed in one.map_or(0..count, |seed| seed..seed + 1) {
        let scenario = Scenario::new(kind, seed);
        if one.is_some() {
            println!("{scenario:#?}");
        }
        let report = run(&scenario, one.is_some());
        coverage.merge(&report.coverage);
        if !report.violations.is_empty() {
            failures.push((seed, report.violations));
        }
    }
    println!("{name}: {coverage}");
    for (seed, violations) in failures.iter().take(20) {
        println!("seed {seed}: {violations:#?}");
        println!(
            "replay: WEFT_SIM_SEED={seed} cargo test -p weft-tests --test push_simulation {name} \
             -- --exact --nocapture"
        );
    }
    assert!(failures.is_empty(), "{} of {} seeds failed", failures.len(), coverage.seeds);
    coverage
}

#[test]
fn faults() {
    seeds(Kind::Faults, "faults", 500);
}

#[test]
fn aggregators() {
    seeds(Kind::Aggregators, "aggregators", 350);
}

#[test]
fn workers() {
    seeds(Kind::Workers, "workers", 350);
}

#[test]
fn replicas() {
    seeds(Kind::Replica, "replicas", 250);
}

#[test]
fn servers() {
    seeds(Kind::Server, "servers", 250);
}

#[test]
fn controllers() {
    seeds(Kind::Controller, "controllers", 250);
}

#[test]
fn without_a_controller() {
    seeds(Kind::Direct, "without_a_controller", 250);
}

#[test]
fn the_same_seed_gives_the_same_frames_at_the_same_times() {
    let mut transcripts = Vec::new();
    for kind in Kind::ALL {
        for seed in 5_000..5_006 {
            let scenario = Scenario::new(kind, seed);
            let (first, second) = (run(&scenario, false), run(&scenario, false));
            assert_eq!(first.transcript, second.transcript, "{kind:?} {seed}");
            assert_eq!((first.ended_at, first.models), (second.ended_at, second.models));
            transcripts.push(first.transcript);
        }
    }
    let count = transcripts.len();
    transcripts.sort_unstable();
    transcripts.dedup();
    assert_eq!(transcripts.len(), count, "other seeds give other frames");
}

/// What a run can do to leases, decisions and the replica happens. Workers never come late to a sum
/// that left without them, for masks only shrink, and they ask the server, not the aggregator; those
/// two cells are the unit tests' of the aggregator.
#[test]
fn every_cell_of_a_lease_is_hit() {
    let mut coverage = Coverage::default();
    for kind in Kind::ALL {
        for seed in 0..60 {
            coverage.merge(&run(&Scenario::new(kind, seed), false).coverage);
        }
    }
    println!("{coverage}");
    assert_eq!(coverage.missing("lease"), ["late_sent", "status"]);
    for fault in [
        "loss",
        "duplicate",
        "reorder",
        "delay",
        "corrupt",
        "restart_aggregator",
        "restart_worker",
        "restart_replica",
        "restart_server",
        "restart_controller",
    ] {
        assert!(coverage.of("fault", fault) > 0, "{fault} never fired");
    }
    for (kind, name) in [
        ("server", "chunks_aggregated"),
        ("server", "chunks_direct"),
        ("server", "chunks_composed"),
        ("server", "fallbacks"),
        ("server", "dropped"),
        ("server", "voids"),
        ("server", "members_closed"),
        ("server", "bound_waits"),
        ("replica", "chunks_copied"),
        ("replica", "chunks_repaired"),
        ("replica", "snapshots"),
        ("pusher", "credits_early"),
    ] {
        assert!(coverage.of(kind, name) > 0, "{kind} {name} never happened");
    }
}
