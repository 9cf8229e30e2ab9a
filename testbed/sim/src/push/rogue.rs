//! Workers that announce updates of their own accord, under good cookies, while a controller plans
//! their job. What it gives, numbers and groups, must stay as it was (I3): to the judge their
//! frames are forged ones. Without a controller nobody could tell them from workers that do without
//! it.

use weft_control::Command;
use weft_engine::random::SplitMix64;
use weft_wire::header::{Flags, Header, Kind, Operation, Outcome};
use weft_wire::rows::ROW_DIRECT;
use weft_wire::{ChunkIndex, GroupId, Nanos};

use super::scenario::{Control, Scenario};
use super::topology;
use crate::hash;
use crate::hostile::{assemble, take_apart};

/// The rogues of a run, and what they know of the server's controller.
#[derive(Debug)]
pub struct Rogue {
    random: SplitMix64,
    share: f64,
    /// By job: the controller that is there has spoken of it.
    planned: Vec<bool>,
}

impl Rogue {
    /// In one run of four.
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        let is_there = scenario.control == Control::Engine && scenario.seed % 4 == 1;
        Self {
            random: SplitMix64::new(hash(&[scenario.seed, 667])),
            share: if is_there { SHARE } else { 0.0 },
            planned: vec![false; scenario.jobs],
        }
    }

    /// The server hears a command.
    pub fn note_command(&mut self, command: &Command) {
        self.planned[topology::job_place(command.job())] = true;
    }

    /// The server's stream has ended.
    pub fn note_gone(&mut self) {
        self.planned.fill(false);
    }

    /// Whether a frame that arrives at the server now is to change nothing.
    #[must_use]
    pub fn is_planned(&self, frame: &[u8]) -> bool {
        let job = take_apart(frame).map(|(_, header, _)| topology::job_place(header.job));
        job.is_some_and(|place| self.planned[place])
    }

    /// Sees a frame of a worker to its server; the announcement that goes with it, and how much
    /// later.
    pub fn answer(&mut self, scenario: &Scenario, frame: &[u8]) -> Option<(Nanos, Vec<u8>)> {
        let draw = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        if draw >= self.share {
            return None;
        }
        let (udp, header, _) = take_apart(frame)?;
        let rank = header.members.single()?;
        if !matches!(header.kind, Kind::Contrib | Kind::Status) {
            return None;
        }
        let word = self.random.next_u32();
        // The worker's own have smaller numbers.
        let generation = 0x8000 | u16::try_from(word & 0x7fff).expect("15 bits");
        let row = ROW_DIRECT + u16::try_from(rank.index()).expect("below 64");
        let announced = Header {
            kind: Kind::Status,
            flags: Flags::NONE,
            outcome: Outcome::None,
            group: GroupId::new(row, generation),
            chunk: ChunkIndex(0),
            element_type: topology::element_type(scenario),
            operation: Operation::None,
            exponent: topology::EXPONENT,
            count: scenario.elements,
            ..header
        };
        let delay = Nanos(u64::from(word >> 16) * 8);
        Some((delay, assemble(udp.source, udp.target, &announced, &[])))
    }
}

/// Of a worker's frames to its server: so many are followed by an announcement.
const SHARE: f64 = 0.1;
