//! Thousands of seeds of the real engines in virtual time, judged by the invariants I1, I2 and I6
//! to I10 of DESIGN section 3.
//!
//! A failure prints its seed and the command that replays it with a log of every frame.
//! `WEFT_SIM_SCALE=10` runs ten times as many seeds.

use std::env;

use weft_io::fault::FaultRates;
use weft_sim::allreduce::data::{Numbers, Place};
use weft_sim::allreduce::scenario::{Kind, Scenario};
use weft_sim::allreduce::{Report, run};
use weft_sim::coverage::Coverage;
use weft_sim::seeds::{self, Found, Seed, run_all};

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// Runs the seeds of a kind, or the one that the environment names.
fn seeds(kind: Kind, name: &str, count: u64) {
    let one = number("WEFT_SIM_SEED");
    let scale = number("WEFT_SIM_SCALE").unwrap_or(1);
    let seeds = one.map_or(0..count * scale, |seed| seed..seed + 1);
    let seeds = seeds.map(|seed| Seed { kind: seeds::Kind::Allreduce(kind), seed });
    let Found { coverage, failures, .. } = run_all(seeds, 1, one.is_some(), &|| false);
    println!("{name}: {coverage}");
    for (seed, violations) in failures.iter().take(20) {
        println!("{seed}: {violations:#?}\nreplay: weft soak --replay {seed}");
    }
    assert!(failures.is_empty(), "{} of {} seeds failed", failures.len(), coverage.seeds);
}

#[test]
fn faults() {
    seeds(Kind::Faults, "faults", 700);
}

#[test]
fn restarts() {
    seeds(Kind::Restart, "restarts", 800);
}

#[test]
fn deaths() {
    seeds(Kind::Death, "deaths", 150);
}

#[test]
fn returns() {
    seeds(Kind::Return, "returns", 250);
}

#[test]
fn a_late_worker() {
    seeds(Kind::Late, "a_late_worker", 150);
}

#[test]
fn a_greedy_job() {
    seeds(Kind::Greedy, "a_greedy_job", 40);
}

#[test]
fn a_killed_job() {
    seeds(Kind::Killed, "a_killed_job", 80);
}

/// Real workers at one box with one to four of them, and at one to four leaves with one to four
/// each, under loss and repeats, so that kept answers are taken too.
#[test]
fn every_number_mode_in_every_small_tree() {
    let trees = (1..=4).map(|workers| (1, workers, 1));
    let trees =
        trees.chain((1..=4).flat_map(|leaves| (1..=4).map(move |below| (2, leaves, below))));
    let mut seed = 0;
    for (levels, boxes, leaf_workers) in trees {
        for numbers in Numbers::ALL {
            seed += 1;
            let faults = Scenario::new(Kind::Faults, seed);
            let rates = FaultRates { loss: 0.05, duplicate: 0.1, ..FaultRates::NONE };
            let workers = boxes * leaf_workers;
            let scenario =
                Scenario { levels, workers, leaf_workers, numbers, rates, hostile: 0.0, ..faults };
            let report = run(&scenario, false);
            assert_eq!(report.violations, [""; 0], "{scenario:#?}");
            let sums: u32 = report.members.iter().map(|member| member.data.sum_count).sum();
            assert_eq!(sums, scenario.sums_total());
        }
    }
}

/// Everything that can happen to a slot, and every reason to refuse a frame, happens. What a
/// kind of run cannot reach by faults, the enemy provokes with a forged frame.
#[test]
fn every_transition_and_drop_reason_is_hit() {
    let mut coverage = Coverage::default();
    let kinds = [
        (Kind::Restart, 120),
        (Kind::Faults, 60),
        (Kind::Return, 20),
        (Kind::Greedy, 5),
        (Kind::Late, 5),
        (Kind::Death, 3),
        (Kind::Killed, 3),
    ];
    for (kind, count) in kinds {
        for seed in 0..count {
            coverage.merge(&run(&Scenario::new(kind, seed), false).coverage);
        }
    }
    println!("{coverage}");
    assert_eq!(coverage.missing("transition"), [""; 0]);
    // Frames that are not IP go to the host side of the port, which counts what it does not answer.
    // The forgers here stay below what strangers may cost; `aggregator/tests/quota.rs` has more.
    assert_eq!(coverage.missing("drop"), ["not_ip", "strangers_quota"]);
    for fault in [
        "loss",
        "duplicate",
        "reorder",
        "delay",
        "corrupt",
        "forged",
        "restart_root",
        "restart_leaf",
        "kill",
        "return",
        "pause",
        "flood",
    ] {
        assert!(coverage.of("fault", fault) > 0, "{fault} never fired");
    }
}

#[test]
fn the_same_seed_gives_the_same_frames_at_the_same_times() {
    let kinds = [Kind::Faults, Kind::Restart, Kind::Death, Kind::Return, Kind::Late, Kind::Killed];
    let mut fingerprints = Vec::new();
    for kind in kinds {
        for seed in 1_000..1_015 {
            let scenario = Scenario::new(kind, seed);
            let (first, second) = (run(&scenario, false), run(&scenario, false));
            assert_eq!(first.fingerprint, second.fingerprint, "{kind:?} {seed}");
            assert_eq!(first.ended_at, second.ended_at);
            fingerprints.push(first.fingerprint);
        }
    }
    fingerprints.sort_unstable();
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), kinds.len() * 15, "other seeds give other frames");
}

/// What a greedy or a dying job does to the other one: nothing. Its sums are those of a run that
/// nobody disturbs.
#[test]
fn a_job_beside_another_sums_as_if_alone() {
    for kind in [Kind::Greedy, Kind::Killed] {
        for seed in 2_000..2_020 {
            let disturbed = Scenario::new(kind, seed);
            if disturbed.numbers == Numbers::ArrivalOrder {
                continue;
            }
            let mut alone = Scenario { cues: Vec::new(), hostile: 0.0, ..disturbed.clone() };
            alone.rates = Scenario::new(Kind::Late, seed).rates;
            assert_eq!(sums(&run(&disturbed, false)), sums(&run(&alone, false)), "{kind:?} {seed}");
        }
    }
}

/// The sums of the second job, by worker and chunk.
fn sums(report: &Report) -> Vec<(usize, Place, Vec<u8>)> {
    let members = report.members.iter().filter(|member| member.placement.job == 1);
    let sums = members.flat_map(|member| {
        let sums = member.data.sums.iter();
        sums.map(|sum| (member.placement.worker, sum.place, sum.bytes.clone()))
    });
    let mut sums: Vec<_> = sums.collect();
    sums.sort_unstable();
    sums
}
