//! What a script says.

use weft_control::{PushConfig, RowConfig};
use weft_wire::header::{ElementType, Flags, Kind, Operation, Outcome};
use weft_wire::hello::Phase;
use weft_wire::{GroupId, JobId, Members, Nanos};

use super::target::Kind as TargetKind;

/// A scenario.
#[derive(Clone, Debug)]
pub struct Script {
    /// The file, as its errors name it.
    pub file: String,
    /// Its first comment.
    pub title: String,
    pub(super) leases: Vec<LeaseDecl>,
    pub(super) lines: Vec<Line>,
    /// Targets that it is for; all, if it names none.
    pub(super) only: Vec<(String, String)>,
    pub(super) peers: Vec<Peer>,
}

impl Script {
    /// Why it is not for a kind of target, if it is not.
    #[must_use]
    pub fn left_out(&self, kind: TargetKind) -> Option<&str> {
        let (_, reason) = self.only.first()?;
        let is_named = self.only.iter().any(|(name, _)| name == kind.name());
        (!is_named).then_some(reason)
    }
}

/// A lease or push job, and how its peers are named.
#[derive(Clone, Debug)]
pub(super) struct LeaseDecl {
    pub(super) name: Option<String>,
    pub(super) kind: LeaseKind,
}

#[derive(Clone, Debug)]
pub(super) enum LeaseKind {
    Row(RowConfig),
    Push(PushConfig),
}

impl LeaseDecl {
    pub(super) fn job(&self) -> JobId {
        match &self.kind {
            LeaseKind::Row(row) => row.job,
            LeaseKind::Push(push) => push.job,
        }
    }

    pub(super) fn elements(&self) -> u16 {
        match &self.kind {
            LeaseKind::Row(row) => row.elements,
            LeaseKind::Push(push) => push.elements,
        }
    }
}

/// Somebody at a port of the box.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Peer {
    pub(super) name: String,
    pub(super) lease: usize,
    pub(super) part: Part,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Part {
    Member(u8),
    Server,
    Replica,
}

pub(super) type PeerId = usize;

#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) number: usize,
    /// Time since the beginning.
    pub(super) at: Nanos,
    pub(super) step: Step,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Join {
        peers: Vec<PeerId>,
        holding: Option<Vec<u32>>,
    },
    Group(GroupDecl),
    Remove {
        job: JobId,
        group: GroupId,
    },
    Send {
        from: PeerId,
        what: Sent,
    },
    /// One of these kinds.
    Expect {
        to: PeerId,
        kinds: Vec<Word>,
        fields: Box<Fields>,
    },
    Silent,
    /// Counters are counted from here.
    Mark,
    Drops(Vec<(String, u64)>),
    Transitions(Vec<(String, u64)>),
    Bank {
        lease: usize,
        row: u16,
        chunk: u32,
        state: String,
    },
    Restart,
    Forget(PeerId),
    /// It takes no part in handshakes any more.
    Deaf(PeerId),
}

#[derive(Clone, Debug)]
pub(super) enum Sent {
    Frame { kind: Word, fields: Box<Fields> },
    Raw(Vec<u8>),
}

/// A group that a controller installs.
#[derive(Clone, Debug)]
pub(super) struct GroupDecl {
    pub(super) lease: usize,
    pub(super) group: GroupId,
    pub(super) members: Members,
    pub(super) chunks: u32,
    pub(super) exponent: i8,
    pub(super) replicate: bool,
    pub(super) refused: bool,
}

/// What a frame is, in one word.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Word {
    Data(Kind, Outcome),
    Hello(Phase),
}

/// Fields that a line names; the others are as a good frame has them.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    pub(super) chunk: Option<u32>,
    pub(super) members: Option<Members>,
    pub(super) values: Option<Vec<i32>>,
    /// The values are those that make the checksum of the answer 0.
    pub(super) balances: bool,
    pub(super) flags: Flags,
    pub(super) outcome: Option<u8>,
    pub(super) cookie: Option<CookieOf>,
    pub(super) job: Option<u16>,
    pub(super) row: Option<u16>,
    pub(super) generation: Option<Generation>,
    pub(super) element_type: Option<ElementType>,
    pub(super) operation: Option<Operation>,
    pub(super) exponent: Option<i8>,
    pub(super) count: Option<u16>,
    pub(super) version: Option<u8>,
    pub(super) kind: Option<u8>,
    pub(super) source: Option<Source>,
    pub(super) udp_port: Option<u16>,
    pub(super) checksum: Checksum,
    pub(super) truncate: Option<usize>,
    pub(super) cut: Option<usize>,
    pub(super) padded: bool,
    pub(super) congestion: bool,
    pub(super) type_op: Option<u8>,
    pub(super) life: Option<u64>,
    pub(super) session: Option<u64>,
    pub(super) token: Option<u64>,
    pub(super) reason: Option<u8>,
    pub(super) holding: Option<Vec<u32>>,
    pub(super) wants: Option<Vec<u32>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CookieOf {
    Up(PeerId),
    Down(PeerId),
    /// Of another epoch than the peer's.
    Stale,
    /// Of the peer's epoch, and not the peer's.
    Wrong,
    /// What the peer had before its last handshake.
    Old,
    /// What the last frame from there carried.
    Echoed,
    /// What the last frame to there carried.
    Got,
    Number(u32),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Generation {
    Number(u16),
    /// Another than the group's.
    Other,
    /// That of before the last handshake.
    Old,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Source {
    Peer(PeerId),
    Port(u16),
    Address(std::net::SocketAddrV4),
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Checksum {
    #[default]
    Good,
    Wrong,
    Missing,
    WrongIp,
    /// The sum comes to 0, which is sent as 0xffff.
    Zero,
}
