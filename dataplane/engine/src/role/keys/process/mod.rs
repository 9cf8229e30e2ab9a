//! A process of a table: it holds rows, asks for others, gives and takes them (PROTOCOL section
//! 13).
//!
//! | file | decides |
//! | --- | --- |
//! | `calls.rs` | what becomes of the application's operations |
//! | `copies.rs` | intents and clocks: which rows come, and of which there are copies |
//! | `owner.rs` | what others get: answers, rows, or a way on |
//! | `moves.rs` | what happens when a row comes |
//! | `claims.rs`, `blocks.rs` | what the box is told after it has begun a life |
//! | `receive.rs` | which frame is what, and from whom |
//! | `transmit.rs` | what leaves when, and again |
//! | `join.rs` | the handshake |
//! | `queue.rs`, `state.rs` | memory |
//!
//! Per key and lane there is at most one access in flight, one phase `set? add* pull*`; what is
//! called meanwhile waits and merges. With one lane, a key's operations keep their order. An
//! operation on a row that is here runs at once. Invariants: those of [`super`]; numbers of one
//! process that concern one key only grow.

mod blocks;
mod calls;
mod claims;
mod copies;
mod join;
mod moves;
mod owner;
mod queue;
mod receive;
mod state;
mod transmit;

use core::fmt;

use weft_wire::frame::UdpAddr;
use weft_wire::keys::{Number, RowEpoch};
use weft_wire::{Members, Nanos};

use self::state::Core;
use super::config::{ProcessConfig, TableConfig, TableError};
use super::frames::Outbox;
use super::store::{Slot, Store};
use crate::drops::{DropCounters, DropReason};

/// Who hears what has happened.
pub trait Sink: Outbox {
    /// A call is done for this key; a pull has its value. While this runs the key is locked.
    fn done(&mut self, call: u64, key: u64, value: Option<&[f32]>);

    /// A row has come: from another process, back from a copy, or from a checkpoint.
    fn arrived(&mut self, key: u64, slot: &Slot<'_>) {
        let _ = (key, slot);
    }

    /// Nobody has this row any more, and this process is to restore it: [`Process::restore`]. What
    /// was pushed since the checkpoint is lost.
    fn lost(&mut self, key: u64);
}

/// An operation on a row.
#[derive(Clone, Copy, Debug)]
pub enum Op<'a> {
    /// Sets the row.
    Set(&'a [f32]),
    /// Adds to it.
    Add(&'a [f32]),
    /// Asks for it.
    Pull,
}

/// Whether a process belongs to its table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Presence {
    /// It joins a life, for the first time or again.
    Joining,
    /// It lives in one.
    Present,
    /// It was declared dead, or another life of it has come: it can do nothing any more.
    Lost,
}

/// Why a call was refused. Nothing of it has happened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CallError {
    /// The table has no such key.
    UnknownKey(u64),
    /// A value is not as long as the table's rows.
    RowLen {
        /// Elements of the value.
        given: usize,
        /// Elements of a row.
        row_len: u16,
    },
    /// Too much waits for this key, or for any: wait for something and call again.
    Full,
    /// The process was declared dead.
    Lost,
    /// Nobody has asked to restore this row, or it is restored.
    NotLost(u64),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey(key) => {
                write!(f, "key {key} is not in the table: its range is in the job's configuration")
            }
            Self::RowLen { given, row_len } => {
                write!(
                    f,
                    "a value of {given} elements was given: rows of this table have {row_len}"
                )
            }
            Self::Full => f.write_str("too many operations wait: wait for some and call again"),
            Self::Lost => f.write_str("this process was declared dead: restart the job"),
            Self::NotLost(key) => write!(f, "key {key} cannot be restored: it is not lost"),
        }
    }
}

impl core::error::Error for CallError {}

/// What happened, counted by key where a frame has many.
#[derive(Clone, Debug, Default)]
pub struct ProcessStats {
    /// Frames that were refused.
    pub drops: DropCounters,
    /// Operations that ran at once, on a row that was here.
    pub local: u64,
    /// Operations on rows elsewhere that nobody waited for: pulls of copies, adds that leave later.
    pub copied: u64,
    /// Copies that came.
    pub copies: u64,
    /// Operations that had to wait for a row or an answer.
    pub remote: u64,
    /// Accesses that left, without repeats.
    pub accesses: u64,
    /// Localizes that left, without repeats.
    pub localizes: u64,
    /// Rows that came and were taken.
    pub rows_taken: u64,
    /// Rows that were given away.
    pub rows_given: u64,
    /// Accesses of others that were run here.
    pub served: u64,
    /// Accesses and localizes that were passed on.
    pub passed_on: u64,
    /// Accesses, localizes and rows that were sent again.
    pub repeats: u64,
    /// Numbers that were answered STALE.
    pub stale: u64,
    /// WAITs that came.
    pub waits: u64,
    /// WAITs that were sent because something was full.
    pub full: u64,
    /// WAITs that were sent because a frame went round too often.
    pub hops_exceeded: u64,
    /// Launches that had to wait because too many numbers were open.
    pub numbers_full: u64,
    /// Rows that were restored from a checkpoint, or taken back.
    pub restored: u64,
    /// Lives that this process has joined.
    pub lives: u64,
}

