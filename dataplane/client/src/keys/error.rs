//! Why a session of keys could not be made or go on.

use std::sync::Arc;
use std::time::Duration;

use weft_engine::role::keys::{CallError, TableError};

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The table cannot be.
    #[error("table: {0}")]
    Table(TableError),
    /// The UDP port could not be opened.
    #[error("could not open the port for keys: choose a free local address")]
    Port(#[source] Arc<std::io::Error>),
    /// The operating system gave no random life, or no thread.
    #[error("could not get {what} from the operating system: {cause}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What it said.
        cause: String,
    },
    /// A key, or the length of a value, is not the table's; or this process was declared dead.
    #[error("{0}")]
    Call(CallError),
    /// Not as many elements as the keys have.
    #[error("{given} elements were given for {keys} keys: rows have {row_len} elements each")]
    Elements {
        /// Elements that were given.
        given: usize,
        /// Keys.
        keys: usize,
        /// Elements of a row.
        row_len: u16,
    },
    /// Nothing came for this long.
    #[error("no answer about key {key} within {timeout:?}: is the box of the table running?")]
    Silent {
        /// The first key that is open.
        key: u64,
        /// How long it was waited for.
        timeout: Duration,
    },
    /// The box did not let this process join.
    #[error("the table could not be joined within {0:?}: are its box and all processes running?")]
    NotJoined(Duration),
    /// A process died, and its rows with it.
    #[error(
        "rows are lost with a process that died, key {first} and {others} others: restart the job \
         from a checkpoint"
    )]
    Lost {
        /// The first of them.
        first: u64,
        /// How many more are known of.
        others: usize,
    },
    /// The session has been closed.
    #[error("the session is closed")]
    Closed,
}

impl From<CallError> for KeyError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<TableError> for KeyError {
    fn from(error: TableError) -> Self {
        Self::Table(error)
    }
}
