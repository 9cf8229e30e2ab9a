//! The scenarios `async.toml`, `sync.toml` and `partial.toml` in virtual time: what planning gains
//! over fair sharing and FIFO when workers ask anew as soon as they are answered.
//!
//! `cargo test -p weft-controller-engine closed_loop -- --nocapture` prints the figures.

use alloc::borrow::ToOwned;
use alloc::vec::Vec;

use weft_control::Mode;

use super::world::{Record, Training, host};
use super::*;

/// Eight workers, four on links of 40 Mb/s, two of 20, one of 10, one of 5 up; server and both
/// aggregators receive 40 Mb/s.
pub(super) fn world(policy: &str, mode: Mode, tuning: &Tuning) -> World {
    let mut config = Config { tuning: tuning.clone(), ..Config::default() };
    let links = [(40, 40), (40, 40), (40, 40), (40, 40), (20, 20), (20, 20), (10, 10), (5, 20)];
    for (i, (up, down)) in links.into_iter().enumerate() {
        config.hosts.push(host(&format!("w{i}"), up, down));
    }
    config.hosts.push(host("s0", 80, 40));
    config.hosts.push(host("a0", 40, 40));
    config.hosts.push(host("a1", 40, 40));
    let mut job = job(8);
    job.dimension = 102_090;
    job.tau_max = Some(TAU_MAX);
    job.momentum = 0.5;
    job.policy = Some(policy.to_owned());
    job.aggregators = vec!["a0".into(), "a1".into()];
    job.mode = mode;
    job.partial_count = (mode == Mode::Partial).then_some(6);
    let mut world = World::new(config, vec![job]);
    world.attach_all();
    world
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    mean_ms: f64,
    p99_ms: f64,
    /// Of the granted updates: in groups of several.
    aggregated: f64,
    /// Of the server's downlink.
    busy: f64,
    commits_per_sec: f64,
}

fn train(policy: &str, mode: Mode, tuning: &Tuning, seed: u64) -> Figures {
    let mut world = world(policy, mode, tuning);
    let target = 12 * if mode == Mode::Partial { 6 } else { 8 };
    world.train(0, Training { seed, compute_ms: [50, 250], target });
    while world.version(0).0 < target {
        assert!(world.now_ns < 120_000_000_000, "{policy} {mode:?} does not come to an end");
        world.run_for(1_000_000);
    }
    let span_s = world.now_ns as f64 / 1e9;
    let records = world.records(0).iter().filter(|record| record.is_committed);
    let mut times: Vec<u64> = records.map(|Record { took_ns, .. }| *took_ns).collect();
    times.sort_unstable();
    let counters = world.status(0).counters;
    let figures = Figures {
        mean_ms: times.iter().sum::<u64>() as f64 / times.len() as f64 / 1e6,
        p99_ms: times[times.len() * 99 / 100] as f64 / 1e6,
        aggregated: counters.aggregated as f64 / counters.granted as f64,
        busy: world.bytes_into_server as f64 / span_s / world::rate(40) as f64,
        commits_per_sec: target as f64 / span_s,
    };
    std::println!("{policy:8} {mode:?} {seed}: {figures:.2?}");
    let is_default = *tuning == Tuning::default();
    assert!(
        !is_default || world.load_max <= 1.02,
        "{policy}: a link carried {} of its rate",
        world.load_max
    );
    if policy == "mlfabric" && mode == Mode::Async {
        assert!(counters.delay_max <= TAU_MAX, "{counters:?}");
    }
    figures
}

