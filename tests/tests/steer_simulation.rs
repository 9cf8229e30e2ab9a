//! Thousands of seeds of an allreduce job that is paused, resumed and resized while its controller
//! and its box are killed at any moment of that and in each step, also between what is heard and
//! what is saved; workers die before and after they have left, or never come, checkpoints take too
//! long, and operators speak at once. No update is lost or comes twice, all workers stop before the
//! same round, and the job ends, or whoever asks hears which worker is lost.
//!
//! A failure prints its seed; `WEFT_SIM_SEED=n` runs it alone with a log of every event,
//! `WEFT_SIM_SCALE=10` ten times as many, `WEFT_SIM_COUNT=20` twenty.

use weft_sim::steer::{Seen, run};
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
    println!("{seen:?}");
    if is_whole {
        // In every step of both: running, pausing, paused, resizing.
        for (state, kills) in seen.controllers_killed.iter().zip(&seen.boxes_killed).enumerate() {
            assert!(*kills.0 > 20 && *kills.1 > 20, "state {state}: {seen:?}");
        }
        assert!(seen.pauses > 1000 && seen.resizes > 1000, "{seen:?}");
        assert!(seen.reverts > 20 && seen.refusals > 500, "{seen:?}");
        assert!(seen.forgotten > 50 && seen.overdue >= seen.forgotten, "{seen:?}");
        // In each step of a lease: before it is done, when it is, and when the controller knows.
        let at_lease = seen.killed_at_lease.iter().flatten();
        let moments = at_lease.chain(&seen.killed_at_save).chain(&seen.workers_killed);
        moments.for_each(|kills| assert!(*kills > 20, "{seen:?}"));
        assert!(seen.one_missing > 50 && seen.races > 100, "{seen:?}");
        assert!(seen.moved > 20, "{seen:?}");
        assert!(seen.lost_named > 50 && seen.lost_replaced > 20, "{seen:?}");
        assert!(seen.slow_keeps > 20 && seen.given_up > seen.slow_keeps / 2, "{seen:?}");
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 0..20 {
        assert_eq!(run(seed, false).fingerprint, run(seed, false).fingerprint, "seed {seed}");
    }
}
