//! An allreduce job that is paused, resumed and resized in virtual time, while its controller, its
//! box and a worker are killed at any moment, and in each step of a word: the controller's real
//! engine, the workers' real rounds ([`weft_agent::rounds`]), and a box that is only what it holds.
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
//! | `loss` | workers that die, and that whoever asks hears which |
//! | `worker` | a worker, and the disk that checkpoints are on |
//! | `judge` | that no update is lost or comes twice, and that all stop before the same round |

mod aggregator;
mod control;
mod crew;
mod judge;
mod loss;
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
    /// Controllers that were killed with something to save: before it was, and right behind.
    pub killed_at_save: [u64; 2],
    /// Boxes that were killed by what they were told of their lease, to remove it, to give the job
    /// a share, to install it; before they did it, when they had, and when the controller knew.
    pub killed_at_lease: [[u64; 3]; 3],
    /// Workers that were killed: at any moment, just before they said that they have left, and
    /// right behind.
    pub workers_killed: [u64; 3],
    /// Of these: whoever asked heard who is missing; the job went on with another cohort.
    pub lost_named: u64,
    /// See above.
    pub lost_replaced: u64,
    /// Workers that called again from where their rank is no more, and heard that their cohort is
    /// over.
    pub moved: u64,
    /// Cohorts of which one worker never came.
    pub one_missing: u64,
    /// Words of two operators at the same instant, of which one was heeded and one refused.
    pub races: u64,
    /// Checkpoints that took longer than a stop may, and stops that were given up.
    pub slow_keeps: u64,
    /// See above.
    pub given_up: u64,
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
        self.lost_named += other.lost_named;
        self.lost_replaced += other.lost_replaced;
        self.moved += other.moved;
        self.one_missing += other.one_missing;
        self.races += other.races;
        self.slow_keeps += other.slow_keeps;
        self.given_up += other.given_up;
        add(&mut self.killed_at_save, &other.killed_at_save);
        add(&mut self.workers_killed, &other.workers_killed);
        for (own, others) in self.killed_at_lease.iter_mut().zip(&other.killed_at_lease) {
            add(own, others);
        }
        for state in 0..4 {
            self.controllers_killed[state] += other.controllers_killed[state];
            self.boxes_killed[state] += other.boxes_killed[state];
        }
    }
}

fn add(own: &mut [u64], other: &[u64]) {
    own.iter_mut().zip(other).for_each(|(own, other)| *own += other);
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
