//! Why a session of keys could not be made, or a call of it failed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::parts::TableFileError;
use weft_engine::role::keys::{CallError, TableError};

use crate::NarrowPath;
use crate::error::{Error, from_port_error};

/// Why a call failed. What of it concerned other keys may have happened.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The configuration cannot work.
    #[error("configuration: `{field}` {problem}")]
    Config {
        /// The field.
        field: &'static str,
        /// What is wrong, and what would be right.
        problem: &'static str,
    },
    /// There can be no such table.
    #[error("configuration: {0}")]
    Table(TableError),
    /// The port could not be opened.
    #[error(transparent)]
    Open(Arc<Error>),
    /// The operating system gave no random seed.
    #[error("could not get a random seed from the operating system: {0}")]
    Random(getrandom::Error),
    /// The session's thread could not be started.
    #[error("could not start the session's thread: {0}")]
    Thread(Arc<std::io::Error>),
    /// The table's first life did not begin.
    #[error(
        "could not join the table within {waited:?}: is the home box at {home} there, does it have \
         this table with these processes, and have all of them come, with the same row_len and \
         in_flight?"
    )]
    NoHome {
        /// Where it should be.
        home: SocketAddr,
        /// How long it had.
        waited: Duration,
    },
    /// The engine refused the call.
    #[error("{0}")]
    Call(CallError),
    /// As many values are needed as the keys have elements.
    #[error("{given} values were given for {keys} keys of {row_len} elements each")]
    Values {
        /// Values that there are.
        given: usize,
        /// Keys that there are.
        keys: usize,
        /// Elements of a row.
        row_len: u16,
    },
    /// Too much waits: these keys were not taken in time, all others of the call were.
    #[error(
        "too many operations wait, and there was no room for {} within {waited:?}: wait for some \
         and call again", Keys(.keys)
    )]
    Full {
        /// What was not taken.
        keys: Vec<u64>,
        /// How long was waited.
        waited: Duration,
    },
    /// Nobody answered for these keys in time. What was asked for may happen yet.
    #[error(
        "no answer for {} within {waited:?}: a process or the home box is gone, or the path to a \
         process does not carry the table's `mtu`", Keys(.keys)
    )]
    Unanswered {
        /// What was not answered.
        keys: Vec<u64>,
        /// How long was waited.
        waited: Duration,
    },
    /// What was pushed in earlier clocks is not all at its rows.
    #[error(
        "{adds} sums that were pushed in earlier clocks are not at their rows after {waited:?}: a \
         process or the home box is gone"
    )]
    Unsettled {
        /// Sums that are not there.
        adds: u32,
        /// How long was waited.
        waited: Duration,
    },
    /// The process that had these rows is gone, and they with it: the job cannot go on.
    #[error("the rows of {} are lost with the process that had them: restart the job", Keys(.keys))]
    RowsLost {
        /// The keys.
        keys: Vec<u64>,
    },
    /// The rows of a process that died were to come back from a checkpoint, and could not.
    #[error("the rows of {} are lost with the process that had them: {problem}", Keys(.keys))]
    NotRestored {
        /// The keys.
        keys: Vec<u64>,
        /// Why.
        problem: Arc<TableFileError>,
    },
    /// A checkpoint of the table could not be kept or read.
    #[error(transparent)]
    Checkpoint(#[from] Arc<TableFileError>),
    /// Not all processes have kept their part of a round: one has died, or did not begin it.
    #[error(
        "round {round} of the table's checkpoint is not whole after {waited:?}: have all living \
         processes keep the next one"
    )]
    RoundOpen {
        /// Its number.
        round: u64,
        /// How long was waited.
        waited: Duration,
    },
    /// The path to the home box carries the table's frames no more, or never did.
    #[error("the session ended: {0}")]
    Narrow(NarrowPath),
    /// Nobody answered, and the port knows what may have kept frames from passing.
    #[error("{error}; {complaint}")]
    Link {
        /// What was not answered.
        error: Box<Self>,
        /// What the port knows.
        complaint: String,
    },
    /// The port will deliver nothing any more.
    #[error("the port is closed: no frame can arrive any more")]
    PortClosed,
}

impl From<CallError> for KeyError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<TableFileError> for KeyError {
    fn from(error: TableFileError) -> Self {
        Self::Checkpoint(Arc::new(error))
    }
}

/// A few keys, and how many more.
struct Keys<'a>(&'a [u64]);

impl std::fmt::Display for Keys<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = &self.0[..self.0.len().min(SHOWN_MAX)];
        f.write_str(if self.0.len() == 1 { "key" } else { "keys" })?;
        for (place, key) in shown.iter().enumerate() {
            write!(f, "{}{key}", if place == 0 { " " } else { ", " })?;
        }
        match self.0.len() - shown.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Keys that a message shows.
const SHOWN_MAX: usize = 8;

from_port_error!(KeyError);
