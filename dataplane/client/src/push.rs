//! Asynchronous SGD: push updates to a parameter server, pull its model (SPEC#push, SPEC#pull).
//!
//! ```no_run
//! use weft_client::push::{Outcome, PushConfig, PushSession};
//!
//! # fn main() -> Result<(), weft_client::push::PushError> {
//! let config = PushConfig::new("10.0.0.1:7000".parse().unwrap(), "10.0.0.100:22341".parse().unwrap())
//!     .rank(0);
//! let mut session = PushSession::connect(&config)?;
//! let mut model = vec![0.0_f32; 100_000];
//! let mut version = session.pull(&mut model)?;
//! let update: Vec<f32> = model.iter().map(|w| -0.1 * w).collect();
//! let ticket = session.push(&update, version)?; // returns at once; the transfer goes on by itself
//! if let Outcome::Committed { version: committed } = ticket.wait()? {
//!     version = session.pull_newer(&mut model, committed)?;
//! }
//! # let _ = version;
//! session.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! A server asks for chunks while the program computes, so a thread of the session's owns the port
//! and the engine ([`weft_engine::role::push::Pusher`]); calls talk to it over bounded channels.
//! With a controller, a second thread asks it for a turn and passes its grants on; without one, or
//! when it falls silent, updates go directly and in the order in which they arrive.
//!
//! | file | what it does |
//! | --- | --- |
//! | `config.rs`, `error.rs`, `stats.rs` | what a caller says and gets |
//! | `driver.rs` | the thread with the port: moves frames, decides nothing |
//! | `book.rs` | which updates are under way, what to do when one is void, what was measured |
//! | `control.rs` | the thread that speaks gRPC to the controller |

mod config;
mod error;
mod stats;

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use weft_io::Port;
use weft_io::udp::{UdpConfig, UdpPort};

pub use config::{ControllerConfig, PushConfig, PushNumbers};
pub use error::PushError;
pub use stats::{Latency, PushStatistics};
pub use weft_engine::push::Version;

/// What became of an update.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It is in the model, which then had this version.
    Committed {
        /// The version after the update's group.
        version: Version,
    },
    /// It was too old, or the plan left it out: pull a fresh model. With `error_feedback` it is
    /// added to the next update of the session.
    Dropped,
    /// It was judged void as often as `resends_max` allows; it is in no model.
    Void,
}

/// A pushed update's claim on its outcome. Dropping it does not stop the update.
#[derive(Debug)]
pub struct Ticket {
    number: u64,
    outcome: Receiver<Result<Outcome, PushError>>,
}

impl Ticket {
    /// The update's number in this session, from 0.
    #[must_use]
    pub fn number(&self) -> u64;

    /// Waits for the outcome.
    ///
    /// # Errors
    /// The error that ended the session first.
    pub fn wait(self) -> Result<Outcome, PushError>;

    /// Waits for the outcome at most this long; gives the ticket back when there is none yet.
    ///
    /// # Errors
    /// The error that ended the session first.
    pub fn wait_timeout(self, timeout: Duration) -> Result<Result<Outcome, PushError>, Self>;

    /// The outcome, if it is known by now.
    pub fn outcome(&self) -> Option<Result<Outcome, PushError>>;
}

/// One life of one worker of a job with a parameter server.
#[derive(Debug)]
pub struct PushSession {}

impl PushSession {
    /// Opens the channel to the server, over a UDP socket, and registers with the controller if
    /// there is one.
    ///
    /// # Errors
    /// [`PushError`], within `connect_timeout` when the server does not answer.
    pub fn connect(config: &PushConfig) -> Result<Self, PushError>;

    /// As [`PushSession::connect`], over a port of the caller's.
    ///
    /// # Errors
    /// As [`PushSession::connect`].
    pub fn over<P: Port + Send + 'static>(port: P, config: &PushConfig) -> Result<Self, PushError>;

    /// Parameters that the server's model has room for: chunks x elements. The last chunk may be
    /// padded with zeros.
    #[must_use]
    pub fn parameters_max(&self) -> usize;

    /// Hands over an update that was computed on `version` of the model, and returns once the
    /// session has taken it; waits only while `updates_open_max` updates are under way.
    /// The update is copied.
    ///
    /// # Errors
    /// [`PushError::Config`] when the update is longer than the model or not finite; the error that ended the
    /// session.
    pub fn push(&mut self, update: &[f32], version: Version) -> Result<Ticket, PushError>;

    /// Copies the newest model to the start of the server's parameters into `model`.
    ///
    /// # Errors
    /// [`PushError`] when the server is silent for `member_timeout`.
    pub fn pull(&mut self, model: &mut [f32]) -> Result<Version, PushError>;

    /// Waits for a model newer than `version` and copies it: synchronous SGD, and the best K of N.
    ///
    /// # Errors
    /// As [`PushSession::pull`]. There is no limit on how long others may take, as long as the server answers.
    pub fn pull_newer(&mut self, model: &mut [f32], version: Version) -> Result<Version, PushError>;

    /// Counters since the session began.
    #[must_use]
    pub fn statistics(&self) -> PushStatistics;

    /// Waits for the updates under way, at most `close_linger`, and leaves.
    ///
    /// # Errors
    /// The error that ended the session.
    pub fn close(self) -> Result<PushStatistics, PushError>;
}
