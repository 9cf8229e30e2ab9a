//! What a node's lane and its controller's agent tell each other: bounded queues.
//!
//! The agent's thread pushes commands and pops events and trains; lane 0 pops commands between
//! breaths, pushes events and trains, and wakes the agent. Neither ever waits for the other (DESIGN
//! "Hot path": no locks). A full queue of commands is the agent's to retry; events that find theirs
//! full are lost and counted, and the controller learns the state by asking (PROTOCOL section 5).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;
use tokio::sync::Notify;
use weft_control::{Command, Event, Train};
use weft_io::nic::Carried;
use weft_lane::LaneEngine;
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
    /// Whether a controller is there: what the agent said, and what the lane's engine knows.
    controller: AtomicU8,
    controller_known: AtomicU8,
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
            controller: AtomicU8::new(NEVER),
            controller_known: AtomicU8::new(NEVER),
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

    /// Says whether a controller is there. The lane hears of it before any command that comes
    /// later.
    pub fn note_controller(&self, is_there: bool) {
        self.controller.store(if is_there { THERE } else { GONE }, Ordering::Release);
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

    /// Waits until there was an event or a train since it waited last.
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
        // Looked at first: what the engine knows is never older than the commands that follow.
        let controller = self.controller.load(Ordering::Acquire);
        if controller != self.controller_known.load(Ordering::Relaxed) {
            self.controller_known.store(controller, Ordering::Relaxed);
            engine.handle_controller(now, controller == THERE);
        }
        for _ in 0..COMMANDS_PER_BREATH_MAX {
            let Some(command) = self.commands.pop() else { break };
            engine.handle_command(now, command);
        }
        while let Some((job, event)) = engine.poll_event() {
            self.tell(job, event);
        }
        while let Some(train) = engine.poll_train() {
            self.trains.force_push(train);
            self.told.notify_one();
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

/// States of [`NodeControl::note_controller`]; before it was ever called, [`NEVER`].
const NEVER: u8 = 0;
const THERE: u8 = 1;
const GONE: u8 = 2;
/// Default length of the queue of commands: every group that can be open, twice.
const COMMANDS_MAX: usize = 2048;
/// Default length of the queue of events.
const EVENTS_MAX: usize = 8192;
/// Trains that wait for the agent.
const TRAINS_MAX: usize = 16;
/// Commands that a lane takes between two breaths.
const COMMANDS_PER_BREATH_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use weft_control::{OrderNumber, ServerEpoch};
    use weft_engine::role::Verdict;
    use weft_wire::GroupId;

    use super::*;

    /// What a lane hears, in order.
    #[derive(Default)]
    struct Ear(Vec<String>, Option<Train>);

    impl LaneEngine for Ear {
        fn handle_frame(&mut self, _: Nanos, _: &mut [u8], _: usize) -> Verdict {
            Verdict::Hold
        }

        fn poll_transmit(&mut self, _: Nanos, _: &mut [u8]) -> Option<usize> {
            None
        }

        fn poll_timeout(&self) -> Nanos {
            Nanos::MAX
        }

        fn handle_command(&mut self, _: Nanos, _: Command) {
            self.0.push("command".to_owned());
        }

        fn handle_controller(&mut self, now: Nanos, is_there: bool) {
            self.0.push(format!("{is_there} at {}", now.0));
        }

        fn poll_event(&mut self) -> Option<(JobId, Event)> {
            None
        }

        fn poll_train(&mut self) -> Option<Train> {
            self.1.take()
        }
    }

    fn is_told(control: &NodeControl) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(control.told()).poll(&mut context).is_ready()
    }

    #[test]
    fn a_train_wakes_the_agent_as_an_event_does() {
        let control = NodeControl::default();
        let (job, group) = (JobId(0), GroupId(1));
        let train = Train { job, group, rank: None, frame_len: 1, arrivals: Default::default() };
        control.exchange(Nanos(1), &mut Ear::default());
        assert!(!is_told(&control));
        control.exchange(Nanos(2), &mut Ear(Vec::new(), Some(train.clone())));
        assert!(is_told(&control));
        assert_eq!(control.train(), Some(train));
        assert!(!is_told(&control));
        control.tell(job, Event::StoodDown { epoch: ServerEpoch(1) });
        assert!(is_told(&control));
    }

    #[test]
    fn a_lane_hears_of_a_controller_once_and_before_its_commands() {
        let (control, mut ear) = (NodeControl::default(), Ear::default());
        control.exchange(Nanos(1), &mut ear);
        assert!(ear.0.is_empty(), "nobody said that there is one, or not");
        control.note_controller(false);
        control.exchange(Nanos(2), &mut ear);
        control.exchange(Nanos(3), &mut ear);
        control.note_controller(true);
        control.command(Command::Skip { job: JobId(0), below: OrderNumber(0) }).unwrap();
        control.exchange(Nanos(4), &mut ear);
        assert_eq!(ear.0, ["false at 2", "true at 4", "command"]);
    }
}
