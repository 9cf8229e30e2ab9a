//! What the caller's thread, the thread with the port and the controller's thread tell each other.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crossbeam_channel::{Receiver, SendError, Sender};
use weft_control::{BoxIndex, Decision, Version};
use weft_engine::role::push::Grant;
use weft_io::Waker;
use weft_wire::header::ElementType;

use super::{Outcome, PushError, PushStatistics};

/// The way to the thread with the port, which may sleep there.
#[derive(Clone, Debug)]
pub(super) struct Mailbox {
    pub(super) messages: Sender<Message>,
    /// `None`: the thread looks by itself, every now and then.
    pub(super) waker: Option<Waker>,
}

impl Mailbox {
    /// Waits while the box is full.
    pub(super) fn send(&self, message: Message) -> Result<(), SendError<Message>> {
        self.messages.send(message)?;
        if let Some(waker) = &self.waker {
            waker.wake();
        }
        Ok(())
    }
}

/// To the thread with the port.
#[derive(Debug)]
pub(super) enum Message {
    Push(PushOrder),
    Pull(PullOrder),
    /// Leave when what is under way has ended.
    Close,
    /// Leave at once: nobody waits any more.
    Leave,
    Controller(FromController),
}

/// An update handed over.
#[derive(Debug)]
pub(super) struct PushOrder {
    pub(super) update: Vec<f32>,
    pub(super) version: Version,
    pub(super) norm: f64,
    pub(super) max_abs: f32,
    pub(super) outcome: Sender<Result<Outcome, PushError>>,
    pub(super) permit: Permit,
}

/// A model asked for.
#[derive(Debug)]
pub(super) struct PullOrder {
    /// Where it goes: as many of its first parameters as there is room for.
    pub(super) model: Vec<f32>,
    pub(super) newer_than: Option<Version>,
    pub(super) reply: Sender<(Version, Vec<f32>)>,
}

/// The right to have one update under way; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Permit(Receiver<()>);

impl Permit {
    pub(super) fn new(permits: Receiver<()>) -> Self {
        Self(permits)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let _ = self.0.try_recv();
    }
}

/// What the session learnt when it opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) parameters_max: usize,
    pub(super) worker_count: usize,
}

/// What the thread with the port leaves for others to read.
#[derive(Debug, Default)]
pub(super) struct Shared {
    statistics: Mutex<PushStatistics>,
    error: Mutex<Option<PushError>>,
    /// The thread looks into its inbox no more.
    is_over: AtomicBool,
}

impl Shared {
    pub(super) fn statistics(&self) -> PushStatistics {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn publish(&self, statistics: &PushStatistics) {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).clone_from(statistics);
    }

    /// True when the thread may not see a message that was sent before this call.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// The thread ends; what is in its inbox after this it drops.
    pub(super) fn set_over(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Why the session has ended.
    pub(super) fn end(&self) -> PushError {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        error.clone().unwrap_or(PushError::Closed)
    }

    /// Keeps the first reason.
    pub(super) fn fail(&self, why: PushError) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }
}

/// What the controller is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ToController {
    Request { id: u64, version: Version, norm: f64, max_abs: f32 },
    Cancel { id: u64 },
    PullSample { bytes: u64, duration_ns: u64 },
}

/// What the controller says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FromController {
    /// The stream is up.
    Welcome(Job),
    /// The stream is down.
    Lost,
    /// It will not have this worker.
    Refused(String),
    /// It did not understand a request.
    RequestRefused {
        id: Option<u64>,
        problem: String,
    },
    Grant {
        id: u64,
        grant: Box<Grant>,
    },
    /// A grant that cannot be obeyed.
    BadGrant {
        id: u64,
    },
    Drop {
        id: u64,
    },
    Release {
        id: u64,
        segment: usize,
    },
    Delivered {
        id: u64,
        decision: Decision,
    },
    /// The job's server is another one; no address: none that could be understood.
    ServerMoved {
        address: Option<SocketAddr>,
        epoch: u32,
    },
}

/// The job as the controller describes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Job {
    pub(super) chunks: u32,
    pub(super) elements: u32,
    pub(super) element_type: Option<ElementType>,
    pub(super) server: Option<SocketAddr>,
    /// How many servers it had before that one.
    pub(super) epoch: u32,
    pub(super) aggregators: Vec<(BoxIndex, SocketAddr)>,
    pub(super) replica: Option<(BoxIndex, SocketAddr)>,
    /// DSCP of the job's frames; 0: none is given.
    pub(super) label: u8,
}
