//! The stream of an allreduce's worker to its controller: by it the job is paused and resized at
//! the boundary of a round, the same one for all workers.
//!
//! ```no_run
//! # use weft_client::rounds::{RoundControl, RoundConfig, Next};
//! # fn sum() {}
//! # fn keep_checkpoint() {}
//! # fn main() -> Result<(), weft_client::rounds::RoundError> {
//! let config = RoundConfig::new("http://10.0.0.9:22342", 0).rank(0);
//! let mut control = RoundControl::connect(&config)?;
//! // control.watch(session.messages()): the controller learns how large the tensors are
//! let cohort = control.cohort(); // how many workers, and which round comes first
//! loop {
//!     match control.next_round(1 << 20)? {
//!         Next::Round(_) => sum(),
//!         Next::Checkpoint(_) => keep_checkpoint(), // then ask again: it is told
//!         Next::End => return Ok(()),
//!     }
//! }
//! # }
//! ```
//!
//! What may be done is decided in [`weft_agent::rounds`]; here are the thread, the stream and the
//! waiting.

mod stream;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use weft_agent::rounds::{Rounds, Step};
use weft_control::{Cohort, CohortId, Messages};
use weft_rpc::tls::TlsFiles;

use crate::messages::MessageCounter;

/// Where the controller is, and who calls.
#[derive(Clone, Debug)]
pub struct RoundConfig {
    /// "http://address:port", or https with `tls`.
    pub endpoint: String,
    /// This worker's certificate. Default: none.
    pub tls: Option<TlsFiles>,
    /// Index of the job.
    pub job: u16,
    /// This worker's rank. Default 0.
    pub rank: u8,
    /// The cohort that it was started for. Default 0.
    pub cohort: u32,
    /// The round that it begins with: its checkpoint's. Default 0.
    pub next_round: u64,
    /// Another number in each life of the worker. Default: random.
    pub life: Option<u64>,
    /// How long the first answer may take: until the job's lease is in. Default 30 s.
    pub connect_timeout: Duration,
}

impl RoundConfig {
    /// Rank 0 of a job's first cohort.
    #[must_use]
    pub fn new(endpoint: impl Into<String>, job: u16) -> Self {
        Self {
            endpoint: endpoint.into(),
            tls: None,
            job,
            rank: 0,
            cohort: 0,
            next_round: 0,
            life: None,
            connect_timeout: Duration::from_secs(30),
        }
    }

    /// Another rank.
    #[must_use]
    pub fn rank(mut self, rank: u8) -> Self {
        self.rank = rank;
        self
    }
}

/// What comes next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// This round.
    Round(u64),
    /// A checkpoint of the model before this round, which is to be on a disk when the worker asks
    /// again; one worker may keep it for all.
    Checkpoint(u64),
    /// Nothing: the job goes on with other workers.
    End,
}

/// Why there is no stream.
#[derive(thiserror::Error)]
pub enum RoundError {
    /// It cannot be called at all.
    #[error("cannot call the controller: {0}")]
    Controller(String),
    /// It does not want this worker.
    #[error("the controller refuses this worker: {0}")]
    Refused(String),
    /// It said nothing in time.
    #[error(
        "the controller at {endpoint} did not welcome this worker within {seconds} s; is it \
         running, and does the job's aggregator?"
    )]
    Silent {
        /// Where.
        endpoint: String,
        /// How long.
        seconds: u64,
    },
}

/// A worker's stream. Dropping it ends it.
#[derive(Debug)]
pub struct RoundControl {
    shared: Arc<Shared>,
    cohort: Cohort,
    /// A checkpoint was asked for, and is kept when the worker asks again.
    is_keeping: bool,
    /// Tells the thread that there is something to say; gone, it ends.
    nudge: mpsc::Sender<Nudge>,
    messages: Option<MessageCounter>,
}

/// A round that began; none: only a change of position.
type Nudge = Option<Begun>;

