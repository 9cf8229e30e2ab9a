//! Thousands of seeds of the push system in virtual time, judged by the invariants I1 to I7, I9 and
//! I10 of DESIGN section 3: real engines of workers, aggregators, server, replica and controller.
//! One seed in five has a scripted controller instead, whose plans are stranger.
//!
//! A failure prints its seed and the command that replays it with a log of every frame.
//! `WEFT_SIM_SCALE=10` runs ten times as many seeds, `WEFT_SIM_COUNT=20` twenty of each kind,
//! `WEFT_SIM_KIND=workers` one kind.

use std::env;
use std::thread;

use weft_sim::coverage::Coverage;
use weft_sim::push::run;
use weft_sim::push::scenario::{Kind, Scenario};
use weft_sim::seeds::{self, Found, Seed, run_all};

/// Every kind with how many of its seeds are run.
const KINDS: [(Kind, &str, u64); 8] = [
    (Kind::Faults, "faults", 500),
    (Kind::Aggregators, "aggregators", 350),
    (Kind::Workers, "workers", 350),
    (Kind::Replica, "replicas", 250),
    (Kind::Server, "servers", 250),
    (Kind::Controller, "controllers", 250),
    (Kind::Direct, "without_a_controller", 250),
    (Kind::Promotion, "promotions", 2_000),
];

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// The runs that the environment asks for; true when it leaves nothing out.
fn chosen() -> (Vec<Seed>, bool) {
    let one = number("WEFT_SIM_SEED");
    let count = number("WEFT_SIM_COUNT");
    let scale = number("WEFT_SIM_SCALE").unwrap_or(1);
    let only = env::var("WEFT_SIM_KIND").ok();
    let mut runs = Vec::new();
    for (kind, name, usual) in KINDS {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let seeds = one.map_or_else(|| 0..count.unwrap_or(usual * scale), |seed| seed..seed + 1);
        runs.extend(seeds.map(|seed| Seed { kind: seeds::Kind::Push(kind), seed }));
    }
    (runs, one.is_none() && count.is_none() && only.is_none())
}

#[test]
fn seeds() {
    let (runs, is_whole) = chosen();
    assert!(!runs.is_empty(), "WEFT_SIM_KIND names no kind; there are {KINDS:?}");
    let log = number("WEFT_SIM_SEED").is_some();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let Found { coverage, failures, .. } = run_all(runs.into_iter(), threads, log, &|| false);
    println!("{coverage}");
    for (seed, violations) in failures.iter().take(20) {
        println!("{seed}: {violations:#?}\nreplay: weft soak --replay {seed}");
    }
    assert!(failures.is_empty(), "{} of {} seeds failed", failures.len(), coverage.seeds);
    if is_whole {
        assert!(coverage.seeds >= 2_000);
        every_cell_is_hit(&coverage);
    }
}

/// What promotions went wrong with: commits were told that the replica lacked, from a log that was
/// full (43, 93, 105, 261; decisions that did not wait for room in it: 153, 219); a controller that
/// restarted did not miss a server that was dead by then (10, 88, 113); an aggregator that found it
/// before its new server did was not told of that (1283, 1378); a job without a server kept the
/// links of another one (361, 1101).
#[test]
fn promotions_go_right_where_they_once_did_not() {
    for seed in [43, 93, 105, 261, 153, 219, 10, 88, 113, 1283, 1378, 361, 1101] {
        let report = run(&Scenario::new(Kind::Promotion, seed), false);
        assert_eq!(report.violations, Vec::<String>::new(), "promotions, seed {seed}");
    }
}

/// Two jobs whose workers took back what they had been granted late, over and over: the groups kept
/// the links, so that the next grants were late too.
#[test]
fn what_is_taken_back_delays_nobody() {
    for seed in [89, 547] {
        let report = run(&Scenario::new(Kind::Faults, seed), false);
        assert_eq!(report.violations, Vec::<String>::new(), "faults, seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_frames_at_the_same_times() {
    let mut fingerprints = Vec::new();
    for kind in Kind::ALL {
        for seed in 5_000..5_006 {
            let scenario = Scenario::new(kind, seed);
            let (first, second) = (run(&scenario, false), run(&scenario, false));
            assert_eq!(first.fingerprint, second.fingerprint, "{kind:?} {seed}");
            assert_eq!((first.ended_at, first.models), (second.ended_at, second.models));
            fingerprints.push(first.fingerprint);
        }
    }
    let count = fingerprints.len();
    fingerprints.sort_unstable();
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), count, "other seeds give other frames");
}

/// Whatever can happen to frames, leases, decisions, the replica, grants and plans happens. What is
/// missing is named, with the reason why it cannot happen here.
fn every_cell_is_hit(coverage: &Coverage) {
    let none: [&str; 0] = [];
    for kind in ["fault", "lease", "replica", "pusher", "controller"] {
        assert_eq!(coverage.missing(kind), none, "{kind}");
    }
    // No replica is silent for a lease while its server lives, and none is asked that is not fit.
    assert_eq!(coverage.missing("succession"), ["left", "refused"]);
    // Sums are whole: two of one group that overlap in part would be of masks that grew.
    assert_eq!(coverage.missing("server"), ["overlaps"]);
    for reason in ["too_old", "deadline_cluster"] {
        assert!(coverage.of("plan drop", reason) > 0, "no plan dropped for {reason}");
    }
    // Lanes and windowed leases are the other simulation's, and so are steps older than a window;
    // what is no IP is counted by the host side of a port; only aggregators have quotas, and the
    // forgers stay below what strangers may cost; answers and states have neither operation nor
    // exponent, and a worker judges them by what it waits for.
    let elsewhere = ["not_ip", "strangers_quota", "unwanted", "wrong_shard"];
    for (kind, cannot) in [
        ("agg drop", &["stale_step"][..]),
        ("srv drop", &["over_quota", "stale_step", "unsolicited"]),
        ("rep drop", &["over_quota"]),
        (
            "wrk drop",
            &["chunk_out_of_range", "exponent", "operation", "over_quota", "stale_group", "token"],
        ),
    ] {
        let missing = coverage.missing(kind);
        let unexplained =
            missing.iter().filter(|name| !elsewhere.contains(name) && !cannot.contains(name));
        assert_eq!(unexplained.collect::<Vec<_>>(), Vec::<&&str>::new(), "{kind}");
    }
}
