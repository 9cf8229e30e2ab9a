//! What a node's lanes and its controller's agent tell each other: bounded queues.
//!
//! The agent's thread pushes commands and pops events and trains; lane 0 pops commands between
//! breaths, pushes events and trains, and wakes the agent. Commands about what the box holds go to
//! every lane, and one answer comes when all lanes have given theirs. Neither ever waits for the
//! other (DESIGN "Hot path": no locks). A full queue of commands is the agent's to retry; events
//! that find theirs full are lost and counted, and the controller learns the state by asking
//! (PROTOCOL section 5).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crossbeam_queue::ArrayQueue;
use tokio::sync::Notify;
use weft_control::figures::BoxFigures;
use weft_control::{Command, Event, HoldingCommand, RowConfig, Train};
use weft_io::Port;
use weft_io::bands::{BandCounts, QUEUES};
use weft_io::marks::JobMarks;
use weft_io::nic::Carried;
use weft_lane::{LaneEngine, LaneMap, LanePort, RoleLane, Settings};
use weft_wire::{JobId, Nanos};

use crate::record::Notes;
use crate::stats::EngineSnapshot;
use crate::tally::Tally;

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
    /// One for each lane.
    lanes: Vec<Lane>,
    holdings: Option<Mutex<Holdings>>,
    /// Commands about what the box holds whose answers nobody has taken.
    asked: AtomicUsize,
    events: ArrayQueue<JobEvent>,
    /// Measurements, which nobody misses: the oldest make room.
    trains: ArrayQueue<Train>,
    events_lost: AtomicU64,
    told: Notify,
    /// Whether a controller is there: what the agent said, and what the lane's engine knows.
    controller: AtomicU8,
    controller_known: AtomicU8,
    /// The controller has had the box hold all that it is to hold: each lane comes to know it once.
    is_settled: AtomicBool,
    carried: Arc<Carried>,
    marks: Arc<JobMarks>,
    /// What the kernel counts of bands on the host's link, where this node applies them.
    kernel: Tally,
    band_repairs: AtomicU64,
}

impl Default for NodeControl {
    fn default() -> Self {
        Self::new(1, COMMANDS_MAX, EVENTS_MAX)
    }
}

impl NodeControl {
    /// Queues of these lengths, to so many lanes.
    #[must_use]
    pub fn new(lane_count: u16, commands_max: usize, events_max: usize) -> Self {
        let lane = |_| Lane {
            commands: ArrayQueue::new(commands_max),
            answers: ArrayQueue::new(commands_max),
            is_settled: AtomicBool::new(false),
            tally: Tally::default(),
        };
        Self {
            lanes: (0..lane_count.max(1)).map(lane).collect(),
            holdings: None,
            asked: AtomicUsize::new(0),
            events: ArrayQueue::new(events_max),
            trains: ArrayQueue::new(TRAINS_MAX),
            events_lost: AtomicU64::new(0),
            told: Notify::new(),
            controller: AtomicU8::new(NEVER),
            controller_known: AtomicU8::new(NEVER),
            is_settled: AtomicBool::new(false),
            carried: Arc::default(),
            marks: Arc::default(),
            kernel: Tally::default(),
            band_repairs: AtomicU64::new(0),
        }
    }