/// One process of a table, whose rows lie in `S`.
#[derive(Debug)]
pub struct Process<S> {
    store: S,
    core: Core,
}

impl<S: Store> Process<S> {
    /// A process that joins. `life` is random per life of it, not 0; the store has room for all
    /// rows and holds none.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn new(
        config: &ProcessConfig<'_>,
        store: S,
        life: u64,
        now: Nanos,
    ) -> Result<Self, TableError> {
        config.table.check_in(config.mode)?;
        if config.processes.len() != usize::from(config.table.processes)
            || config.me >= config.table.processes
        {
            return Err(TableError::Addresses);
        }
        Ok(Self { store, core: Core::new(config, life, now) })
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &TableConfig {
        &self.core.table
    }

    /// Whether it belongs to the table.
    #[must_use]
    pub fn presence(&self) -> Presence {
        self.core.presence()
    }

    /// What happened.
    #[must_use]
    pub fn stats(&self) -> &ProcessStats {
        &self.core.stats
    }

    /// The life that it has joined; 0: none.
    #[must_use]
    pub fn life(&self) -> u16 {
        self.core.life
    }

    /// Who lives in it.
    #[must_use]
    pub fn living(&self) -> Members {
        self.core.living
    }

    /// Which run of the table this is: the same for all processes that joined its first life.
    #[must_use]
    pub fn run(&self) -> u64 {
        self.core.run
    }

    /// The newest copy that is kept of a row which is on its way to another process, if there is
    /// one: its epoch at the taker, value and last numbers.
    pub fn with_kept(&mut self, key: u64, work: impl FnOnce(RowEpoch, &[f32], &[Number])) {
        let Some(index) = self.core.table.index(key) else { return };
        let newest = self.core.kept_of(index).next();
        if let Some((place, kept)) = newest {
            let (value, lasts) = self.core.kept_row(place);
            work(kept.epoch, value, lasts);
        }
    }

    /// True when nothing is asked for and no copy is kept.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.core.is_idle()
    }

    /// The row of a key as it is here, for checkpoints and tests.
    ///
    /// # Errors
    /// [`CallError::UnknownKey`].
    pub fn with_row<R>(
        &mut self,
        key: u64,
        work: impl FnOnce(Slot<'_>) -> R,
    ) -> Result<R, CallError> {
        let index = self.core.table.index(key).ok_or(CallError::UnknownKey(key))?;
        Ok(self.store.with(index, work))
    }

    /// Calls an operation. Its end is told to `sink` under the name `call`, at once when the row
    /// is here. What leaves does so with [`Process::flush`], many keys together.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn call(
        &mut self,
        key: u64,
        op: Op<'_>,
        call: u64,
        sink: &mut impl Sink,
    ) -> Result<(), CallError> {
        let index = self.core.check_call(key, &op)?;
        let Self { store, core } = self;
        store.with(index, |mut slot| core.call(&mut slot, index, op, call, sink))
    }

    /// Asks for the row itself. Its arrival is told to `sink`, at once when it is here.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn localize(&mut self, key: u64, call: u64, sink: &mut impl Sink) -> Result<(), CallError> {
        let index = self.core.check_call(key, &Op::Pull)?;
        let Self { store, core } = self;
        store.with(index, |slot| core.localize(&slot, index, call, sink))
    }

    /// Sends what was called.
    pub fn flush(&mut self, now: Nanos, sink: &mut impl Sink) {
        self.core.flush(now, sink);
    }

    /// Restores a row that [`Sink::lost`] has named, from a checkpoint: its value and its last
    /// numbers, by process. Without a checkpoint: zeros and none.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn restore(
        &mut self,
        now: Nanos,
        key: u64,
        value: &[f32],
        lasts: &[Number],
        sink: &mut impl Sink,
    ) -> Result<(), CallError> {
        let index = self.core.check_call(key, &Op::Set(value))?;
        let Self { store, core } = self;
        store.with(index, |mut slot| core.restore(&mut slot, index, value, lasts, sink))?;
        self.core.flush(now, sink);
        Ok(())
    }

    /// When [`Process::poll`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        self.core.poll_timeout()
    }

    /// Sends what is due.
    pub fn poll(&mut self, now: Nanos, sink: &mut impl Sink) {
        self.core.poll(now, sink);
        self.send_claims(now, sink);
        self.core.flush(now, sink);
    }

    /// Takes a datagram from `source`.
    ///
    /// # Errors
    /// Why it was refused; that is counted, and nothing has changed.
    pub fn handle_datagram(
        &mut self,
        now: Nanos,
        source: UdpAddr,
        datagram: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let result = self.take_datagram(now, source, datagram, sink);
        self.core.flush(now, sink);
        result
    }

    /// As [`Process::handle_datagram`], one of several that came together: what follows from them
    /// leaves with [`Process::flush`], many keys in a frame, which comes before the next call.
    ///
    /// # Errors
    /// As before.
    pub fn take_datagram(
        &mut self,
        now: Nanos,
        source: UdpAddr,
        datagram: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let result = self.take(now, source, datagram, sink);
        if let Err(reason) = result {
            self.core.stats.drops.count(reason);
        }
        result
    }
}
