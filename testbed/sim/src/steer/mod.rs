//! An allreduce job that is paused, resumed and resized in virtual time, while its controller and
//! its box are killed at any moment: the controller's real engine, the workers' real rounds
//! ([`weft_agent::rounds`]), and a box that is only what it holds.
//!
//! A round ends when all workers of the cohort whose lease the box holds have begun it: that is
//! what the other simulations show of the real aggregator ([`crate::allreduce`]).
//!
//! | file | does or decides |
//! | --- | --- |
//! | `world` | the queue, the messages on their way, and the end |
//! | `control` | the controller's lives, what it wants done, and what an operator says to it |
//! | `aggregator` | the box |
//! | `crew` | the workers, whoever starts them, and their streams |
//! | `worker` | a worker, and the disk that checkpoints are on |
//! | `judge` | that no update is lost or comes twice, and that all stop before the same round |

mod aggregator;
mod control;
mod crew;
mod judge;
mod worker;
mod world;

/// What came of a seed.
pub type Report = crate::report::Report<Seen>;

/// What happened how often.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Pauses that came to a standstill.
    pub pauses: u64,
    /// Resizes that were told.
    pub resizes: u64,
    /// Leases that were refused.
    pub reverts: u64,
    /// Cohorts that nobody started, and those that did not begin in time.
    pub forgotten: u64,
    /// See above.
    pub overdue: u64,
    /// Controllers and boxes that were killed, by what the job was doing then: running, pausing,
    /// paused, resizing.
    pub controllers_killed: [u64; 4],
    /// See above.
    pub boxes_killed: [u64; 4],
    /// Words that were refused.
    pub refusals: u64,
}

impl Seen {
    /// Adds what another seed saw.
    pub fn add(&mut self, other: &Self) {
        self.pauses += other.pauses;
        self.resizes += other.resizes;
        self.reverts += other.reverts;
        self.forgotten += other.forgotten;
        self.overdue += other.overdue;
        self.refusals += other.refusals;
        for state in 0..4 {
            self.controllers_killed[state] += other.controllers_killed[state];
            self.boxes_killed[state] += other.boxes_killed[state];
        }
    }
}

/// Runs a seed. `log` prints every event.
#[must_use]
pub fn run(seed: u64, log: bool) -> Report {
    world::World::new(seed, log).run()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few; thousands are in `tests/tests/steer_simulation.rs`.
    #[test]
    fn a_few_seeds_break_nothing() {
        for seed in 0..SEEDS {
            let violations = run(seed, false).violations;
            assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
        }
    }

    const SEEDS: u64 = 400;
}
