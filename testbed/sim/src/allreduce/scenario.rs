//! From a seed to everything that a run depends on.

use weft_engine::random::SplitMix64;
use weft_io::fault::FaultRates;
use weft_wire::Nanos;
use weft_wire::hello::Integrity;

use super::data::Numbers;
use crate::world::Cue;

/// What a run is about.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// Packet faults and hostile frames only.
    Faults,
    /// Boxes restart in the middle of rounds, in the last window, and while members close.
    Restart,
    /// A worker dies for good.
    Death,
    /// A worker dies and returns under the same rank.
    Return,
    /// A worker is 500 ms late; nothing is lost.
    Late,
    /// Two jobs, one of which ignores its window and floods.
    Greedy,
    /// Two jobs, one of which dies as a whole.
    Killed,
}

/// What happens to the boxes and members of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// The box loses all it knew and is back after the pause.
    RestartBox {
        /// Index of the box; the root is 0.
        index: usize,
        /// How long it is gone.
        pause: Nanos,
    },
    /// The member is gone.
    Kill {
        /// Index of the member.
        member: usize,
    },
    /// The member starts a new life.
    Start {
        /// Index of the member.
        member: usize,
    },
    /// The member neither hears nor speaks.
    Pause {
        /// Index of the member.
        member: usize,
        /// For how long.
        span: Nanos,
    },
    /// Begins to flood the boxes with the member's contributions, without regard to its window.
    Flood {
        /// Index of the member.
        member: usize,
    },
}

/// Everything that a run depends on.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Where all of it came from.
    pub seed: u64,
    /// What the run is about.
    pub kind: Kind,
    /// 1: one box; 2: leaves below a root.
    pub levels: u32,
    /// Workers of each leaf, where there are leaves.
    pub leaf_workers: usize,
    /// Lanes of each box.
    pub shards: u16,
    /// Slots of each lane.
    pub window: u16,
    /// Elements of a chunk.
    pub elements: u16,
    /// Rounds.
    pub rounds: u32,
    /// Chunks of a round.
    pub chunks: u32,
    /// What is summed.
    pub numbers: Numbers,
    /// What protects the payload.
    pub integrity: Integrity,
    /// True when the row fixes the exponent.
    pub exponent_fixed: bool,
    /// Workers of each job, in order of the leaves.
    pub workers: usize,
    /// Jobs.
    pub jobs: usize,
    /// Packet faults.
    pub rates: FaultRates,
    /// Share of frames that a hostile frame follows.
    pub hostile: f64,
    /// What happens.
    pub cues: Vec<Cue<Action>>,
}

impl Scenario {
    /// The run of a seed.
    #[must_use]
    pub fn new(kind: Kind, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed ^ (kind as u64) << 56);
        let levels = 1 + below(&mut random, 2);
        let shards = 1 << below(&mut random, 2);
        let window: u16 = 2 << below(&mut random, 3);
        let lossy = !matches!(kind, Kind::Late);
        let mut scenario = Self {
            seed,
            kind,
            levels,
            leaf_workers: 2,
            shards,
            window,
            elements: 8 + 4 * small(below(&mut random, 3)),
            rounds: 2,
            // At least four windows of every lane, and a ragged end.
            chunks: 2 * u32::from(window * shards) + below(&mut random, 3),
            numbers: Numbers::ALL[below(&mut random, 6) as usize],
            integrity: Integrity::Crc32c,
            exponent_fixed: below(&mut random, 2) == 0,
            workers: if levels == 2 { 4 } else { 3 + below(&mut random, 2) as usize },
            jobs: if matches!(kind, Kind::Greedy | Kind::Killed) { 2 } else { 1 },
            rates: if lossy { rates(&mut random) } else { FaultRates::NONE },
            hostile: if lossy { f64::from(below(&mut random, 3)) * 0.1 } else { 0.0 },
            cues: Vec::new(),
        };
        scenario.direct(&mut random);
        scenario
    }

    /// Boxes of the run; the root comes first.
    #[must_use]
    pub const fn boxes(&self) -> usize {
        if self.levels == 2 { 1 + self.workers / self.leaf_workers } else { 1 }
    }

    /// Sums that all members of all jobs take when nothing breaks.
    #[must_use]
    pub fn sums_total(&self) -> u32 {
        self.rounds * self.chunks * small32(self.workers * self.jobs)
    }

    fn direct(&mut self, random: &mut SplitMix64) {
        let total = self.sums_total();
        let member = below(random, small32(self.workers)) as usize;
        let half = below(random, total / 2);
        let cue = |sums: u32, delay, action| Cue { after: sums.into(), delay, action };
        match self.kind {
            Kind::Faults => {}
            Kind::Restart => self.restarts(random, total),
            Kind::Death => self.cues.push(cue(half, Nanos(0), Action::Kill { member })),
            Kind::Return => {
                let back = Nanos::from_micros(u64::from(below(random, 200_000)));
                self.cues.push(cue(half, Nanos(0), Action::Kill { member }));
                self.cues.push(cue(half, back, Action::Start { member }));
            }
            Kind::Late => {
                let span = Nanos::from_millis(500);
                // Not in the first window: its contributions wait for the others' WELCOME.
                let sums = total / 3 + half / 2;
                self.cues.push(cue(sums, Nanos(0), Action::Pause { member, span }));
            }
            Kind::Greedy => self.cues.push(cue(1, Nanos(0), Action::Flood { member })),
            Kind::Killed => {
                for member in 0..self.workers {
                    self.cues.push(cue(half, Nanos(0), Action::Kill { member }));
                }
            }
        }
    }

    fn restarts(&mut self, random: &mut SplitMix64, total: u32) {
        let window_sums = u32::from(self.window * self.shards) * small32(self.workers);
        for _ in 0..=below(random, 3) {
            let sums = match below(random, 4) {
                0 => 0,
                1 => total - below(random, window_sums.min(total)),
                _ => below(random, total),
            };
            let late = if sums == 0 { 2_000 } else { 300 };
            self.cues.push(Cue {
                after: sums.into(),
                delay: Nanos::from_micros(u64::from(below(random, late))),
                action: Action::RestartBox {
                    index: below(random, small32(self.boxes())) as usize,
                    pause: Nanos::from_micros(u64::from(below(random, 3_000))),
                },
            });
        }
        // The members close once they hold all sums.
        if below(random, 2) == 0 {
            self.cues.push(Cue {
                after: total.into(),
                delay: Nanos::from_micros(u64::from(below(random, 500))),
                action: Action::RestartBox {
                    index: below(random, small32(self.boxes())) as usize,
                    pause: Nanos(0),
                },
            });
        }
    }
}

fn rates(random: &mut SplitMix64) -> FaultRates {
    let mut rate = |max: u32| match below(random, 3) {
        0 => 0.0,
        _ => f64::from(below(random, max)) / 100.0,
    };
    FaultRates {
        loss: rate(31),
        duplicate: rate(20),
        reorder: rate(30),
        delay: rate(10),
        corrupt: rate(15),
    }
}

fn below(random: &mut SplitMix64, count: u32) -> u32 {
    if count == 0 { 0 } else { random.next_u32() % count }
}

fn small(value: u32) -> u16 {
    u16::try_from(value).expect("a small number")
}

fn small32(value: usize) -> u32 {
    u32::try_from(value).expect("a small number")
}
