//! What a node's lane and its controller's agent tell each other: bounded queues.
//!
//! The agent's thread pushes commands and pops events and trains; lane 0 pops commands between
//! breaths, pushes events and trains, and wakes the agent when there are events. Neither ever waits
//! for the other (DESIGN "Hot path": no locks). A full queue of
//! commands is the agent's to retry; events that find theirs full are lost and counted, and the
//! controller learns the state by asking (PROTOCOL section 5).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;
use tokio::sync::Notify;
use weft_engine::push::{Command, Event};
use weft_engine::send::train::Train;
use weft_io::LaneEngine;
use weft_io::nic::Carried;
use weft_wire::{JobId, Nanos};

/// An event and the job that it is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobEvent {
    /// The job.
    pub job: JobId,
    /// What happened.
    pub event: Event,
}

/// The way between a lane and whoever commands it.
#[derive(Debug)]
pub struct NodeControl {
    commands: ArrayQueue<Command>,
    events: ArrayQueue<JobEvent>,
    /// Measurements, which nobody misses: the oldest make room.
    trains: ArrayQueue<Train>,
    events_lost: AtomicU64,
    told: Notify,
    carried: Arc<Carried>,
}

impl Default for NodeControl {
    fn default() -> Self {
        Self::new(COMMANDS_MAX, EVENTS_MAX)
    }
}

impl NodeControl {
    /// Queues of these lengths.
    #[must_use]
    pub fn new(commands_max: usize, events_max: usize) -> Self {
        Self {
            commands: ArrayQueue::new(commands_max),
            events: ArrayQueue::new(events_max),
            trains: ArrayQueue::new(TRAINS_MAX),
            events_lost: AtomicU64::new(0),
            told: Notify::new(),
            carried: Arc::default(),
        }
    }

    /// Hands a command to the lane.
    ///
    /// # Errors
    /// The command, when the queue is full: try again later.
    pub fn command(&self, command: Command) -> Result<(), Command> {
        self.commands.push(command)
    }

    /// The oldest event that nobody has taken.
    #[must_use]
    pub fn event(&self) -> Option<JobEvent> {
        self.events.pop()
    }

    /// The oldest train that nobody has taken.
    #[must_use]
    pub fn train(&self) -> Option<Train> {
        self.trains.pop()
    }

    /// Waits until there was an event since it waited last.
    pub async fn told(&self) {
        self.told.notified().await;
    }

    /// Events lost because nobody took them.
    #[must_use]
    pub fn events_lost(&self) -> u64 {
        self.events_lost.load(Ordering::Relaxed)
    }

    /// Notes what the lane's port has carried, for telemetry.
    pub fn note_carried(&self, rx_bytes: u64, tx_bytes: u64) {
        self.carried.note(rx_bytes, tx_bytes);
    }

    /// The account of what the lane's port has carried.
    #[must_use]
    pub fn account(&self) -> Arc<Carried> {
        Arc::clone(&self.carried)
    }

    /// Bytes that the lane's port has received and sent.
    #[must_use]
    pub fn carried(&self) -> (u64, u64) {
        self.carried.read()
    }

    /// Moves commands in and events out; the lane's side, between two breaths.
    pub fn exchange(&self, now: Nanos, engine: &mut impl LaneEngine) {
        for _ in 0..COMMANDS_PER_BREATH_MAX {
            let Some(command) = self.commands.pop() else { break };
            engine.handle_command(now, command);
        }
        while let Some((job, event)) = engine.poll_event() {
            self.tell(job, event);
        }
        while let Some(train) = engine.poll_train() {
            self.trains.force_push(train);
        }
    }

    /// Queues an event and wakes the agent.
    pub fn tell(&self, job: JobId, event: Event) {
        if self.events.push(JobEvent { job, event }).is_err() {
            self.events_lost.fetch_add(1, Ordering::Relaxed);
        }
        self.told.notify_one();
    }
}

/// Default length of the queue of commands: every group that can be open, twice.
const COMMANDS_MAX: usize = 2048;
/// Default length of the queue of events.
const EVENTS_MAX: usize = 8192;
/// Trains that wait for the agent, which looks every millisecond.
const TRAINS_MAX: usize = 16;
/// Commands that a lane takes between two breaths.
const COMMANDS_PER_BREATH_MAX: usize = 64;
