//! Asynchronous SGD: push updates to a parameter server, pull its model (SPEC#push, SPEC#pull).
//!
//! ```no_run
//! use weft_client::push::{Outcome, PushConfig, PushSession};
//!
//! # fn main() -> Result<(), weft_client::push::PushError> {
//! let (worker, server) = ("10.0.0.1:22500".parse().unwrap(), "10.0.0.100:22341".parse().unwrap());
//! let config = PushConfig::new(worker, server).rank(0);
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
//! when it falls silent, updates go directly and in the order in which they arrive. The second
//! thread also tells what the host's link has carried and, where the controller probes its links,
//! keeps a UDP port of its own on the worker's address for probe trains ([`weft_agent`]).
//!
//! | file | what it does |
//! | --- | --- |
//! | `config.rs`, `error.rs`, `stats.rs` | what a caller says and gets |
//! | `driver.rs` | the thread with the port: moves frames, decides nothing |
//! | `message.rs` | what the threads tell each other |
//! | `updates.rs` | which updates are under way, what to do when one is void, what was measured |
//! | `control.rs` | the thread that speaks gRPC to the controller |

mod config;
mod control;
mod driver;
mod error;
mod message;
mod stats;
mod updates;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use weft_engine::role::push::Pusher;
use weft_io::Port;
use weft_io::nic::Carried;
use weft_kernel::Kernels;
use weft_wire::Nanos;

pub use config::{ControllerConfig, PushConfig, PushNumbers};
pub use error::PushError;
pub use stats::{Latency, PushStatistics};
pub use weft_control::Version;
pub use weft_rpc::tls::TlsFiles;

use driver::Setup;
use message::{Mailbox, Message, Permit, PullOrder, PushOrder, Ready, Shared};

use crate::port::WorkerPort;

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
    /// It was judged void more often than `resends_max` allows; it is in no model.
    Void,
}

/// A pushed update's claim on its outcome. Dropping it does not stop the update.
#[derive(Debug)]
pub struct Ticket {
    number: u64,
    outcome: Receiver<Result<Outcome, PushError>>,
    shared: Arc<Shared>,
}

impl Ticket {
    /// The update's number in this session, from 0.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Waits for the outcome.
    ///
    /// # Errors
    /// The error that ended the session first.
    pub fn wait(self) -> Result<Outcome, PushError> {
        self.outcome.recv().unwrap_or_else(|_| Err(self.shared.end()))
    }

    /// Waits for the outcome at most this long; gives the ticket back when there is none yet.
    ///
    /// # Errors
    /// The ticket itself.
    pub fn wait_timeout(self, timeout: Duration) -> Result<Result<Outcome, PushError>, Self> {
        match self.outcome.recv_timeout(timeout) {
            Ok(outcome) => Ok(outcome),
            Err(RecvTimeoutError::Disconnected) => Ok(Err(self.shared.end())),
            Err(RecvTimeoutError::Timeout) => Err(self),
        }
    }
}

/// One life of one worker of a job with a parameter server. Dropping it without
/// [`PushSession::close`] leaves the server at once, whatever is under way.
#[derive(Debug)]
pub struct PushSession {
    messages: Mailbox,
    /// One for each update under way; full: as many as allowed.
    permits: Sender<()>,
    permits_back: Receiver<()>,
    ready: Ready,
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
    pushed: u64,
    /// The last model's memory, for the next.
    room: Vec<f32>,
}

impl PushSession {
    /// Opens the channel to the server, over a UDP socket or an interface ([`PushConfig::io`]), and
    /// registers with the controller if there is one. A controller that does not answer within its
    /// `silence` is done without.
    ///
    /// # Errors
    /// [`PushError`], within `connect_timeout` when the server does not answer or full datagrams
    /// do not reach it; [`PushError::Controller`] when the controller refuses this worker.
    pub fn connect(config: &PushConfig) -> Result<Self, PushError> {
        let port = WorkerPort::open_to_many(&config.of_port())?;
        Self::over(port, config)
    }

