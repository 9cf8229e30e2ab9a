//! Why a push session could not be made or go on.

use std::sync::Arc;

use weft_engine::role::push::PushFault;

use crate::NarrowPath;
use crate::error::{Error, from_port_error};

/// Why a call failed. After any error but [`PushError::Config`] the session is over; a new
/// [`crate::push::PushSession::connect`] begins a new life.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// The configuration, or an argument, cannot work.
    #[error("configuration: `{field}` {problem}")]
    Config {
        /// The field.
        field: &'static str,
        /// What is wrong, and what would be right.
        problem: &'static str,
    },
    /// The port could not be opened.
    #[error(transparent)]
    Open(Arc<Error>),
    /// The operating system gave no random seed, or no thread.
    #[error("could not get {what} from the operating system: {cause}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What it said.
        cause: String,
    },
    /// The engine stopped: the message names the host that does not answer.
    #[error("the session ended: {0}")]
    Session(PushFault),
    /// As [`PushError::Session`], where the port knows what may have kept frames from passing.
    #[error("the session ended: {fault}; {complaint}")]
    Link {
        /// How it ended.
        fault: PushFault,
        /// What the port knows.
        complaint: String,
    },
    /// The path to the server carries the job's chunks no more.
    #[error("the session ended: {0}")]
    Narrow(NarrowPath),
    /// The controller cannot be used.
    #[error("controller: {0}")]
    Controller(String),
    /// The port will deliver nothing any more.
    #[error("the port is closed: no frame can arrive any more")]
    PortClosed,
    /// The session has been closed.
    #[error("the session is closed")]
    Closed,
}

from_port_error!(PushError);
