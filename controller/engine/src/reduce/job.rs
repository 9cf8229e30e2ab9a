//! One allreduce job: who its workers are, which round they stop before, and what its box holds.
//!
//! All workers stop before the same round, the boundary: they are asked to begin none any more, say
//! where they are, and are told the first round that nobody has begun; whoever is behind comes up
//! to it. A round ends for nobody before all have begun it, so those that a word did not reach come
//! at most to the round that the others will not begin; a boundary that was passed is moved up.
//!
//! A resize goes on from there: when all stand at the boundary they keep a checkpoint; when all
//! have said so the cohort is over, which is saved before anybody hears it; then the box forgets
//! the old lease and gets the new one, with a new map of ranks, and the new workers begin where the
//! old ones stopped. A lease that the box refuses brings the former width back.
//!
//! Invariants: a cohort ends once, with one boundary; no worker is told to end before what it kept
//! is known; the lease that is held when workers are welcomed is their cohort's.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_config::controller::ReduceConfig;
use weft_control::{
    Cohort, CohortId, Halt, HoldingCommand, HoldingError, JobState, RoundOrder, RoundPosition,
};
use weft_wire::{JobId, Rank};

use super::beginning::Beginning;
use super::places::placed;
use super::saved::SavedReduce;
use super::sizes::Sizes;
use super::stopping::Stopping;
use crate::message::NodeId;
use crate::steered::{PauseStatus, Resize, Steerer};

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
    /// A pause comes to nothing: why.
    Unpaused(String),
    /// A resize has come to its end.
    Resized(Result<Resize, String>),
}

/// An allreduce job.
#[derive(Debug)]
pub(crate) struct Reduce {
    pub(crate) config: ReduceConfig,
    pub(crate) id: JobId,
    pub(crate) node: NodeId,
    pub(super) cohort: Cohort,
    /// The place of each worker, in the order of the places.
    pub(super) places: Vec<u16>,
    /// Those that a resize stops for; empty: none does.
    pub(super) next_places: Vec<u16>,
    pub(super) phase: Phase,
    pub(super) workers: Vec<Worker>,
    /// Number of the order that workers follow.
    pub(super) turn: u32,
    /// Whether all workers have begun the cohort's first round.
    pub(super) beginning: Beginning,
    pub(super) box_: BoxState,
    /// The cohort whose lease the box holds.
    pub(super) leased: Option<CohortId>,
    /// The cohort whose lease the box was told to install last, when it had none.
    pub(super) leasing: Option<CohortId>,
    /// The resize that this cohort is the outcome of, while it begins.
    pub(super) begins: Option<Resize>,
    /// The places before, for a lease that is refused.
    pub(super) before: Option<Vec<u16>>,
    pub(super) resizes: VecDeque<Resize>,
    pub(super) pauses: PauseStatus,
    /// Rounds that all workers began, and what this controller's life saw of their work.
    pub(super) seen: Seen,
    pub(super) refused: Option<HoldingError>,
    pub(super) out: Vec<Out>,
    pub(super) is_unsaved: bool,
    /// What its stop waits for.
    pub(super) stopping: Stopping,
}

