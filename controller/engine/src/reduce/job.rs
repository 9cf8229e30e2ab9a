//! One allreduce job: who its workers are, which round they stop before, and what its box holds.
//!
//! All workers stop before the same round, the boundary: they are asked to begin none any more, say
//! where they are, and are told the first round that nobody has begun; whoever is behind comes up to
//! it. A round ends for nobody before all have begun it, so those that a word did not reach come at
//! most to the round that the others will not begin; a boundary that was passed is moved up.
//!
//! A resize goes on from there: when all stand at the boundary they keep a checkpoint; when all have
//! said so the cohort is over, which is saved before anybody hears it; then the box forgets the old
//! lease and gets the new one, with a new map of ranks, and the new workers begin where the old ones
//! stopped. A lease that the box refuses brings the former width back.
//!
//! Invariants: a cohort ends once, with one boundary; no worker is told to end before what it kept
//! is known; the lease that is held when workers are welcomed is their cohort's.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use weft_config::controller::ReduceConfig;
use weft_control::{
    Cohort, CohortId, Event, Halt, Holding, HoldingCommand, HoldingError, JobState, RoundOrder,
    RoundPosition,
};
use weft_wire::{JobId, Rank};

use super::saved::SavedReduce;
use super::{Resize, lease};
use crate::message::NodeId;
use crate::pause::{SteerError, Steerer};
use crate::status::PauseStatus;

/// What is to be done about a job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Out {
    /// Tell a worker who its cohort is.
    Welcome(Rank),
    /// Tell a worker what it may do.
    Order(Rank, u32, RoundOrder),
    /// Tell the box.
    Hold(HoldingCommand),
    /// The job does something else now.
    State(JobState, Option<u64>),
    /// A resize has come to its end.
    Resized(Result<Resize, String>),
}

/// An allreduce job.
#[derive(Debug)]
pub(crate) struct Reduce {
    pub(crate) config: ReduceConfig,
    pub(crate) id: JobId,
    pub(crate) node: NodeId,
    cohort: Cohort,
    phase: Phase,
    workers: Vec<Worker>,
    /// Number of the order that workers follow.
    turn: u32,
    /// All workers have begun the cohort's first round.
    has_begun: bool,
    box_: BoxState,
    /// The cohort whose lease the box holds.
    leased: Option<CohortId>,
    /// The resize that this cohort is the outcome of, while it begins.
    begins: Option<Resize>,
    /// The width before, for a lease that is refused.
    before: Option<u16>,
    resizes: VecDeque<Resize>,
    pauses: PauseStatus,
    /// Rounds that all workers began, and what this controller's life saw of their work.
    seen: Seen,
    refused: Option<HoldingError>,
    out: Vec<Out>,
    is_unsaved: bool,
}

/// What was seen to run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Rounds that ended.
    pub(crate) rounds: u64,
    /// Bytes that workers gave to sums.
    pub(crate) bytes: u64,
    /// Workers x time, while it ran.
    pub(crate) service_ns: u64,
    /// When the last round began.
    last_ns: Option<u64>,
    /// How long rounds take at this width, smoothed.
    pub(crate) round_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Running,
    /// Asked where they are, or told a boundary.
    Halting {
        why: Why,
        asked_ns: Option<u64>,
        boundary: Option<u64>,
    },
    /// All stand at the boundary, and keep a checkpoint.
    Leaving {
        to: u16,
        asked_ns: Option<u64>,
        stood_ns: u64,
        boundary: u64,
    },
    /// All stand at the boundary.
    Paused {
        by: Steerer,
        boundary: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Why {
    Pause(Steerer),
    Resize(u16),
}

#[derive(Clone, Copy, Debug, Default)]
struct Worker {
    is_attached: bool,
    is_welcome: bool,
    life: u64,
    position: RoundPosition,
}

/// What is known of the box.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct BoxState {
    is_attached: bool,
    has_share: bool,
    has_row: bool,
    /// It was told about this cohort's lease, and has not answered.
    asked: Option<CohortId>,
    /// Not before this: it refused.
    retry_ns: Option<u64>,
}

