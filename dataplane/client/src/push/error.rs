//! Why a push session could not be made or go on.

use std::sync::Arc;

use weft_engine::role::push::PushFault;
use weft_io::udp::UdpError;

use crate::error::Error;

/// Why a call failed. After any error but [`PushError::Config`] the session is over; a new
/// [`crate::push::PushSession::connect`] begins a new life.
#[derive(Clone, Debug, thiserror::Error)]
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
    /// The local UDP port could not be opened.
    #[error("could not open this worker's port")]
    Port(#[source] Arc<UdpError>),
    /// A port that is not UDP's could not be opened.
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

/// Why there is no port.
impl From<Error> for PushError {
    fn from(error: Error) -> Self {
        match error {
            Error::Port(error) => Self::Port(Arc::new(error)),
            Error::Config { field, problem } => Self::Config { field, problem },
            error => Self::Open(Arc::new(error)),
        }
    }
}