/// What was seen to run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Rounds that ended.
    pub(crate) rounds: u64,
    /// Bytes that workers gave to sums.
    pub(crate) bytes: u64,
    /// Time that it ran,
    pub(crate) executed_ns: u64,
    /// and that times its workers of the time.
    pub(crate) service_ns: u64,
    /// When the last round began.
    pub(super) last_ns: Option<u64>,
    /// How long rounds take at this width, smoothed.
    pub(crate) round_ns: u64,
    /// How large the tensors are.
    pub(crate) sizes: Sizes,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Phase {
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
pub(super) enum Why {
    Pause(Steerer),
    Resize(u16),
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Worker {
    pub(super) is_attached: bool,
    pub(super) is_welcome: bool,
    pub(super) life: u64,
    pub(super) position: RoundPosition,
}

/// What is known of the box.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct BoxState {
    pub(super) is_attached: bool,
    pub(super) has_share: bool,
    pub(super) has_row: bool,
    /// It was told about this cohort's lease, and has not answered.
    pub(super) asked: Option<CohortId>,
    /// Not before this: it refused.
    pub(super) retry_ns: Option<u64>,
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
        let count = u16::try_from(config.places.len()).unwrap_or(u16::MAX);
        let next_places = saved
            .resizing
            .map_or(Vec::new(), |to| placed(&saved.next_places, to, count).unwrap_or_default());
        let resizing = saved.resizing.filter(|_| !next_places.is_empty());
        let phase = match (saved.paused, resizing, saved.boundary) {
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
            places: placed(&saved.places, workers, count).unwrap_or_default(),
            next_places,
            phase,
            workers: vec![Worker::default(); usize::from(workers)],
            turn: 1,
            beginning: Beginning::restored(saved.has_begun),
            box_: BoxState::default(),
            leased: saved.leased.map(CohortId),
            leasing: saved.leasing.map(CohortId),
            begins: None,
            before: saved.before.and_then(|width| placed(&saved.before_places, width, count)),
            resizes: VecDeque::new(),
            pauses: PauseStatus::default(),
            seen: Seen::default(),
            refused: None,
            out: Vec::new(),
            is_unsaved: false,
            stopping: Stopping::default(),
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

    pub(crate) const fn cohort(&self) -> Cohort {
        self.cohort
    }

    /// The place of each worker, by rank.
    pub(crate) fn places(&self) -> &[u16] {
        &self.places
    }

    /// Where a worker calls from.
    pub(crate) fn address(&self, rank: Rank) -> Option<SocketAddr> {
        let place = self.places.get(rank.index())?;
        self.config.places.get(usize::from(*place)).map(|place| place.address)
    }

    /// Workers that a host has of it, or will have.
    pub(crate) fn workers_on(&self, host: &str) -> usize {
        let is_there = |place: &u16| {
            self.config.places.get(usize::from(*place)).is_some_and(|place| place.host == host)
        };
        let on = |places: &[u16]| places.iter().filter(|place| is_there(place)).count();
        on(&self.places).max(on(&self.next_places))
    }

    /// The largest tensor's part of all, once enough was seen.
    pub(crate) fn skew(&self) -> Option<f64> {
        self.seen.sizes.skew()
    }

    /// It has not begun, and begins at these places.
    pub(super) fn begin_at(&mut self, places: Vec<u16>) {
        self.places = places;
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
        self.is_leased() && !self.beginning.is_seen && self.attached() < self.workers.len()
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
            Phase::Running if self.cohort.id.0 > 0 && !self.beginning.is_seen => JobState::Resizing,
            Phase::Running => JobState::Running,
            Phase::Halting { why: Why::Pause(_), .. } => JobState::Pausing,
            Phase::Halting { why: Why::Resize(_), .. } | Phase::Leaving { .. } => {
                JobState::Resizing
            }
            Phase::Paused { .. } => JobState::Paused,
        }
    }

    /// Its rounds, if one of its workers has begun the last: all will, and none comes after it.
    pub(super) fn ending(&self) -> Option<u64> {
        self.config.rounds.filter(|rounds| self.next_round() >= *rounds)
    }

    pub(super) const fn order(&self) -> RoundOrder {
        match self.phase {
            Phase::Running => RoundOrder::Go,
            Phase::Halting { boundary: None, .. } => RoundOrder::Hold,
            Phase::Halting { boundary: Some(boundary), .. } | Phase::Paused { boundary, .. } => {
                RoundOrder::Stop(boundary)
            }
            Phase::Leaving { boundary, .. } => RoundOrder::Leave(boundary),
        }
    }

    pub(super) fn turn_to(&mut self, phase: Phase) {
        let before = self.state();
        self.phase = phase;
        if phase == Phase::Running {
            // Nobody worked since the last round began.
            self.seen.last_ns = None;
            self.next_places.clear();
        }
        if self.state() != before {
            self.out.push(Out::State(self.state(), None));
        }
        self.say();
    }

    /// Gives everybody the order of the phase.
    pub(super) fn say(&mut self) {
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
}