impl Reduce {
    pub(crate) fn new(config: ReduceConfig, node: NodeId, saved: &SavedReduce) -> Self {
        let workers = saved.workers.unwrap_or(config.workers);
        let cohort = Cohort {
            id: CohortId(saved.cohort),
            workers,
            workers_first: config.workers,
            from_round: saved.from_round,
        };
        let phase = match (saved.paused, saved.resizing, saved.boundary) {
            (Some(by), _, Some(boundary)) if saved.stands => Phase::Paused { by, boundary },
            (Some(by), _, boundary) => {
                Phase::Halting { why: Why::Pause(by), asked_ns: None, boundary }
            }
            (None, Some(to), boundary) => {
                Phase::Halting { why: Why::Resize(to), asked_ns: None, boundary }
            }
            (None, None, _) => Phase::Running,
        };
        Self {
            id: JobId(config.index),
            node,
            cohort,
            phase,
            workers: vec![Worker::default(); usize::from(workers)],
            turn: 1,
            has_begun: false,
            box_: BoxState::default(),
            leased: saved.leased.map(CohortId),
            begins: None,
            before: saved.before,
            resizes: VecDeque::new(),
            pauses: PauseStatus::default(),
            seen: Seen::default(),
            refused: None,
            out: Vec::new(),
            is_unsaved: false,
            config,
        }
    }

    /// The next thing to do.
    pub(crate) fn poll_out(&mut self) -> Vec<Out> {
        core::mem::take(&mut self.out)
    }

    /// Something has changed that the next life must know. Asked once.
    pub(crate) fn take_unsaved(&mut self) -> bool {
        core::mem::take(&mut self.is_unsaved)
    }

    pub(crate) fn save(&self) -> SavedReduce {
        let mut saved = SavedReduce {
            cohort: self.cohort.id.0,
            workers: Some(self.cohort.workers),
            from_round: self.cohort.from_round,
            leased: self.leased.map(|cohort| cohort.0),
            before: self.before,
            ..SavedReduce::default()
        };
        match self.phase {
            Phase::Running => {}
            Phase::Halting { why: Why::Pause(by), boundary, .. } => {
                (saved.paused, saved.boundary) = (Some(by), boundary);
            }
            Phase::Halting { why: Why::Resize(to), boundary, .. } => {
                (saved.resizing, saved.boundary) = (Some(to), boundary);
            }
            Phase::Leaving { to, boundary, .. } => {
                (saved.resizing, saved.boundary) = (Some(to), Some(boundary));
            }
            Phase::Paused { by, boundary } => {
                (saved.paused, saved.boundary, saved.stands) = (Some(by), Some(boundary), true);
            }
        }
        saved
    }

    pub(crate) const fn cohort(&self) -> Cohort {
        self.cohort
    }

    pub(crate) const fn seen(&self) -> Seen {
        self.seen
    }

    pub(crate) const fn pauses(&self) -> PauseStatus {
        self.pauses
    }

