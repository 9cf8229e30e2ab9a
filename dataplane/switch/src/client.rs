//! The thread that speaks P4Runtime, and the lane's end of it.
//!
//! Dials, becomes the switch's primary, puts the program in, and then carries: writes and reads in
//! the order in which they were asked for, packets both ways. It ends with its stream. Queues are
//! bounded: an answer waits for its place, a packet does not.

mod rpc;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use crossbeam_utils::sync::{Parker, Unparker};
use tokio::sync::mpsc;
use weft_engine::role::switch::{Agent, Counter, Read, Target, Write};
use weft_io::{PortInfo, PortStats};
use weft_wire::{MacAddr, Nanos};

use crate::SwitchError;
use crate::port::{Shared, SwitchPort};
use crate::program::Program;

/// Where the switch is, and what it is to run.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Host and port of its P4Runtime server, or `unix:` and the path of its socket.
    pub grpc: String,
    /// Its number there.
    pub device_id: u64,
    /// Which of several controllers is the primary: the highest.
    pub election_id: u64,
    /// What it is to run.
    pub program: Program,
    /// What it can do.
    pub target: Target,
    /// The box's own address.
    pub mac: MacAddr,
    /// Largest IP packet.
    pub mtu: u16,
    /// Frame buffers of the port.
    pub frame_count: usize,
    /// How long nobody may answer; `None`: for ever.
    pub patience: Option<Duration>,
    /// Is told why, once, when dialling goes on for ever and has for [`WAITING_AFTER`].
    pub is_waiting: fn(&SwitchError),
}

/// The lane's end: carries what an agent wants of its switch.
#[derive(Debug)]
pub struct Link {
    asking: mpsc::Sender<Request>,
    answers: Receiver<Answer>,
    /// A request that found the queue full.
    held: Option<Request>,
    shared: Arc<Shared>,
    reason: Arc<Mutex<Option<String>>>,
    under_way: usize,
}

/// What the thread is asked for.
#[derive(Debug)]
pub(crate) enum Request {
    Write(u64, Write),
    Read(Read),
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Answer {
    Written(u64, Result<(), String>),
    Cell(Counter, u32, u64),
    /// All of a read's cells have come.
    Done,
}

/// The thread's end.
pub(crate) struct Ends {
    pub(crate) asked: mpsc::Receiver<Request>,
    pub(crate) answering: Sender<Answer>,
    pub(crate) to_send: mpsc::Receiver<Vec<u8>>,
    pub(crate) receiving: Sender<Vec<u8>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) reason: Arc<Mutex<Option<String>>>,
    pub(crate) unparker: Unparker,
}

/// Reaches a switch and puts the program in. Returns when it is the primary and the program runs.
///
/// # Errors
/// [`SwitchError`]: nobody answers, another is primary, the program is refused, or `stop` was set.
pub fn connect(
    config: LinkConfig,
    stop: &Arc<AtomicBool>,
) -> Result<(SwitchPort, Link), SwitchError> {
    let (asking, asked) = mpsc::channel(REQUESTS_MAX);
    let (answering, answers) = bounded(ANSWERS_MAX);
    let (sending, to_send) = mpsc::channel(FRAMES_MAX);
    let (receiving, received) = bounded(FRAMES_MAX);
    let parker = Parker::new();
    let shared = Arc::new(Shared::default());
    let reason = Arc::new(Mutex::new(None));
    let ends = Ends {
        asked,
        answering,
        to_send,
        receiving,
        shared: Arc::clone(&shared),
        reason: Arc::clone(&reason),
        unparker: parker.unparker().clone(),
    };
    let port = SwitchPort {
        info: PortInfo {
            name: format!("{} device {}", config.grpc, config.device_id),
            driver: "p4runtime".to_owned(),
            mac: config.mac,
            mtu: usize::from(config.mtu),
        },
        pool: SwitchPort::pool(config.frame_count, config.mtu),
        received,
        sending,
        parker,
        shared: Arc::clone(&shared),
        stats: PortStats::default(),
    };
    let (ready, is_ready) = bounded(1);
    let stop = Arc::clone(stop);
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(rpc::run(config, ends, &ready, &stop)),
            Err(error) => drop(ready.send(Err(SwitchError::Thread(error)))),
        }
    };
    let thread = std::thread::Builder::new().name("weft-p4runtime".to_owned()).spawn(run);
    thread.map_err(SwitchError::Thread)?;
    is_ready.recv().map_err(|_| SwitchError::Stopped)??;
    let link = Link { asking, answers, held: None, shared, reason, under_way: 0 };
    Ok((port, link))
}

impl Link {
    /// Carries what the agent wants, and what has come of it. Called between two breaths.
    pub fn exchange(&mut self, now: Nanos, agent: &mut Agent) {
        while let Ok(answer) = self.answers.try_recv() {
            match answer {
                Answer::Written(number, result) => {
                    self.under_way -= 1;
                    agent.handle_written(number, result);
                }
                Answer::Cell(counter, cell, value) => agent.handle_read(counter, cell, value),
                Answer::Done => self.under_way -= 1,
            }
        }
        // Reads first: a counter is read before what comes next in its place counts in it.
        while let Some(request) = self.held.take().or_else(|| {
            let read = agent.poll_read(now).map(Request::Read);
            read.or_else(|| agent.poll_write().map(|(number, write)| Request::Write(number, write)))
        }) {
            match self.asking.try_send(request) {
                Ok(()) => self.under_way += 1,
                Err(mpsc::error::TrySendError::Full(request)) => {
                    self.held = Some(request);
                    break;
                }
                Err(mpsc::error::TrySendError::Closed(_)) => break,
            }
        }
        if let Some(lost) = agent.lost() {
            self.close(&lost.to_string());
        }
    }

    /// True while answers are due.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.under_way > 0
    }

    /// Why the switch is gone, once it is.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        let is_closed = self.shared.is_closed.load(Ordering::Acquire);
        let reason = || self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        is_closed.then(|| reason().unwrap_or_default())
    }

    fn close(&self, reason: &str) {
        close(&self.shared, &self.reason, reason);
    }
}

/// Ends the port; the first reason is kept.
pub(crate) fn close(shared: &Shared, kept: &Mutex<Option<String>>, reason: &str) {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.get_or_insert_with(|| reason.to_owned());
    shared.is_closed.store(true, Ordering::Release);
}

/// How long dialling has gone on.
pub(crate) struct Patience {
    begun: Instant,
    is_told: bool,
}

impl Patience {
    pub(crate) fn begin() -> Self {
        Self { begun: Instant::now(), is_told: false }
    }

    /// After an attempt that failed: why it was the last one, if it was.
    pub(crate) fn failed(&mut self, config: &LinkConfig, problem: String) -> Option<SwitchError> {
        let waited = self.begun.elapsed();
        let error = SwitchError::Unreachable { grpc: config.grpc.clone(), problem };
        match config.patience {
            Some(patience) => return (waited >= patience).then_some(error),
            None if waited >= WAITING_AFTER && !self.is_told => {
                self.is_told = true;
                (config.is_waiting)(&error);
            }
            None => {}
        }
        None
    }
}

/// How long nobody answers before somebody is told: a switch that is started again takes less.
pub const WAITING_AFTER: Duration = Duration::from_secs(2);
/// Requests on their way to the thread.
const REQUESTS_MAX: usize = 1024;
/// Answers on their way back.
const ANSWERS_MAX: usize = 4096;
/// Frames on their way, in each direction.
const FRAMES_MAX: usize = 1024;