    /// As [`PushSession::connect`], over a port of the caller's.
    ///
    /// # Errors
    /// As [`PushSession::connect`].
    pub fn over<P: Port + Send + 'static>(
        mut port: P,
        config: &PushConfig,
    ) -> Result<Self, PushError> {
        let seed = match config.seed {
            Some(seed) => seed,
            None => getrandom::u64().map_err(|error| PushError::System {
                what: "a random seed",
                cause: error.to_string(),
            })?,
        };
        let engine = Pusher::new(config.pusher(port.info().mac)?, seed, Nanos(0))
            .map_err(PushError::Session)?;
        let (messages, inbox) = bounded(MESSAGES_MAX);
        let messages = Mailbox { messages, waker: port.waker() };
        let is_woken = messages.waker.is_some();
        let (permits, permits_back) = bounded(config.updates_open_max);
        let (ready, is_ready) = bounded(1);
        let shared = Arc::new(Shared::default());
        let carried = Arc::new(Carried::default());
        let controller = match &config.controller {
            Some(controller) => {
                let carried = Arc::clone(&carried);
                Some(control::start(controller, config, seed, messages.clone(), carried)?)
            }
            None => None,
        };
        let config = config.clone();
        let setup = Setup { config, engine, seed, inbox, is_woken, ready, controller, carried };
        let thread_shared = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("weft-push".to_owned())
            .spawn(move || driver::run(port, setup, &thread_shared))
            .map_err(|error| PushError::System { what: "a thread", cause: error.to_string() })?;
        let ready = is_ready.recv().map_err(|_| shared.end())?;
        let thread = Some(thread);
        let (pushed, room) = (0, Vec::new());
        Ok(Self { messages, permits, permits_back, ready, shared, thread, pushed, room })
    }

    /// Parameters that the server's model has room for: chunks x elements.
    #[must_use]
    pub fn parameters_max(&self) -> usize {
        self.ready.parameters_max
    }

    /// Workers of the job.
    #[must_use]
    pub fn worker_count(&self) -> usize {
        self.ready.worker_count
    }

    /// Hands over an update that was computed on `version` of the model, and returns once the
    /// session has taken it; waits only while `updates_open_max` updates are under way.
    /// The update is copied.
    ///
    /// # Errors
    /// [`PushError::Config`] when the update is longer than the model or not finite; the error
    /// that ended the session.
    pub fn push(&mut self, update: &[f32], version: Version) -> Result<Ticket, PushError> {
        if update.len() > self.ready.parameters_max {
            return Err(PushError::Config { field: "update", problem: "is longer than the model" });
        }
        let norm = norm(update);
        if !norm.is_finite() {
            let problem = "holds a NaN or an infinity: the step has diverged";
            return Err(PushError::Config { field: "update", problem });
        }
        self.permits.send(()).map_err(|_| self.shared.end())?;
        let permit = Permit::new(self.permits_back.clone());
        let (outcome, receiver) = bounded(1);
        let order = PushOrder {
            update: update.to_vec(),
            version,
            norm,
            max_abs: Kernels::detect().max_abs_f32(update),
            outcome,
            permit,
        };
        self.tell(Message::Push(order))?;
        let number = self.pushed;
        self.pushed += 1;
        Ok(Ticket { number, outcome: receiver, shared: Arc::clone(&self.shared) })
    }

    /// Copies the first `model.len()` parameters of the newest model that the server keeps a copy
    /// of into `model`. While all its copies are being pulled that is not the newest of all: the
    /// model is never older than that of the last pull, and has this session's updates that were
    /// reported as committed, unless the server has none with them for 0.1 s; but it may lack
    /// updates that others were told of before, also behind a barrier. [`Self::pull_newer`] waits
    /// for these: whoever's update was committed has its version.
    ///
    /// # Errors
    /// [`PushError`] when the server is silent for `member_timeout`, or `model` is longer than the
    /// server's.
    pub fn pull(&mut self, model: &mut [f32]) -> Result<Version, PushError> {
        self.pull_that(model, None)
    }

    /// Waits for a model newer than `version` and copies it: for synchronous SGD, and the best K
    /// of N. Updates under way go on meanwhile.
    ///
    /// # Errors
    /// As [`PushSession::pull`]. There is no limit on how long others may take, as long as the
    /// server answers.
    pub fn pull_newer(
        &mut self,
        model: &mut [f32],
        version: Version,
    ) -> Result<Version, PushError> {
        self.pull_that(model, Some(version))
    }

    fn pull_that(
        &mut self,
        model: &mut [f32],
        newer_than: Option<Version>,
    ) -> Result<Version, PushError> {
        if model.len() > self.ready.parameters_max {
            return Err(PushError::Config {
                field: "model",
                problem: "is longer than the server's",
            });
        }
        let (reply, pulled) = bounded(1);
        let mut room = std::mem::take(&mut self.room);
        room.resize(model.len(), 0.0);
        let order = PullOrder { model: room, newer_than, reply };
        self.tell(Message::Pull(order))?;
        let (version, pulled) = pulled.recv().map_err(|_| self.shared.end())?;
        model.copy_from_slice(&pulled);
        self.room = pulled;
        Ok(version)
    }

    /// Tells the thread something that it has to answer. One that ends meanwhile either drops the
    /// message, with what it was to be answered by, or has said before that it is over.
    fn tell(&self, message: Message) -> Result<(), PushError> {
        self.messages.send(message).map_err(|_| self.shared.end())?;
        if self.shared.is_over() { Err(self.shared.end()) } else { Ok(()) }
    }

    /// Counters since the session began.
    #[must_use]
    pub fn statistics(&self) -> PushStatistics {
        self.shared.statistics()
    }

    /// Waits for the updates under way, at most `close_linger`, and leaves the server. The counters
    /// are the last.
    ///
    /// # Errors
    /// The error that ended the session before.
    pub fn close(mut self) -> Result<PushStatistics, PushError> {
        // A thread that has ended has said why.
        let _ = self.messages.send(Message::Close);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        match self.shared.end() {
            PushError::Closed => Ok(self.shared.statistics()),
            error => Err(error),
        }
    }
}

impl Drop for PushSession {
    fn drop(&mut self) {
        // The controller's thread holds a sender too, so the inbox would not close by itself.
        let _ = self.messages.send(Message::Leave);
    }
}

/// The Euclidean norm, summed in f64.
fn norm(values: &[f32]) -> f64 {
    weft_kernel::squares(values).sqrt()
}

/// Messages to the session's thread that wait.
const MESSAGES_MAX: usize = 256;

#[cfg(test)]
mod tests;
