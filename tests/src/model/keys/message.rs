//! What travels in the key model: numbers, epochs, values, rows and frames.

use std::fmt;

use super::list::List;
use super::process::Kind;

/// Processes of a model; those that a model does not want are dead from the start.
pub const PROCESS_COUNT: usize = 3;

/// Accesses to one key that one process can have in flight: each in a lane of its own.
pub const LANE_COUNT: usize = 2;

/// Operations that one process can have on one key.
pub const OP_COUNT_MAX: usize = 4;

/// Kept copies that one process can have of one key.
pub const KEPT_COUNT_MAX: usize = 4;

/// The number of an access or a localize: the directory's life when it was given, then a count
/// that the process never repeats. 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Number(u8);

impl Number {
    /// No number.
    pub const NONE: Self = Self(0);

    pub(super) const fn new(life: u8, count: u8) -> Self {
        assert!(life < 16 && count < 16, "the model has four bits for each");
        Self(life << 4 | count)
    }

    pub(super) const fn life(self) -> u8 {
        self.0 >> 4
    }

    pub(super) const fn count(self) -> u8 {
        self.0 & 15
    }

    pub(super) const fn is_some(self) -> bool {
        self.0 != 0
    }
}

/// The epoch of a row: the life it was born in, then its moves. 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(u8);

impl Epoch {
    /// No epoch: not held.
    pub const NONE: Self = Self(0);

    pub(super) const fn born(life: u8) -> Self {
        Self(life << 4)
    }

    pub(super) const fn birth(self) -> u8 {
        self.0 >> 4
    }

    pub(super) const fn moved(self) -> Self {
        assert!(self.0 & 15 < 15, "the model has four bits for moves");
        Self(self.0 + 1)
    }

    pub(super) const fn is_some(self) -> bool {
        self.0 != 0
    }
}

/// What a row holds, as a history: which `set` was the last, and how often each push came after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Value(u32);

impl Value {
    const SET_SHIFT: u32 = 24;

    pub(super) fn set(op: usize) -> Self {
        Self(u32::try_from(op + 1).expect("few operations") << Self::SET_SHIFT)
    }

    /// Runs an operation on it.
    pub(super) fn run(&mut self, kind: Kind, op: usize) {
        match kind {
            Kind::Set => *self = Self::set(op),
            Kind::Push => self.add(op),
            Kind::Pull => {}
        }
    }

    /// Adds the push `op` once more; beyond three its count stays.
    pub(super) fn add(&mut self, op: usize) {
        if self.count(op) < 3 {
            self.0 += 1 << (2 * op);
        }
    }

    pub(super) const fn count(self, op: usize) -> u32 {
        self.0 >> (2 * op) & 3
    }

    /// The pushes that it has, as a bitmap.
    pub(super) fn pushes(self) -> u16 {
        let has = |op: &usize| self.count(*op) > 0;
        (0..PROCESS_COUNT * OP_COUNT_MAX).filter(has).fold(0, |pushes, op| pushes | 1 << op)
    }

    /// Returns a push that is in twice.
    pub(super) fn doubled(self) -> Option<usize> {
        (0..PROCESS_COUNT * OP_COUNT_MAX).find(|&op| self.count(op) > 1)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = self.0 >> Self::SET_SHIFT;
        let mut terms = Vec::new();
        if set > 0 {
            terms.push(op_name(set as usize - 1));
        }
        for op in 0..PROCESS_COUNT * OP_COUNT_MAX {
            match self.count(op) {
                0 => {}
                1 => terms.push(op_name(op)),
                count => terms.push(format!("{count} x {}", op_name(op))),
            }
        }
        if terms.is_empty() { write!(f, "nothing") } else { write!(f, "{}", terms.join(" + ")) }
    }
}

/// Names an operation by its process and its place in that process's order.
pub(super) fn op_name(op: usize) -> String {
    format!("p{}.{}", op / OP_COUNT_MAX, op % OP_COUNT_MAX)
}

/// One access: a run of operations of one process on one key, in the phases set, add, pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Access {
    /// Its number.
    pub number: Number,
    /// The operations in it, by phase, as bitmaps over the process's operations on the key.
    pub sets: u8,
    #[expect(missing_docs, reason = "as above")]
    pub adds: u8,
    #[expect(missing_docs, reason = "as above")]
    pub pulls: u8,
    /// Whether it takes the row itself from one who does not intend to use it.
    pub take: bool,
}

impl Access {
    pub(super) fn apply(self, process: u8, value: &mut Value) {
        for (index, op) in ops_of(process) {
            if self.sets >> index & 1 == 1 {
                *value = Value::set(op);
            }
        }
        for (index, op) in ops_of(process) {
            if self.adds >> index & 1 == 1 {
                value.add(op);
            }
        }
    }

    pub(super) const fn contains(self, index: usize) -> bool {
        (self.sets | self.adds | self.pulls) >> index & 1 == 1
    }
}

/// Returns the places and the names of all operations that `process` can have on a key.
pub(super) fn ops_of(process: u8) -> impl Iterator<Item = (usize, usize)> {
    (0..OP_COUNT_MAX).map(move |index| (index, usize::from(process) * OP_COUNT_MAX + index))
}

/// What a row is, wherever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[expect(missing_docs, reason = "the fields are the words of the protocol")]
pub struct Row {
    pub epoch: Epoch,
    pub value: Value,
    /// Per process and lane the last number that it was applied for.
    pub last: [[Number; LANE_COUNT]; PROCESS_COUNT],
    /// Ghost: the life of the last restore that it comes from.
    pub lineage: u8,
}

