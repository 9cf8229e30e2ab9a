//! `kill -9` of a server that keeps its job on disk, again and again (README, SPEC's "Durable"):
//! each update that a worker was told is committed is in the model, once, and nothing else is.
//!
//! `WEFT_ATTACK_SCALE=20` kills twenty times as often; `WEFT_ATTACK_SEED` sets the moments.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use weft_tests::live::durable::{Job, scale, wait_for};

const WORKERS: u8 = 3;
const KILLS: u32 = 8;

#[test]
fn a_server_that_is_killed_again_and_again_keeps_every_update_that_it_acknowledged() {
    let seed = std::env::var("WEFT_ATTACK_SEED").map_or_else(
        |_| u64::from(std::process::id()),
        |seed| seed.parse().expect("WEFT_ATTACK_SEED is a number"),
    );
    println!("WEFT_ATTACK_SEED={seed}");
    let job = Job::new(WORKERS);
    // Checkpoints come after a few updates.
    let config = job.config(&job.directory().join("state"), Some(1));
    let (stop, told) = (AtomicBool::new(false), AtomicU64::new(0));
    let (versions, ended) = thread::scope(|scope| {
        let mut server = job.start(&config).expect("it serves");
        let train = |rank| job.train(rank, &stop, &told).expect("the job goes on");
        let workers: Vec<_> = (0..WORKERS).map(|rank| scope.spawn(move || train(rank))).collect();
        let mut random = seed;
        for _ in 0..KILLS * scale() {
            wait_for(&told, told.load(Ordering::Relaxed) + 5);
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            thread::sleep(Duration::from_micros((random >> 33) % 50_000));
            let ended = server.end(Signal::SIGKILL);
            assert_eq!(ended.status, None, "it had ended by itself: {}", ended.stderr);
            server = match job.start(&config) {
                Ok(server) => server,
                Err(ended) => panic!("it does not start again: {}", ended.stderr),
            };
        }
        wait_for(&told, told.load(Ordering::Relaxed) + 5);
        stop.store(true, Ordering::Relaxed);
        let versions: Vec<_> = workers.into_iter().map(|w| w.join().expect("it trains")).collect();
        (versions, server.end(Signal::SIGTERM))
    });
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let counts: Vec<_> = versions.iter().map(|versions| versions.len() as u64).collect();
    println!("{} kills, {counts:?} updates", KILLS * scale());
    assert_eq!(job.updates(), counts);
    let all: u64 = counts.iter().sum();
    assert_eq!(ended.report["servers"][0]["version"], all, "{}", ended.report);
    let distinct: BTreeSet<_> = versions.into_iter().flatten().collect();
    assert_eq!(distinct, (1..=all).collect(), "each version was told to one worker");
}
