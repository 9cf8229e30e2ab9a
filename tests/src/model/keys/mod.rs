//! Section 13: rows that move between processes, and the box that knows where they are.
//!
//! Three processes and one or two keys. A process calls set, push, pull and localize whenever the
//! model's budget allows, without waiting for what it called before (a synchronous caller is one
//! that happens to wait). The model checks:
//!
//! - the history of each key is sequentially consistent ([`history`]), the row at the end included,
//!   so each push and set counts exactly once; where a process may have several accesses to a key
//!   in flight, in lanes, only operations that were done before another was called come before it;
//! - no push is in a row twice;
//! - at most one living process holds the row, and while nobody died the row is never lost;
//! - from every state a state is reachable in which all that the living called is done, and no copy
//!   is kept any more.
//!
//! Faults: a network that does what it likes ([`super::network`]), restarts of the box, processes
//! that are declared dead, in fact dead or not. `turn`, `owner` (a process) and [`directory`] (the
//! box) are the rules, [`world`] is what happens to them, `check` what must hold.

mod check;
pub mod directory;
mod faults;
pub mod history;
pub mod list;
pub mod message;
mod owner;
pub mod process;
pub mod tables;
mod turn;
pub mod world;

use std::fmt;

use self::message::{Message, Number};
use self::process::Kind;
use self::tables::Tables;

/// The protocol as specified, or with one rule broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// PROTOCOL.md as it is.
    AsSpecified,
    /// An access is sent while one to the same key is in flight.
    TwoInFlight,
    /// The row travels without its last numbers.
    DedupLeftBehind,
    /// The row travels without its giver's floors.
    FloorsLeftBehind,
    /// A localize has no number: any copy of it moves the row.
    LocalizeWithoutNumber,
    /// A process may give a localize up.
    LocalizeGivenUp,
    /// The giver keeps no copy.
    FreedAtSending,
    /// The taker may acknowledge a row before it stores it.
    AckBeforeStoring,
    /// A kept copy answers pulls.
    KeptCopyServes,
    /// A row that arrives meets the queue before the access in flight.
    QueueBeforeFlight,
    /// A localize that waited for the row is entered in it, and not served.
    NotedIsForgotten,
    /// The box sends a RETRANSMIT to the last localizer.
    RepeatsToNext,
    /// The box forwards each localize once.
    LocalizeForwardedOnce,
    /// The box believes the last that it heard, not the highest epoch.
    LastWord,
    /// The box says that nobody owns a key before all have claimed.
    NobodyOwnsEarly,
    /// Claims do not name the copies that are kept.
    ClaimsWithoutKept,
    /// An older claim replaces a newer one.
    ClaimsWithoutCounter,
    /// The taker acknowledges to the giver, not through the box.
    AckPastBox,
    /// The box takes claims that were made in another life.
    ClaimsOfAnyLife,
    /// The box takes a kept copy for a sign that its receiver has the row.
    KeptIsOwnership,
    /// Frames of the dead are taken.
    NotFenced,
    /// A restored row takes numbers of any life.
    RestoredTakesAll,
    /// An access that was answered STALE is sent anew while its localize is open.
    RenumberAboveLocalize,
    /// A copy that is taken back takes numbers of any life.
    TakenBackTakesAll,
    /// A row of a later life answers STALE before it looks at its last numbers.
    StaleBeforeLast,
    /// The home restores a key as often as it is told to.
    RestoredAgain,
    /// The checkpoint has no last numbers.
    CheckpointWithoutNumbers,
    /// What is open is told as one number for all directories.
    OneLow,
    /// A take that the holder does not grant is not entered in the row.
    RefusalNotEntered,
    /// A process takes a row for its localize alone, not for an access that takes.
    TakeForgotten,
    /// A copy is what the answer brings, without the own operations that are not in it.
    CopyWithoutOwn,
    /// A copy is read while earlier pulls wait for an answer.
    CopyPastPulls,
    /// A copy is as new as the clock at which it comes.
    CopyOfArrival,
    /// A copy is read when the key is not meant to be used any more.
    CopyOutlivesIntent,
    /// A claim of one key counts as a claim of its directory's whole range.
    PartIsWhole,
    /// The row has one last number of a process, though it has accesses in several lanes.
    OneLastNumber,
    /// Accesses of several lanes are held to the order of their calls.
    LanesInOrder,
    /// Of an access that finds no room the number is queued.
    FullIsEntered,
    /// Who has too many numbers open gives one of them again.
    OpenNumberReused,
    /// Numbers begin anew when they are used up.
    NumbersWrap,
    /// The answer for one key of a batch counts for all.
    AnswerIsWhole,
    /// A process that returns without memory goes on in the life in which it was known.
    ReturnsAsKnown,
    /// It lives in the next life, among the others.
    ReturnIsWelcome,
}

/// How often something may happen, and by whom (a bitmap).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Budget {
    #[expect(missing_docs, reason = "said above")]
    pub count: u8,
    #[expect(missing_docs, reason = "said above")]
    pub by: u8,
}