    pub(crate) fn resizes(&self) -> impl Iterator<Item = Resize> + '_ {
        self.resizes.iter().copied()
    }

    pub(crate) const fn refused(&self) -> Option<HoldingError> {
        self.refused
    }

    pub(crate) fn attached(&self) -> usize {
        self.workers.iter().filter(|worker| worker.is_attached).count()
    }

    /// The lease is in, and workers are missing that begin.
    pub(crate) fn wants_workers(&self) -> bool {
        self.is_leased() && !self.has_begun && self.attached() < self.workers.len()
    }

    pub(crate) fn is_leased(&self) -> bool {
        self.leased == Some(self.cohort.id) && self.box_.has_row
    }

    pub(crate) fn boundary(&self) -> Option<u64> {
        match self.phase {
            Phase::Running => None,
            Phase::Halting { boundary, .. } => boundary,
            Phase::Leaving { boundary, .. } | Phase::Paused { boundary, .. } => Some(boundary),
        }
    }

    /// The round that the first worker begins next.
    pub(crate) fn next_round(&self) -> u64 {
        let next = self.workers.iter().map(|worker| worker.position.next).max().unwrap_or(0);
        next.max(self.cohort.from_round)
    }

    pub(crate) fn state(&self) -> JobState {
        match self.phase {
            Phase::Running if self.cohort.id.0 > 0 && !self.has_begun => JobState::Resizing,
            Phase::Running => JobState::Running,
            Phase::Halting { why: Why::Pause(_), .. } => JobState::Pausing,
            Phase::Halting { why: Why::Resize(_), .. } | Phase::Leaving { .. } => {
                JobState::Resizing
            }
            Phase::Paused { .. } => JobState::Paused,
        }
    }

    // What people and policies say.

    pub(crate) fn pause(&mut self, now_ns: u64, by: Steerer) -> Result<(), SteerError> {
        match &mut self.phase {
            Phase::Running => {
                let why = Why::Pause(by);
                self.turn_to(Phase::Halting { why, asked_ns: Some(now_ns), boundary: None });
                Ok(())
            }
            Phase::Halting { why: Why::Pause(held), .. } | Phase::Paused { by: held, .. }
                if *held < by =>
            {
                *held = by;
                self.is_unsaved = true;
                Ok(())
            }
            Phase::Halting { why: Why::Resize(_), .. } | Phase::Leaving { .. } => {
                Err(SteerError::Resizing)
            }
            Phase::Halting { .. } | Phase::Paused { .. } => Err(SteerError::Paused(self.state())),
        }
    }

    pub(crate) fn resume(&mut self, by: Steerer) -> Result<(), SteerError> {
        match self.phase {
            Phase::Halting { why: Why::Pause(held), .. } | Phase::Paused { by: held, .. } => {
                if held > by {
                    return Err(SteerError::Operators);
                }
                self.turn_to(Phase::Running);
                Ok(())
            }
            Phase::Halting { .. } | Phase::Leaving { .. } => Err(SteerError::Resizing),
            Phase::Running => Err(SteerError::NotPaused(self.state())),
        }
    }

    /// `to` fits places and slots.
    pub(crate) fn resize(&mut self, now_ns: u64, to: u16) -> Result<(), SteerError> {
        match self.phase {
            Phase::Running if self.state() == JobState::Resizing => Err(SteerError::Resizing),
            Phase::Running if to == self.cohort.workers => Err(SteerError::SameWidth(to)),
            Phase::Running => {
                let why = Why::Resize(to);
                self.turn_to(Phase::Halting { why, asked_ns: Some(now_ns), boundary: None });
                Ok(())
            }
            Phase::Halting { why: Why::Pause(_), .. } | Phase::Paused { .. } => {
                Err(SteerError::Paused(self.state()))
            }
            Phase::Halting { .. } | Phase::Leaving { .. } => Err(SteerError::Resizing),
        }
    }

    // What workers say.

    /// A worker attaches. Which round a cohort's worker begins next it says itself.
    pub(crate) fn attach(
        &mut self,
        rank: Rank,
        life: u64,
        cohort: CohortId,
        position: RoundPosition,
    ) -> Result<(), String> {
        let current = self.cohort;
        if cohort < current.id {
            return Err("bye".into());
        }
        if cohort > current.id {
            return Err(format!("is {}; the job's workers are cohort {}", cohort.0, current.id.0));
        }
        let Some(worker) = self.workers.get_mut(rank.index()) else {
            return Err(format!("ranks of cohort {} are below {}", cohort.0, current.workers));
        };
        let is_new = worker.life != life && worker.life != 0;
        if position.next < current.from_round || (is_new && self.has_begun) {
            let from_round = current.from_round;
            return Err(format!(
                "begins with round {}; the cohort began with {from_round}, and a worker of it that \
                 was lost does not come back: resize or start the job again",
                position.next
            ));
        }
        *worker = Worker {
            is_attached: true,
            is_welcome: false,
            life,
            // What it follows it is told anew on this stream.
            position: RoundPosition { turn: 0, halt: Halt::None, ..position },
        };
        self.welcome();
        Ok(())
    }

    pub(crate) fn detach(&mut self, rank: Rank) {
        if let Some(worker) = self.workers.get_mut(rank.index()) {
            worker.is_attached = false;
            worker.is_welcome = false;
        }
    }

    pub(crate) fn is_attached(&self, rank: Rank) -> bool {
        self.workers.get(rank.index()).is_some_and(|worker| worker.is_attached)
    }

    /// A worker begins a round, with so many bytes to sum.
    pub(crate) fn begin(&mut self, now_ns: u64, rank: Rank, round: u64, bytes: u64) {
        let Some(worker) = self.workers.get_mut(rank.index()) else { return };
        worker.position.next = worker.position.next.max(round.saturating_add(1));
        self.seen.bytes = self.seen.bytes.saturating_add(bytes);
        if rank.index() == 0 {
            self.count_round(now_ns);
        }
        self.note_begun(now_ns);
        self.advance(now_ns);
    }

    /// A worker says where it is.
    pub(crate) fn position(&mut self, now_ns: u64, rank: Rank, position: RoundPosition) {
        let turn = self.turn;
        let Some(worker) = self.workers.get_mut(rank.index()) else { return };
        let halt = if position.turn == turn { position.halt } else { Halt::None };
        let next = worker.position.next.max(position.next);
        worker.position = RoundPosition { halt, next, ..position };
        self.note_begun(now_ns);
        self.advance(now_ns);
    }

    // What the box says.

    pub(crate) fn attach_box(&mut self, has: impl Fn(Holding) -> bool) {
        self.box_ = BoxState {
            is_attached: true,
            has_share: has(Holding::Job),
            has_row: has(Holding::Row(self.config.row)),
            ..BoxState::default()
        };
        if !self.box_.has_row && self.leased.is_some() {
            self.leased = None;
            self.is_unsaved = true;
        }
        self.lease();
    }

    pub(crate) fn detach_box(&mut self) {
        self.box_ = BoxState { has_row: self.box_.has_row, ..BoxState::default() };
    }

    pub(crate) fn handle_box(&mut self, now_ns: u64, event: &Event) {
        let own_row = Holding::Row(self.config.row);
        match *event {
            Event::HoldingInstalled { holding: Holding::Job } => self.box_.has_share = true,
            Event::HoldingRemoved { holding: Holding::Job } => self.box_.has_share = false,
            Event::HoldingInstalled { holding } if holding == own_row => {
                self.box_.has_row = true;
                // Else somebody else installed it, and it is not known to be the cohort's.
                if self.box_.asked.is_some() {
                    self.leased = self.box_.asked;
                    self.is_unsaved = true;
                }
                if self.leased == Some(self.cohort.id) {
                    (self.before, self.refused) = (None, None);
                    if let Some(resize) = &mut self.begins {
                        resize.leased(now_ns);
                    }
                }
            }
            Event::HoldingRemoved { holding } if holding == own_row => self.box_.has_row = false,
            Event::HoldingRefused { holding, error } => {
                if holding == Holding::Job && error == HoldingError::Taken {
                    self.box_.has_share = true;
                } else if holding == own_row && error == HoldingError::Missing {
                    self.box_.has_row = false;
                } else {
                    self.lease_refused(now_ns, error);
                }
            }
            _ => return,
        }
        self.box_.asked = None;
        self.lease();
        self.welcome();
    }

    /// When a lease that was refused is asked for again.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.box_.retry_ns.filter(|_| self.box_.is_attached)
    }

    pub(crate) fn handle_timeout(&mut self, now_ns: u64) {
        if self.due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            self.box_.retry_ns = None;
            self.lease();
        }
        self.advance(now_ns);
    }

    /// Has the box hold the cohort's lease and no other, one command at a time.
    fn lease(&mut self) {
        let BoxState { is_attached, has_share, has_row, asked, retry_ns } = self.box_;
        let is_wanted = !matches!(self.phase, Phase::Leaving { .. });
        if !is_attached || asked.is_some() || retry_ns.is_some() || !is_wanted {
            return;
        }
        let job = self.id;
        let command = if has_row && self.leased != Some(self.cohort.id) {
            HoldingCommand::RemoveLease { job, row: self.config.row }
        } else if !has_share {
            HoldingCommand::InstallJob(lease::share(&self.config))
        } else if !has_row {
            HoldingCommand::InstallLease(lease::row(&self.config, self.cohort.workers))
        } else {
            return;
        };
        self.box_.asked = Some(self.cohort.id);
        self.out.push(Out::Hold(command));
    }

    fn lease_refused(&mut self, now_ns: u64, error: HoldingError) {
        self.refused = Some(error);
        self.box_.retry_ns = Some(now_ns.saturating_add(LEASE_RETRY_NS));
        // The width that was there before fits: it did.
        let Some(before) = self.before.take() else { return };
        let problem = format!(
            "the aggregator refuses the lease of {} workers, so the job goes on with {before}: {}",
            self.cohort.workers, error
        );
        self.box_.retry_ns = None;
        self.begins = None;
        self.begin_cohort(before, self.cohort.from_round);
        self.out.push(Out::Resized(Err(problem)));
    }

    fn begin_cohort(&mut self, workers: u16, from_round: u64) {
        let id = CohortId(self.cohort.id.0.saturating_add(1));
        self.cohort = Cohort { id, workers, from_round, ..self.cohort };
        self.workers = vec![Worker::default(); usize::from(workers)];
        self.phase = Phase::Running;
        (self.has_begun, self.turn) = (false, self.turn.wrapping_add(1).max(1));
        (self.seen.last_ns, self.seen.round_ns) = (None, 0);
        self.is_unsaved = true;
    }

    /// Welcomes whoever waits, once the lease is in.
    fn welcome(&mut self) {
        if !self.is_leased() {
            return;
        }
        let (order, turn) = (self.order(), self.turn);
        for (worker, rank) in self.workers.iter_mut().zip(0u8..) {
            let Some(rank) = Rank::new(rank).filter(|_| worker.is_attached) else { continue };
            if !worker.is_welcome {
                worker.is_welcome = true;
                self.out.push(Out::Welcome(rank));
                self.out.push(Out::Order(rank, turn, order));
            }
        }
    }

    const fn order(&self) -> RoundOrder {
        match self.phase {
            Phase::Running => RoundOrder::Go,
            Phase::Halting { boundary: None, .. } => RoundOrder::Hold,
            Phase::Halting { boundary: Some(boundary), .. } | Phase::Paused { boundary, .. } => {
                RoundOrder::Stop(boundary)
            }
            Phase::Leaving { boundary, .. } => RoundOrder::Leave(boundary),
        }
    }

    fn turn_to(&mut self, phase: Phase) {
        let before = self.state();
        self.phase = phase;
        if self.state() != before {
            self.out.push(Out::State(self.state(), None));
        }
        self.say();
    }

    /// Gives everybody the order of the phase.
    fn say(&mut self) {
        self.is_unsaved = true;
        self.turn = self.turn.wrapping_add(1).max(1);
        let (order, turn) = (self.order(), self.turn);
        for (worker, rank) in self.workers.iter_mut().zip(0u8..) {
            worker.position.halt = Halt::None;
            if let Some(rank) = Rank::new(rank).filter(|_| worker.is_welcome) {
                self.out.push(Out::Order(rank, turn, order));
            }
        }
    }

    fn all(&self, is_so: impl Fn(&RoundPosition) -> bool) -> bool {
        self.workers.iter().all(|worker| worker.is_attached && is_so(&worker.position))
    }

    /// Goes as far as what workers said allows.
    fn advance(&mut self, now_ns: u64) {
        match self.phase {
            Phase::Running => {}
            Phase::Halting { why, asked_ns, boundary: None } => {
                if self.all(|at| at.halt >= Halt::Held) {
                    let boundary = Some(self.next_round());
                    self.turn_to(Phase::Halting { why, asked_ns, boundary });
                }
            }
            Phase::Halting { why, asked_ns, boundary: Some(boundary) } => {
                if self.next_round() > boundary {
                    let boundary = Some(self.next_round());
                    self.turn_to(Phase::Halting { why, asked_ns, boundary });
                } else if self.all(|at| at.halt >= Halt::Stopped && at.next == boundary) {
                    self.stand(now_ns, why, asked_ns, boundary);
                }
            }
            // Those that a former life had stand.
            Phase::Paused { by, boundary } => {
                if self.next_round() > boundary {
                    let (why, boundary) = (Why::Pause(by), Some(self.next_round()));
                    self.turn_to(Phase::Halting { why, asked_ns: None, boundary });
                }
            }
            Phase::Leaving { to, asked_ns, stood_ns, boundary } => {
                if self.all(|at| at.halt == Halt::Left && at.next == boundary) {
                    self.leave(now_ns, to, (asked_ns, stood_ns), boundary);
                }
            }
        }
    }

    /// All stand at the boundary.
    fn stand(&mut self, now_ns: u64, why: Why, asked_ns: Option<u64>, boundary: u64) {
        let after_ns = asked_ns.map(|asked_ns| now_ns.saturating_sub(asked_ns));
        match why {
            Why::Pause(by) => {
                self.phase = Phase::Paused { by, boundary };
                self.is_unsaved = true;
                if let Some(after_ns) = after_ns {
                    self.pauses.note(after_ns);
                }
                self.out.push(Out::State(JobState::Paused, after_ns));
            }
            Why::Resize(to) => {
                self.turn_to(Phase::Leaving { to, asked_ns, stood_ns: now_ns, boundary });
            }
        }
    }

    /// All have kept what is needed: the cohort is over.
    fn leave(&mut self, now_ns: u64, to: u16, at: (Option<u64>, u64), boundary: u64) {
        let (asked_ns, stood_ns) = at;
        let from = self.cohort.workers;
        let mut over = Vec::new();
        for (worker, rank) in self.workers.iter().zip(0u8..) {
            over.extend(Rank::new(rank).filter(|_| worker.is_attached));
        }
        self.before = Some(from);
        self.begins = Some(Resize {
            from,
            to,
            round: boundary,
            stop_ns: asked_ns.map_or(0, |asked_ns| stood_ns.saturating_sub(asked_ns)),
            checkpoint_ns: now_ns.saturating_sub(stood_ns),
            lease_ns: 0,
            start_ns: 0,
            since_ns: now_ns,
        });
        self.begin_cohort(to, boundary);
        let turn = self.turn;
        self.out.extend(over.into_iter().map(|rank| Out::Order(rank, turn, RoundOrder::Bye)));
        self.lease();
    }

    fn note_begun(&mut self, now_ns: u64) {
        let from_round = self.cohort.from_round;
        if self.has_begun || !self.all(|at| at.next > from_round) {
            return;
        }
        let before = self.state();
        self.has_begun = true;
        if let Some(mut resize) = self.begins.take() {
            resize.begun(now_ns);
            if self.resizes.len() >= RESIZES_MAX {
                self.resizes.pop_front();
            }
            self.resizes.push_back(resize);
            self.out.push(Out::Resized(Ok(resize)));
        }
        if self.state() != before {
            self.out.push(Out::State(self.state(), None));
        }
    }

    fn count_round(&mut self, now_ns: u64) {
        let width = u64::from(self.cohort.workers);
        if let Some(last_ns) = self.seen.last_ns.replace(now_ns) {
            let span_ns = now_ns.saturating_sub(last_ns);
            self.seen.rounds += 1;
            // While it is told to stop, or stood still since, time passes that it did not work.
            if self.phase == Phase::Running {
                self.seen.service_ns = self.seen.service_ns.saturating_add(span_ns * width);
                let old_ns = self.seen.round_ns;
                self.seen.round_ns =
                    if old_ns == 0 { span_ns } else { old_ns - old_ns / 8 + span_ns / 8 };
            }
        }
    }
}

/// How long a box that refused a lease is left alone.
const LEASE_RETRY_NS: u64 = 1_000_000_000;
/// Resizes that are remembered.
const RESIZES_MAX: usize = 16;
