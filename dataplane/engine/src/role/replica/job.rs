//! A job at its replica: what it owns, and the groups whose copies are staged.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use weft_control::{BoxIndex, Command, Event, GroupDescriptor, InstallError, is_pushed};
use weft_kernel::Kernels;
use weft_wire::frame::Endpoint;
use weft_wire::header::{ElementType, Outcome};
use weft_wire::quant::is_exponent;
use weft_wire::{GroupId, JobId, Members, Nanos};

use super::config::ReplicaJobConfig;
use super::fetch::Fetch;
use super::heir::Heir;
use super::stats::ReplicaJobStats;
use crate::random::SplitMix64;
use crate::role::Verdict;
use crate::role::channel::{ChannelClient, ChannelHost};
use crate::role::model::{
    Incoming, Model, ModelJob, ModelState, ModelView, Outcomes, Refusal, StageIndex, StagePool,
};

/// A job at its replica.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) config: ReplicaJobConfig,
    pub(super) chunks: u32,
    /// Copies come in over these.
    pub(super) host: ChannelHost,
    /// Decisions and repairs come in over this.
    pub(super) server: ChannelClient,
    pub(super) model: Model,
    /// The last decided updates of each worker.
    pub(super) outcomes: Outcomes,
    pub(super) pool: StagePool,
    pub(super) groups: Vec<Option<Held>>,
    /// Everything below is applied.
    pub(super) next_order: u64,
    /// The order number that the server decides next, as far as is known.
    pub(super) server_order: u64,
    /// Decisions from `next_order` on; `None` where one is missing.
    pub(super) decisions: VecDeque<Option<Heard>>,
    pub(super) fetch: Fetch,
    pub(super) phase: Phase,
    /// The model that is being fetched.
    pub(super) draft: Draft,
    pub(super) status_at: Nanos,
    /// The server must be told of progress.
    pub(super) owes_status: bool,
    /// The server has restarted since the model came from it: its numbers are other ones.
    pub(super) is_anew: bool,
    /// The model came as a whole once: which updates are in it is not all known here.
    pub(super) is_patchy: bool,
    pub(super) heir: Heir,
    /// When the server last said anything.
    pub(super) heard_at: Nanos,
    events: VecDeque<Event>,
    pub(super) stats: ReplicaJobStats,
    pub(super) is_dirty: bool,
    /// When something becomes due by itself.
    pub(super) grace_until: Nanos,
}

/// What the replica is doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// Applying decisions.
    Follow,
    /// The sum of the next decision is being fetched into this stage.
    Repair(StageIndex),
    /// Asking for a version to begin with.
    Ask,
    /// Fetching it.
    Copy {
        /// Its generation.
        generation: u16,
    },
}

/// A group whose copies are staged.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) id: GroupId,
    pub(super) order: u64,
    pub(super) mask: Members,
    pub(super) element_type: ElementType,
    pub(super) exponent: i8,
    pub(super) via: Option<BoxIndex>,
    pub(super) stage: StageIndex,
    /// A chunk was put together from parts here.
    pub(super) is_composed: bool,
    pub(super) chunks_staged: u32,
}

/// A decision that was heard of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    /// The order number that is decided next: one more, but for a run of numbers that nobody has.
    pub(super) after: u64,
    pub(super) group: GroupId,
    pub(super) outcome: Outcome,
    pub(super) members: Members,
    pub(super) element_type: ElementType,
    pub(super) exponent: i8,
    pub(super) delay: u16,
    pub(super) is_composed: bool,
    pub(super) at: Nanos,
}

/// A model on its way.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) version: u64,
    pub(super) next_order: u64,
    pub(super) w: Vec<f32>,
    pub(super) h: Vec<f32>,
    pub(super) has: Vec<bool>,
    pub(super) missing: u32,
}

impl ModelJob for Job {
    fn id(&self) -> JobId {
        self.id()
    }

    fn handle_frame(&mut self, incoming: &mut Incoming<'_>) -> Result<Verdict, Refusal> {
        self.receive(incoming)
    }

    fn handle_command(&mut self, _now: Nanos, command: &Command) {
        self.is_dirty = true;
        match command {
            Command::Install(descriptor) => {
                let group = descriptor.group;
                let event = match self.install(descriptor) {
                    Ok(()) => Event::Installed { group },
                    Err(error) => Event::Refused { group, error },
                };
                self.tell(event);
            }
            Command::Remove { group, .. } => {
                if let Some(at) = self.held(*group) {
                    self.let_go(at);
                }
            }
            Command::LeaveReplica { .. } => self.be_left(),
            // The server judges who is in a sum; what it says comes with the decision.
            // A promotion is the seat's.
            Command::CloseMember { .. }
            | Command::SetRate { .. }
            | Command::Skip { .. }
            | Command::Promote { .. }
            | Command::MoveServer { .. }
            | Command::StandDown { .. }
            | Command::Holding(_) => {}
        }
    }

    fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        self.transmit(now, frame)
    }

    fn poll_timeout(&self) -> Nanos {
        self.due_at()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

impl Job {
    pub(super) fn new(
        config: &ReplicaJobConfig,
        local: Endpoint,
        mut random: SplitMix64,
        kernels: &'static Kernels,
    ) -> Self {
        let shape = &config.model;
        let (chunks, elements) = (shape.chunks(), usize::from(shape.elements));
        let len = chunks as usize * elements;
        let mut model = Model::new(kernels, shape.momentum, len);
        model.w[..config.initial.len()].copy_from_slice(&config.initial);
        model.version = config.initial_version.0;
        let life = random.next_non_zero();
        let server = ChannelClient::new(config.client(local), life, Nanos(0));
        let (rto_min, rto_max) = (Nanos(config.rto_min_ns), Nanos(config.rto_max_ns));
        // One stage more than may be open, for the sum that is repaired.
        let stages = config.stages_open() + 1;
        let groups = core::iter::repeat_with(|| None).take(usize::from(config.groups_open_max));
        Self {
            chunks,
            host: ChannelHost::new(&config.host(local), random),
            server: server.expect("the configuration was checked"),
            model,
            outcomes: Outcomes::new(config.workers.len()),
            pool: StagePool::new(kernels, stages, chunks as usize, elements),
            groups: groups.collect(),
            next_order: config.initial_order.0,
            server_order: config.initial_order.0,
            decisions: VecDeque::from(vec![None; DECISIONS_MAX]),
            fetch: Fetch::new(config.window_max, rto_min, rto_max),
            phase: Phase::Follow,
            draft: Draft {
                version: 0,
                next_order: 0,
                w: vec![0.0; len],
                h: vec![0.0; len],
                has: vec![false; 2 * chunks as usize],
                missing: 0,
            },
            status_at: Nanos(0),
            owes_status: true,
            is_anew: false,
            is_patchy: false,
            heir: Heir::default(),
            heard_at: Nanos(0),
            events: VecDeque::with_capacity(EVENTS_MAX),
            stats: ReplicaJobStats::default(),
            is_dirty: true,
            grace_until: Nanos::MAX,
            config: config.clone(),
        }
    }

    pub(super) fn id(&self) -> JobId {
        self.config.model.job
    }

    pub(super) fn stats(&self) -> &ReplicaJobStats {
        &self.stats
    }

    pub(super) fn view(&self) -> ModelView<'_> {
        self.model.view(self.config.model.dimension, self.next_order)
    }

    /// Everything that a server in the place of this one's must know.
    pub(super) fn state(&self) -> ModelState {
        let model = self.model.state(self.config.model.dimension, self.next_order);
        ModelState { workers: self.outcomes.state(), ..model }
    }

    pub(super) fn tell(&mut self, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        } else {
            self.stats.events_lost += 1;
        }
    }

    fn install(&mut self, descriptor: &GroupDescriptor) -> Result<(), InstallError> {
        let shape = &self.config.model;
        let mask = descriptor.mask();
        let fits = !mask.is_empty()
            && mask.len() == descriptor.members.len()
            && self.host.worker_mask().contains(mask)
            && descriptor.chunks == self.chunks
            && descriptor.elements == shape.elements
            && is_pushed(descriptor.element_type)
            && is_exponent(descriptor.exponent);
        if !fits {
            return Err(InstallError::Shape);
        }
        if let Some(at) = self.held(descriptor.group) {
            let order = self.groups[at].as_ref().map(|held| held.order);
            let is_known = order == Some(descriptor.order.0);
            return if is_known { Ok(()) } else { Err(InstallError::RowTaken) };
        }
        if descriptor.order.0 < self.next_order {
            return Err(InstallError::Order);
        }
        let at = self.groups.iter().position(Option::is_none).ok_or(InstallError::Full)?;
        // The last stage is for repairs.
        if self.pool.free_count() < 2 && !matches!(self.phase, Phase::Repair(_)) {
            return Err(InstallError::Full);
        }
        let stage = self.pool.take().ok_or(InstallError::Full)?;
        self.groups[at] = Some(Held {
            id: descriptor.group,
            order: descriptor.order.0,
            mask,
            element_type: descriptor.element_type,
            exponent: descriptor.exponent,
            via: descriptor.via,
            stage,
            is_composed: false,
            chunks_staged: 0,
        });
        Ok(())
    }

    /// The place of a group that is staged.
    pub(super) fn held(&self, id: GroupId) -> Option<usize> {
        self.groups.iter().position(|held| held.as_ref().is_some_and(|held| held.id == id))
    }

    fn let_go(&mut self, at: usize) {
        if let Some(held) = self.groups[at].take() {
            self.pool.give_back(held.stage);
        }
    }

    /// Lets go of copies of groups that are decided and done with.
    pub(super) fn forget_past(&mut self) {
        for at in 0..self.groups.len() {
            if self.groups[at].as_ref().is_some_and(|held| held.order < self.next_order) {
                self.let_go(at);
            }
        }
    }

    pub(super) fn measure_lag(&mut self) {
        self.server_order = self.server_order.max(self.next_order);
        self.stats.lag = self.server_order - self.next_order;
        self.stats.lag_max = self.stats.lag_max.max(self.stats.lag);
    }

    /// Gives up a repair that is under way.
    pub(super) fn end_repair(&mut self) {
        if let Phase::Repair(stage) = self.phase {
            self.pool.give_back(stage);
        }
    }
}

/// Decisions that are kept ahead of the next.
pub(super) const DECISIONS_MAX: usize = 64;
/// Events kept until somebody takes them.
const EVENTS_MAX: usize = 4096;