    /// To the lanes of a node with these settings, whose map of lanes follows what is installed.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let holdings = Holdings {
            rows: settings.table.rows.clone(),
            asked: VecDeque::new(),
            shards: settings.table.shards,
            map: settings.lanes.clone(),
        };
        let plain = Self::new(settings.table.shards, COMMANDS_MAX, EVENTS_MAX);
        let marks = Arc::clone(&settings.marks);
        Self { holdings: Some(Mutex::new(holdings)), marks, ..plain }
    }

    /// Hands a command to lane 0; one about what the box holds to all lanes. Only one thread may
    /// call it.
    ///
    /// # Errors
    /// The command, when a queue is full: try again later.
    #[expect(clippy::result_large_err, reason = "it is what came in, to be tried again")]
    pub fn command(&self, command: Command) -> Result<(), Command> {
        let Command::Holding(holding) = &command else {
            return self.lanes[0].commands.push(command);
        };
        // Each lane has room for the answers to all that it has not answered.
        let is_full = self.asked.load(Ordering::Relaxed) >= self.lanes[0].answers.capacity();
        if is_full || self.lanes.iter().any(|lane| lane.commands.is_full()) {
            return Err(command);
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        if let Some(holdings) = &self.holdings {
            holdings.lock().expect(UNPOISONED).asked.push_back(holding.clone());
        }
        let (first, others) = self.lanes.split_first().expect("there is a lane");
        for lane in others {
            // Nobody else fills it, so there is room.
            let _ = lane.commands.push(command.clone());
        }
        first.commands.push(command)
    }

    /// Says whether a controller is there. The lane hears of it before any command that comes
    /// later.
    pub fn note_controller(&self, is_there: bool) {
        self.controller.store(if is_there { THERE } else { GONE }, Ordering::Release);
    }

    /// Whether a controller is there.
    #[must_use]
    pub fn has_controller(&self) -> bool {
        self.controller.load(Ordering::Acquire) == THERE
    }

    /// The controller has had the box hold all that it is to hold. It says so when the lanes have
    /// answered to that, so they have it.
    pub fn note_settled(&self) {
        self.is_settled.store(true, Ordering::Release);
    }

    /// The oldest event that nobody has taken. Only one thread may call it.
    #[must_use]
    pub fn event(&self) -> Option<JobEvent> {
        self.answer().or_else(|| self.events.pop())
    }

    /// The one answer to a command about what the box holds, when all lanes have given theirs. They
    /// take the same commands in the same order from the same beginning, so their answers are the
    /// same.
    fn answer(&self) -> Option<JobEvent> {
        if self.lanes.iter().any(|lane| lane.answers.is_empty()) {
            return None;
        }
        let mut answers = self.lanes.iter().filter_map(|lane| lane.answers.pop());
        let first = answers.next()?;
        self.asked.fetch_sub(1, Ordering::Relaxed);
        for other in answers {
            assert_eq!(other, first, "the lanes of a box hold the same");
        }
        if let Some(holdings) = &self.holdings {
            holdings.lock().expect(UNPOISONED).note_answer(&first.event);
        }
        Some(first)
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

    /// Adds what a lane's port has carried since the last time, for telemetry.
    pub fn add_carried(&self, rx_bytes: u64, tx_bytes: u64) {
        self.carried.add(rx_bytes, tx_bytes);
    }

    /// Notes what a lane has counted, for telemetry; the side of that lane, between two breaths.
    pub fn note_figures<P: Port, E: LaneEngine + EngineSnapshot>(
        &self,
        index: usize,
        lane: &RoleLane<LanePort<P>, E>,
    ) {
        self.lanes[index].tally.note(lane);
    }

    /// What all lanes had counted when each noted it last.
    #[must_use]
    pub fn figures(&self) -> BoxFigures {
        let lanes = self.lanes.iter().map(|lane| lane.tally.read());
        lanes.chain([self.kernel.read()]).reduce(|sum, lane| sum.plus(&lane)).unwrap_or_default()
    }

    /// Notes what the kernel has counted of the bands on the host's link.
    pub fn note_kernel_bands(&self, bands: &[BandCounts; QUEUES]) {
        self.kernel.note_bands(bands);
    }

    /// Counts that bands were installed again which somebody had removed; how often that was.
    pub fn count_band_repair(&self) -> u64 {
        self.band_repairs.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// What the kernel has counted of the bands on the host's link, and how often they were
    /// installed again; none where this node does not apply any.
    #[must_use]
    pub fn kernel_bands(&self) -> Option<([BandCounts; QUEUES], u64)> {
        Some((self.kernel.bands()?, self.band_repairs.load(Ordering::Relaxed)))
    }

    /// The account of what the lanes' ports have carried.
    #[must_use]
    pub fn account(&self) -> Arc<Carried> {
        Arc::clone(&self.carried)
    }

    /// What the frames of each job carry.
    #[must_use]
    pub fn marks(&self) -> Arc<JobMarks> {
        Arc::clone(&self.marks)
    }

    /// Bytes that the lanes' ports have received and sent.
    #[must_use]
    pub fn carried(&self) -> (u64, u64) {
        self.carried.read()
    }

    /// Moves commands in and answers out; the side of a lane other than the first, between two
    /// breaths.
    pub fn exchange_holdings(
        &self,
        now: Nanos,
        lane: usize,
        engine: &mut impl LaneEngine,
        notes: &mut Notes<'_>,
    ) {
        self.hand_over(now, lane, engine, notes);
        while let Some((job, event)) = engine.poll_event() {
            notes.event(job, &event);
            self.tell_of(lane, job, event);
        }
    }

    fn hand_over(
        &self,
        now: Nanos,
        lane: usize,
        engine: &mut impl LaneEngine,
        notes: &mut Notes<'_>,
    ) {
        let known = &self.lanes[lane].is_settled;
        if self.is_settled.load(Ordering::Acquire) && !known.swap(true, Ordering::Relaxed) {
            notes.settled();
            engine.handle_settled();
        }
        for _ in 0..COMMANDS_PER_BREATH_MAX {
            let Some(command) = self.lanes[lane].commands.pop() else { break };
            notes.command(now, &command);
            engine.handle_command(now, command);
        }
    }

    fn tell_of(&self, lane: usize, job: JobId, event: Event) {
        if event.holding().is_none() {
            return self.tell(job, event);
        }
        // No more commands are taken than there is room for answers.
        let lost = self.lanes[lane].answers.push(JobEvent { job, event }).is_err();
        self.events_lost.fetch_add(u64::from(lost), Ordering::Relaxed);
        self.told.notify_one();
    }

    /// Moves commands in and events out; the first lane's side, between two breaths.
    pub fn exchange(&self, now: Nanos, engine: &mut impl LaneEngine, notes: &mut Notes<'_>) {
        // Looked at first: what the engine knows is never older than the commands that follow.
        let controller = self.controller.load(Ordering::Acquire);
        if controller != self.controller_known.load(Ordering::Relaxed) {
            self.controller_known.store(controller, Ordering::Relaxed);
            notes.controller(now, controller == THERE);
            engine.handle_controller(now, controller == THERE);
        }
        self.hand_over(now, 0, engine, notes);
        while let Some((job, event)) = engine.poll_event() {
            notes.event(job, &event);
            self.tell_of(0, job, event);
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

/// The way to one lane.
#[derive(Debug)]
struct Lane {
    commands: ArrayQueue<Command>,
    /// About what the box holds.
    answers: ArrayQueue<JobEvent>,
    /// It knows that the box has all that it is to hold.
    is_settled: AtomicBool,
    /// What it has counted.
    tally: Tally,
}

/// What the lanes hold by now, so that frames find the lane that they belong to. Lanes never touch
/// it.
#[derive(Debug)]
struct Holdings {
    rows: Vec<RowConfig>,
    /// Commands that the lanes have not answered, in order.
    asked: VecDeque<HoldingCommand>,
    shards: u16,
    map: LaneMap,
}

impl Holdings {
    fn note_answer(&mut self, answer: &Event) {
        let asked = self.asked.pop_front();
        if matches!(answer, Event::HoldingRefused { .. }) {
            return;
        }
        match asked {
            Some(HoldingCommand::InstallLease(row)) => self.rows.push(row),
            Some(HoldingCommand::RemoveLease { row, .. }) => {
                self.rows.retain(|known| known.row != row);
            }
            // Push jobs are lane 0's, as is whatever the map does not know.
            Some(
                HoldingCommand::InstallJob(_)
                | HoldingCommand::RemoveJob { .. }
                | HoldingCommand::InstallPush(_)
                | HoldingCommand::RemovePush { .. },
            )
            | None => return,
        }
        if self.shards > 1 {
            self.map.renew(self.shards, self.rows.iter());
        }
    }
}

const UNPOISONED: &str = "no thread that held it has panicked";

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
    #[derive(Default, Debug)]
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

        fn handle_settled(&mut self) {
            self.0.push("settled".to_owned());
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
        control.exchange(Nanos(1), &mut Ear::default(), &mut Notes::none());
        assert!(!is_told(&control));
        control.exchange(Nanos(2), &mut Ear(Vec::new(), Some(train.clone())), &mut Notes::none());
        assert!(is_told(&control));
        assert_eq!(control.train(), Some(train));
        assert!(!is_told(&control));
        control.tell(job, Event::StoodDown { epoch: ServerEpoch(1) });
        assert!(is_told(&control));
    }

    #[test]
    fn a_lane_hears_of_a_controller_once_and_before_its_commands() {
        let (control, mut ear) = (NodeControl::default(), Ear::default());
        control.exchange(Nanos(1), &mut ear, &mut Notes::none());
        assert!(ear.0.is_empty(), "nobody said that there is one, or not");
        control.note_controller(false);
        control.exchange(Nanos(2), &mut ear, &mut Notes::none());
        control.exchange(Nanos(3), &mut ear, &mut Notes::none());
        control.note_controller(true);
        control.command(Command::Skip { job: JobId(0), below: OrderNumber(0) }).unwrap();
        control.exchange(Nanos(4), &mut ear, &mut Notes::none());
        assert_eq!(ear.0, ["false at 2", "true at 4", "command"]);
    }

    #[test]
    fn each_lane_hears_once_that_the_box_has_all() {
        let control = NodeControl::new(2, 4, 4);
        let mut ears = [Ear::default(), Ear::default()];
        for settles in [false, true, true] {
            if settles {
                control.note_settled();
            }
            let [first, second] = &mut ears;
            control.exchange(Nanos(1), first, &mut Notes::none());
            control.exchange_holdings(Nanos(1), 1, second, &mut Notes::none());
            let expected: &[&str] = if settles { &["settled"] } else { &[] };
            assert!(first.0 == expected && second.0 == expected, "{ears:?}");
        }
    }
}