/// A round that began, and what was summed since the one before did.
#[derive(Clone, Copy, Debug)]
struct Begun {
    round: u64,
    bytes: u64,
    messages: Option<Messages>,
}

/// What the worker and the thread share.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    heard: Condvar,
    origin: Instant,
}

#[derive(Debug)]
struct State {
    rounds: Rounds,
    cohort: Option<Cohort>,
    /// The worker is between two rounds.
    is_between: bool,
    refused: Option<String>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl RoundControl {
    /// Calls the controller and waits until it welcomes the worker: until the job's lease is in.
    ///
    /// # Errors
    /// [`RoundError`], within `connect_timeout`.
    pub fn connect(config: &RoundConfig) -> Result<Self, RoundError> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                rounds: Rounds::new(config.next_round),
                cohort: None,
                is_between: true,
                refused: None,
            }),
            heard: Condvar::new(),
            origin: Instant::now(),
        });
        let nudge = stream::start(config, Arc::clone(&shared))?;
        let until = Instant::now() + config.connect_timeout;
        let mut state = shared.lock();
        let cohort = loop {
            if let Some(problem) = state.refused.take() {
                return Err(RoundError::Refused(problem));
            }
            if state.rounds.step(shared.now_ns()) == Step::End {
                let cohort = config.cohort;
                let problem = format!("cohort {cohort} is over, the job has other workers now");
                return Err(RoundError::Refused(problem));
            }
            if let Some(cohort) = state.cohort {
                break cohort;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seconds = config.connect_timeout.as_secs();
                return Err(RoundError::Silent { endpoint: config.endpoint.clone(), seconds });
            }
            state = wait(&shared, state, left);
        };
        drop(state);
        Ok(Self { shared, cohort, is_keeping: false, nudge, messages: None })
    }

    /// Who this worker's cohort is.
    #[must_use]
    pub const fn cohort(&self) -> Cohort {
        self.cohort
    }

    /// Tells the controller, with each round, how large the tensors are that a session sums: it
    /// learns from this whether one of them is much larger than the others, and places the job's
    /// workers by it.
    pub fn watch(&mut self, messages: MessageCounter) {
        self.messages = Some(messages);
    }

    /// Ends the round that is under way, and waits for what comes next; a round gives `bytes` to
    /// the sum. While the job is paused this does not return.
    ///
    /// # Errors
    /// [`RoundError::Refused`]: the controller has given this worker up.
    pub fn next_round(&mut self, bytes: u64) -> Result<Next, RoundError> {
        let mut state = self.shared.lock();
        state.is_between = true;
        if std::mem::take(&mut self.is_keeping) {
            state.rounds.handle_kept();
        }
        let _ = self.nudge.try_send(None);
        loop {
            if let Some(problem) = state.refused.take() {
                return Err(RoundError::Refused(problem));
            }
            match state.rounds.step(self.shared.now_ns()) {
                Step::Begin => {
                    let round = state.rounds.next();
                    state.rounds.handle_begin();
                    state.is_between = false;
                    let seen = self.messages.as_ref().map(MessageCounter::take);
                    let messages = seen.filter(Messages::is_sound);
                    // One that is not told is known by the next.
                    let _ = self.nudge.try_send(Some(Begun { round, bytes, messages }));
                    return Ok(Next::Round(round));
                }
                Step::Keep => {
                    self.is_keeping = true;
                    return Ok(Next::Checkpoint(state.rounds.next()));
                }
                Step::End => return Ok(Next::End),
                Step::Wait => state = wait(&self.shared, state, LOOK_PERIOD),
            }
        }
    }
}

fn wait<'a>(
    shared: &'a Shared,
    state: MutexGuard<'a, State>,
    most: Duration,
) -> MutexGuard<'a, State> {
    let most = most.min(LOOK_PERIOD);
    shared.heard.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
}

/// Whose stream it is.
fn cohort_id(config: &RoundConfig) -> CohortId {
    CohortId(config.cohort)
}

/// How often a worker that waits looks without having heard anything.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
