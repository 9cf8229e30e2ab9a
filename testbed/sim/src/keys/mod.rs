//! Processes that set, add to, pull and move rows, and the box that knows where these are, in
//! virtual time: the real engines ([`weft_engine::role::keys`]) on a network that loses,
//! duplicates, reorders, delays and damages datagrams.
//!
//! | file | does or decides |
//! | --- | --- |
//! | `scenario` | what a seed lets happen |
//! | `world` | the queue, the network, the box and its lives |
//! | `node` | a process: its engine, its sessions, its checkpoint |
//! | `history` | whether what the sessions saw is sequentially consistent, key by key |
//! | `copies` | whether pulls of copies are as new as they must be |
//! | `lanes` | whether what they saw keeps the order of what was done before what, no more |
//! | `judge` | that each row is at one process, that the sums are exact, that all ends |
//! | [`timed`] | the same engines where nothing goes wrong: how long work over a table takes |

mod copies;
pub mod history;
mod judge;
mod lanes;
mod node;
pub mod scenario;
pub mod timed;
mod world;

use self::scenario::Scenario;

/// What came of a seed.
pub type Report = crate::report::Report<Seen>;

/// What happened how often.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Datagrams that arrived.
    pub frames: u64,
    /// Operations that sessions called, by kind: sets, adds, pulls, localizes.
    pub calls: [u64; 4],
    /// Pulls whose values were judged.
    pub judged: u64,
    /// Rows that moved.
    pub moves: u64,
    /// Boxes that were restarted.
    pub restarts: u64,
    /// Processes that were killed, and that were cut off and went on.
    pub killed: u64,
    /// See above.
    pub cut_off: u64,
    /// Rows that came from a checkpoint.
    pub restored: u64,
    /// Copies that were taken back.
    pub taken_back: u64,
    /// STALEs that came for a number.
    pub stale: u64,
    /// WAITs that were sent because something was full, because a frame went round too often, and
    /// by boxes.
    pub full: u64,
    /// See above.
    pub hops_exceeded: u64,
    /// See above.
    pub waits: u64,
    /// Accesses and localizes that processes passed on.
    pub passed_on: u64,
    /// Frames that were sent again.
    pub repeats: u64,
    /// Intents, clocks, copies that came, and operations that ran on copies.
    pub intents: u64,
    /// See above.
    pub clocks: u64,
    /// See above.
    pub copies: u64,
    /// See above.
    pub copied: u64,
    /// Keys of tables with several accesses in flight at which an operation overtook one that its
    /// session had called before.
    pub overtaken: u64,
}

impl Seen {
    /// Adds what another seed saw.
    pub fn add(&mut self, other: &Self) {
        let calls = self.calls.iter_mut().zip(other.calls);
        calls.for_each(|(sum, count)| *sum += count);
        let sums = [
            (&mut self.frames, other.frames),
            (&mut self.judged, other.judged),
            (&mut self.moves, other.moves),
            (&mut self.restarts, other.restarts),
            (&mut self.killed, other.killed),
            (&mut self.cut_off, other.cut_off),
            (&mut self.restored, other.restored),
            (&mut self.taken_back, other.taken_back),
            (&mut self.stale, other.stale),
            (&mut self.full, other.full),
            (&mut self.hops_exceeded, other.hops_exceeded),
            (&mut self.waits, other.waits),
            (&mut self.passed_on, other.passed_on),
            (&mut self.repeats, other.repeats),
            (&mut self.intents, other.intents),
            (&mut self.clocks, other.clocks),
            (&mut self.copies, other.copies),
            (&mut self.copied, other.copied),
            (&mut self.overtaken, other.overtaken),
        ];
        for (sum, count) in sums {
            *sum += count;
        }
    }
}

/// Runs a seed. `log` prints the scenario and every datagram.
#[must_use]
pub fn run(seed: u64, log: bool) -> Report {
    run_scenario(&Scenario::new(seed), log)
}

/// Runs a seed with intents, clocks and copies.
#[must_use]
pub fn run_managed(seed: u64, log: bool) -> Report {
    run_scenario(&Scenario::managed(seed), log)
}

/// Runs a seed with several accesses to a key in flight.
#[must_use]
pub fn run_lanes(seed: u64, log: bool) -> Report {
    run_scenario(&Scenario::lanes(seed), log)
}

fn run_scenario(scenario: &Scenario, log: bool) -> Report {
    if log {
        println!("{scenario:#?}");
    }
    world::World::new(scenario, log).run()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few; thousands are in `tests/tests/key_simulation.rs`.
    #[test]
    fn a_few_seeds_break_nothing() {
        for seed in 0..SEEDS {
            let violations = run(seed, false).violations;
            assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
            let violations = run_managed(seed, false).violations;
            assert!(violations.is_empty(), "managed seed {seed}: {violations:#?}");
            let violations = run_lanes(seed, false).violations;
            assert!(violations.is_empty(), "seed {seed} of lanes: {violations:#?}");
        }
    }

    const SEEDS: u64 = 320;
}
