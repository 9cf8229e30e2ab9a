//! A job at its server: everything it owns, and what it is told.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use weft_control::{Command, Event, GROUPS_OPEN_MAX, ServerEpoch};
use weft_kernel::Kernels;
use weft_wire::frame::Endpoint;
use weft_wire::header::{HEADER_LEN, Header};
use weft_wire::rows::ROW_DIRECT;
use weft_wire::{GroupId, JobId, Nanos};

use super::announce::Presence;
use super::commit::Holes;
use super::config::ServerJobConfig;
use super::durable::Journal;
use super::follow::ReplicaLink;
use super::group::{Group, OpenIndex, bucket};
use super::log::Log;
use super::source::{Source, SourceId};
use super::stats::ServerJobStats;
use crate::drops::DropReason;
use crate::random::SplitMix64;
use crate::role::Verdict;
use crate::role::channel::{ChannelHost, Peer};
use crate::role::model::ModelConfigError;
use crate::role::model::{
    Incoming, Model, ModelJob, ModelState, ModelView, Outcomes, Refusal, Snapshots, StagePool,
};
use crate::send::pacer::TokenBucket;

/// A job at its server.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) config: ServerJobConfig,
    pub(super) chunks: u32,
    /// Bytes of the Ethernet frame of a chunk.
    pub(super) chunk_frame_len: u64,
    pub(super) host: ChannelHost,
    pub(super) model: Model,
    pub(super) snapshots: Snapshots,
    pub(super) pool: StagePool,
    pub(super) groups: Vec<Option<Group>>,
    /// Rows of installed groups.
    pub(super) rows: Vec<Option<OpenIndex>>,
    /// Open direct groups of each worker, by the low bits of their generation.
    pub(super) direct: Vec<[Option<OpenIndex>; DIRECT_OPEN_MAX]>,
    /// Open groups in the order of their numbers.
    pub(super) plan: Vec<OpenIndex>,
    pub(super) open_count: usize,
    pub(super) next_order: u64,
    /// Since when the next order number is missing although later ones are there.
    pub(super) holes: Holes,
    /// Members by rank, then boxes by index.
    pub(super) sources: Vec<Source>,
    pub(super) bucket: Option<TokenBucket>,
    /// When the last chunk came.
    pub(super) chunk_at: Option<Nanos>,
    pub(super) turn: usize,
    pub(super) log: Log,
    pub(super) replica: Option<ReplicaLink>,
    /// How many servers the job had before this one.
    pub(super) epoch: ServerEpoch,
    /// Whether a controller plans it.
    pub(crate) presence: Presence,
    /// Another server has the job: nothing is answered here any more.
    pub(super) is_retired: bool,
    /// The last decided updates of each worker.
    pub(super) outcomes: Outcomes,
    /// What must be durable before it is told; `None` when nothing must.
    pub(super) journal: Option<Journal>,
    /// A former life's state was taken over.
    pub(super) is_restored: bool,
    pub(super) outbox: VecDeque<(Peer, Header)>,
    pub(super) outbox_max: usize,
    events: VecDeque<Event>,
    pub(super) stats: ServerJobStats,
    /// Something has happened since the last poll.
    pub(super) is_dirty: bool,
    /// When a decision may become possible by itself.
    pub(super) judge_at: Nanos,
    /// When a credit may become possible by itself.
    pub(super) credit_at: Nanos,
}

impl ModelJob for Job {
    fn id(&self) -> JobId {
        self.id()
    }

    fn handle_frame(&mut self, incoming: &mut Incoming<'_>) -> Result<Verdict, Refusal> {
        if self.is_retired {
            return Err(DropReason::UnknownJob.into());
        }
        self.receive(incoming)
    }

    fn handle_command(&mut self, now: Nanos, command: &Command) {
        self.is_dirty = true;
        self.presence.note_command();
        match command {
            Command::Install(descriptor) => {
                let group = descriptor.group;
                let event = match self.install(now, descriptor) {
                    Ok(()) => Event::Installed { group },
                    Err(error) => {
                        self.stats.groups_refused += 1;
                        Event::Refused { group, error }
                    }
                };
                self.tell(event);
            }
            Command::Remove { group, .. } => {
                if let Some(index) = self.open(*group) {
                    let all = self.group(index).mask;
                    all.iter().for_each(|rank| self.close_member(index, rank, true));
                }
            }
            Command::CloseMember { group: Some(group), rank, .. } => {
                if let Some(index) = self.open(*group) {
                    self.close_member(index, *rank, true);
                }
            }
            Command::CloseMember { group: None, rank, .. } => self.close_everywhere(*rank, true),
            Command::SetRate { rate_bytes_per_sec, .. } => {
                self.bucket = Some(bucket((*rate_bytes_per_sec).max(1)));
            }
            Command::Skip { below, .. } => self.skip(*below),
            Command::StandDown { epoch, .. } => self.stand_down(*epoch),
            Command::LeaveReplica { .. } => self.leave_replica(),
            // A server has no server.
            Command::Promote { .. } | Command::MoveServer { .. } | Command::Holding(_) => {}
        }
    }

    fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        if self.is_retired { None } else { self.transmit(now, frame) }
    }

    fn poll_timeout(&self) -> Nanos {
        if self.is_retired { Nanos::MAX } else { self.due_at() }
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

impl Job {
    /// Takes the memory of a job whose configuration was checked.
    pub(crate) fn new(
        config: &ServerJobConfig,
        local: Endpoint,
        random: SplitMix64,
        kernels: &'static Kernels,
    ) -> Self {
        let shape = &config.model;
        let (chunks, elements) = (shape.chunks(), usize::from(shape.elements));
        let mut model = Model::new(kernels, shape.momentum, chunks as usize * elements);
        model.w[..config.initial.len()].copy_from_slice(&config.initial);
        model.version = config.initial_version.0;
        // A sum that the log does not keep waits for the journal.
        let waiting = u32::from(config.is_durable && config.stages_logged() == 0);
        let stages = config.stages_open() + config.stages_logged() + waiting;
        let open_max = usize::from(config.groups_open_max);
        let workers = config.workers.len();
        let outbox_max = open_max * (workers + 2) + OUTBOX_EXTRA;
        let headers_len = if local.addr.is_ipv4() { 42 } else { 62 };
        let sources = workers + config.boxes.len();
        Self {
            chunks,
            chunk_frame_len: (headers_len + HEADER_LEN + elements * 4) as u64,
            host: ChannelHost::new(&config.host(local), random),
            model,
            snapshots: Snapshots::new(
                kernels,
                config.snapshots_max,
                chunks,
                elements,
                config.snapshot_idle_ns,
            ),
            pool: StagePool::new(kernels, stages, chunks as usize, elements),
            groups: core::iter::repeat_with(|| None).take(open_max).collect(),
            rows: vec![None; usize::from(GROUPS_OPEN_MAX)],
            direct: vec![[None; DIRECT_OPEN_MAX]; workers],
            plan: Vec::with_capacity(open_max),
            open_count: 0,
            next_order: config.initial_order.0,
            holes: Holes::default(),
            sources: (0..sources).map(|place| Source::new(config, place < workers)).collect(),
            bucket: config.rate_bytes_per_sec.map(bucket),
            chunk_at: None,
            turn: 0,
            log: Log::new(config.log_entries_max, config.stages_logged() as usize),
            replica: config.replica.map(|index| ReplicaLink::new(index, config.initial_order.0)),
            epoch: ServerEpoch(0),
            presence: Presence::default(),
            is_retired: false,
            outcomes: Outcomes::new(workers),
            journal: config.is_durable.then(|| Journal::new(config)),
            is_restored: false,
            outbox: VecDeque::with_capacity(outbox_max),
            outbox_max,
            events: VecDeque::with_capacity(EVENTS_MAX),
            stats: ServerJobStats::default(),
            is_dirty: false,
            judge_at: Nanos::MAX,
            credit_at: Nanos::MAX,
            config: config.clone(),
        }
    }

    pub(super) fn id(&self) -> JobId {
        self.config.model.job
    }

    pub(crate) fn stats(&self) -> &ServerJobStats {
        &self.stats
    }

    pub(crate) fn view(&self) -> ModelView<'_> {
        self.model.view(self.config.model.dimension, self.next_order)
    }

    /// Everything that must survive.
    pub(crate) fn state(&self) -> ModelState {
        let model = self.model.state(self.config.model.dimension, self.next_order);
        ModelState { workers: self.outcomes.state(), ..model }
    }

    /// Goes on where a former life stopped, before the first frame. What the replica has is not
    /// known until it says so.
    pub(super) fn restore(&mut self, state: &ModelState) -> Result<(), ModelConfigError> {
        state.check(&self.config.model, self.config.workers.len())?;
        self.model.restore(state);
        self.next_order = state.next_order.0;
        self.is_restored = true;
        self.log.begin(self.model.momentum_norm);
        let held_by = self.is_held_for_replica().then(|| self.next_order.saturating_sub(1));
        self.outcomes.restore(&state.workers, held_by);
        if let Some(journal) = &mut self.journal {
            journal.begin(state);
        }
        self.forget_replica();
        Ok(())
    }

    pub(crate) fn tell(&mut self, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        } else {
            self.stats.events_lost += 1;
        }
    }

    /// The open group with this id.
    pub(super) fn open(&self, id: GroupId) -> Option<OpenIndex> {
        let row = id.row();
        let index = match self.rows.get(usize::from(row)) {
            Some(place) => *place,
            None => {
                let worker = self.direct.get(usize::from(row.checked_sub(ROW_DIRECT)?))?;
                worker[usize::from(id.generation()) % DIRECT_OPEN_MAX]
            }
        }?;
        (self.group(index).id == id).then_some(index)
    }

    /// The group open in a row, whatever its generation.
    pub(super) fn in_row(&self, row: u16) -> Option<OpenIndex> {
        self.rows.get(usize::from(row)).copied().flatten()
    }

    pub(super) fn group(&self, index: OpenIndex) -> &Group {
        self.groups[index.index()].as_ref().expect("indices of open groups only")
    }

    pub(super) fn group_mut(&mut self, index: OpenIndex) -> &mut Group {
        self.groups[index.index()].as_mut().expect("indices of open groups only")
    }

    pub(super) fn source_index(&self, id: SourceId) -> usize {
        match id {
            SourceId::Member(rank) => rank.index(),
            SourceId::Box(index) => self.config.workers.len() + usize::from(index),
        }
    }
}

/// Direct updates that one worker may have open.
pub(super) const DIRECT_OPEN_MAX: usize = 4;
/// Events kept until somebody takes them.
const EVENTS_MAX: usize = 4096;
/// Places in the queue of acknowledgements for what is repeated.
const OUTBOX_EXTRA: usize = 64;