/// Async training: beyond the noise of seeds, clearly.
#[test]
fn planning_gains_over_sharing_and_fifo() {
    let tuning = Tuning::default();
    let mut tails_ms = [0.0, 0.0];
    for seed in 1..=5 {
        let [mlfabric, fair, fifo] =
            ["mlfabric", "fair", "fifo"].map(|policy| train(policy, Mode::Async, &tuning, seed));
        assert!(mlfabric.mean_ms < 0.75 * fair.mean_ms, "{mlfabric:?} {fair:?}");
        assert!(mlfabric.mean_ms < 0.55 * fifo.mean_ms, "{mlfabric:?} {fifo:?}");
        assert!(mlfabric.aggregated > 0.25, "{mlfabric:?}");
        tails_ms[0] += mlfabric.p99_ms;
        tails_ms[1] += fair.p99_ms;
    }
    // Sharing has no long tail: whoever waits waits for nobody in particular.
    assert!(tails_ms[0] < 1.05 * tails_ms[1], "{tails_ms:?}");
}

/// Each of the derived rules is worth its place.
#[test]
fn both_rules_are_needed() {
    let mean_ms = |order_room, closed_loop| {
        let tuning = Tuning { order_room, closed_loop, ..Tuning::default() };
        (1..=5).map(|seed| train("mlfabric", Mode::Async, &tuning, seed).mean_ms).sum::<f64>() / 5.0
    };
    let (neither, room, ahead, both) =
        (mean_ms(false, false), mean_ms(true, false), mean_ms(false, true), mean_ms(true, true));
    assert!(room < 0.9 * neither && ahead < 0.95 * neither, "{neither} {room} {ahead}");
    assert!(both < 0.85 * room.min(ahead), "{room} {ahead} {both}");
}

/// Rounds: their updates are summed too, and sooner in than as if nothing came after each.
#[test]
fn rounds_are_summed() {
    let alone = Tuning { order_room: false, closed_loop: false, ..Tuning::default() };
    for seed in 1..=3 {
        let sync = train("mlfabric", Mode::Sync, &Tuning::default(), seed);
        let before = train("mlfabric", Mode::Sync, &alone, seed);
        assert!(sync.mean_ms < 0.8 * before.mean_ms, "{sync:?} {before:?}");
        let partial = train("mlfabric", Mode::Partial, &Tuning::default(), seed);
        train("mlfabric", Mode::Partial, &alone, seed);
        for figures in [sync, partial] {
            assert!(figures.aggregated > 0.2, "{figures:?}");
        }
    }
}

/// A sum of more updates than the round has room for takes those that it has room for: nobody waits
/// for a plan that nothing asks for any more.
#[test]
fn every_round_of_partial_updates_ends() {
    for seed in 1..=400 {
        let mut config = Config::default();
        for (i, (up, down)) in [(10, 10), (10, 10), (5, 5), (2, 10)].into_iter().enumerate() {
            config.hosts.push(host(&format!("w{i}"), up, down));
        }
        config.hosts.push(host("s0", 10, 10));
        // Faster than the server, or no sum would be worth its while.
        config.hosts.push(host("a0", 20, 20));
        let mut job = job(4);
        job.dimension = 4_810;
        job.aggregators = vec!["a0".into()];
        job.mode = Mode::Partial;
        let best = 1 + seed as u32 % 4;
        job.partial_count = Some(best);
        let target = 10 * u64::from(best);
        let mut world = World::new(config, vec![job]);
        world.attach_all();
        world.train(0, Training { seed, compute_ms: [5, 6 + seed % 200], target });
        world.run_for(20_000_000_000);
        assert_eq!(world.version(0).0, target, "seed {seed}");
        assert_eq!(world.status(0).pending, 0, "seed {seed}: somebody is never answered");
    }
}

/// A server that commits on arrival decides in another order than its groups were granted.
#[test]
fn rounds_of_fair_sharing_go_on() {
    for mode in [Mode::Sync, Mode::Partial] {
        train("fair", mode, &Tuning::default(), 1);
    }
}

/// The same seed gives the same run.
#[test]
fn a_closed_loop_is_deterministic() {
    let run = || train("mlfabric", Mode::Async, &Tuning::default(), 7);
    assert_eq!(run(), run());
}

const TAU_MAX: u64 = 16;