/// A row on its way, as its giver keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[expect(missing_docs, reason = "the fields are the words of the protocol")]
pub struct Kept {
    pub to: u8,
    /// The number of the localize that it answers.
    pub localize: Number,
    pub row: Row,
    /// Per process the number below which nothing is open any more.
    pub floors: [Number; PROCESS_COUNT],
}

/// What a process says about one key after a restart of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Claim {
    /// Counts the claims of a process in a life.
    pub counter: u8,
    /// The epoch of the row that it holds, or none.
    pub held: Epoch,
    /// The copies that it keeps: to whom, of which epoch.
    pub kept: List<(u8, Epoch), KEPT_COUNT_MAX>,
}

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum To {
    /// The box, from a process that has joined this life of the directory.
    Box {
        /// That life.
        life: u8,
        /// RETRANSMIT.
        repeat: bool,
    },
    /// A process.
    Process(u8),
}

/// A frame about one key. Frames with many keys are as many of these: the network may then lose
/// and delay each alone, which a datagram cannot, and never less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the fields are the words of the protocol")]
pub enum Frame {
    Access {
        to: To,
        from: u8,
        access: Access,
        low: Number,
    },
    /// With the row's lineage (a ghost).
    Answer {
        to: u8,
        from: u8,
        number: Number,
        value: Value,
        lineage: u8,
    },
    Localize {
        to: To,
        from: u8,
        number: Number,
    },
    Row {
        from: u8,
        kept: Kept,
    },
    /// From the taker through the box, with its claim of now.
    AckAtBox {
        life: u8,
        from: u8,
        giver: u8,
        epoch: Epoch,
        claim: Claim,
    },
    Ack {
        to: u8,
        epoch: Epoch,
    },
    Claim {
        life: u8,
        from: u8,
        claim: Claim,
    },
    Stale {
        to: u8,
        number: Number,
    },
    /// The box asks the home of the key for a row from the checkpoint.
    Restore {
        to: u8,
        life: u8,
        row: Row,
    },
    /// The box says that a copy to a dead process is the row now, or that it is void.
    TakeBack {
        to: u8,
        life: u8,
        epoch: Epoch,
    },
    Void {
        to: u8,
        epoch: Epoch,
    },
    /// Any frame of another key, for what it says of its sender's open numbers.
    Low {
        to: u8,
        from: u8,
        low: Number,
    },
}

impl Frame {
    /// Returns the process that it goes to; none is the box.
    pub(super) const fn receiver(&self) -> Option<u8> {
        match *self {
            Self::Access { to: To::Process(to), .. }
            | Self::Localize { to: To::Process(to), .. }
            | Self::Answer { to, .. }
            | Self::Row { kept: Kept { to, .. }, .. }
            | Self::Ack { to, .. }
            | Self::Stale { to, .. }
            | Self::Restore { to, .. }
            | Self::TakeBack { to, .. }
            | Self::Void { to, .. }
            | Self::Low { to, .. } => Some(to),
            Self::Access { .. }
            | Self::Localize { .. }
            | Self::AckAtBox { .. }
            | Self::Claim { .. } => None,
        }
    }
}

/// A frame and the key that it speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the fields are the words of the protocol")]
pub struct Message {
    pub key: u8,
    pub frame: Frame,
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.life(), self.count())
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.birth(), self.0 & 15)
    }
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Box { repeat: false, .. } => write!(f, "box"),
            Self::Box { repeat: true, .. } => write!(f, "box (RETRANSMIT)"),
            Self::Process(process) => write!(f, "p{process}"),
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "claim {}:", self.counter)?;
        if self.held.is_some() {
            write!(f, " holds {}", self.held)?;
        }
        for (to, epoch) in self.kept.iter() {
            write!(f, " copy {epoch} to p{to}")?;
        }
        if !self.held.is_some() && self.kept.is_empty() { write!(f, " nothing") } else { Ok(()) }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key;
        match self.frame {
            Frame::Access { to, from, access, .. } => {
                let name = if access.take { "take" } else { "access" };
                write!(f, "{to} gets p{from}'s {name} {} to k{key}", access.number)
            }
            Frame::Answer { to, from, number, value, .. } => {
                write!(f, "p{to} gets the answer to {number} for k{key} from p{from}: {value}")
            }
            Frame::Localize { to, from, number } => {
                write!(f, "{to} gets p{from}'s localize {number} of k{key}")
            }
            Frame::Row { from, kept } => {
                let Kept { to, localize, row, .. } = kept;
                write!(f, "p{to} gets row k{key} of epoch {} from p{from}", row.epoch)?;
                write!(f, " for its localize {localize}: {}", row.value)
            }
            Frame::AckAtBox { from, epoch, claim, .. } => {
                write!(f, "box gets p{from}'s ack of k{key}, epoch {epoch}, {claim}")
            }
            Frame::Ack { to, epoch } => write!(f, "p{to} gets the ack of k{key}, epoch {epoch}"),
            Frame::Claim { life, from, claim } => {
                write!(f, "box gets p{from}'s claim of k{key} in life {life}, {claim}")
            }
            Frame::Stale { to, number } => write!(f, "p{to} gets STALE for {number} of k{key}"),
            Frame::Restore { to, life, .. } => {
                write!(f, "p{to} is told in life {life} that nobody owns k{key}")
            }
            Frame::TakeBack { to, epoch, .. } => {
                write!(f, "p{to} is told to take k{key} of epoch {epoch} back")
            }
            Frame::Void { to, epoch } => {
                write!(f, "p{to} is told that its copy of k{key} of epoch {epoch} is void")
            }
            Frame::Low { to, from, low } => {
                write!(f, "p{to} learns that p{from} has nothing open below {low}")
            }
        }
    }
}