/// A table of `K` keys: what happens to it, and its rules.
#[derive(Debug, Clone)]
pub struct Keys<const K: usize> {
    /// How many processes there are.
    pub processes: u8,
    /// Calls of set, push and pull, on any key.
    pub sets: Budget,
    #[expect(missing_docs, reason = "as above")]
    pub pushes: Budget,
    #[expect(missing_docs, reason = "as above")]
    pub pulls: Budget,
    /// Calls of localize, on any key.
    pub localizes: Budget,
    /// How often a process says that it is about to use the keys, and that a clock of it begins.
    pub intents: Budget,
    #[expect(missing_docs, reason = "as above")]
    pub clocks: Budget,
    /// Clocks that a copy may be older than the one in which it is read.
    pub staleness: u8,
    /// Calls that name all keys at once.
    pub batches: bool,
    /// Boxes: one, or one for each key.
    pub directories: u8,
    /// How often a box restarts.
    pub restart_count_max: u8,
    /// How often a row is written to the checkpoint; before that it has the row of the start.
    pub checkpoint_count_max: u8,
    /// How many processes are declared dead.
    pub deaths: Budget,
    /// Whether those go on as if nothing had happened.
    pub zombies: bool,
    /// Whether accesses may also go to any process at once, as a location cache would have it.
    pub caches: bool,
    /// Whether frames of other keys tell what is open, at any time.
    pub low_frames: bool,
    /// Accesses to one key that a process may have in flight.
    pub in_flight: u8,
    /// Copies that a process may keep of a key.
    pub kept_count_max: usize,
    /// Accesses of others that may wait at a process for one row.
    pub remote_count_max: usize,
    /// Numbers that a process may have open.
    pub open_count_max: usize,
    /// The rules in force.
    pub rules: Rules,
    /// What the search has met, numbered.
    pub tables: Tables<K>,
}

/// One step of a table.
#[derive(Debug, Clone, Copy)]
pub enum Action {
    /// A process calls an operation on a key.
    Call(u8, u8, Kind),
    /// A process calls an operation on all keys.
    CallAll(u8, Kind),
    /// A process calls localize.
    Localize(u8, u8),
    /// A process calls localize for all keys.
    LocalizeAll(u8),
    /// A process says that it is about to use a key.
    Intent(u8, u8),
    /// It does not mean to use it any more.
    EndIntent(u8, u8),
    /// A clock of a process begins.
    Clock(u8),
    /// What found no number at a process tries again.
    Again(u8, u8),
    /// A process waits for a row no longer.
    GiveUp(u8, u8),
    /// A frame arrives.
    Arrives(Message),
    /// A row arrives and is acknowledged, but not stored.
    AckedOnly(Message),
    /// A process learns of the life of a key's box and joins it.
    Join(u8, u8),
    /// The box of a key loses its state.
    Restart(u8),
    /// The row of a key is written to the checkpoint.
    Checkpoint(u8),
    /// A process is declared dead, which begins a life without it.
    Declare(u8),
}

impl<const K: usize> Keys<K> {
    /// Returns the box of `key`, by the first of its keys.
    pub(super) const fn directory_of(&self, key: u8) -> u8 {
        if self.directories > 1 { key } else { 0 }
    }

    /// The lane of a number: in each, numbers grow, and one access is in flight.
    pub(super) fn lane(&self, number: Number) -> usize {
        usize::from(number.count() % self.in_flight)
    }

    /// The place of the floors that speak of `key`.
    pub(super) fn floor_index(&self, key: u8) -> usize {
        match self.rules {
            Rules::OneLow => 0,
            _ => usize::from(self.directory_of(key)),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Set => "set",
            Self::Push => "push",
            Self::Pull => "pull",
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(process, key, kind) => write!(f, "p{process} calls {kind} on k{key}"),
            Self::CallAll(process, kind) => write!(f, "p{process} calls {kind} on all keys"),
            Self::Localize(process, key) => write!(f, "p{process} calls localize on k{key}"),
            Self::LocalizeAll(process) => write!(f, "p{process} calls localize on all keys"),
            Self::Intent(process, key) => write!(f, "p{process} means to use k{key}"),
            Self::EndIntent(process, key) => write!(f, "p{process} means to use k{key} no more"),
            Self::Clock(process) => write!(f, "a clock of p{process} begins"),
            Self::Again(process, key) => write!(f, "p{process} tries again for k{key}"),
            Self::GiveUp(process, key) => write!(f, "p{process} gives its localize of k{key} up"),
            Self::Arrives(message) => write!(f, "{message}"),
            Self::AckedOnly(message) => write!(f, "{message}, which it does not store yet"),
            Self::Join(process, key) => write!(f, "p{process} joins the new life of k{key}'s box"),
            Self::Restart(key) => write!(f, "the box of k{key} restarts"),
            Self::Checkpoint(key) => write!(f, "k{key} is written to the checkpoint"),
            Self::Declare(process) => write!(f, "p{process} is declared dead"),
        }
    }
}
