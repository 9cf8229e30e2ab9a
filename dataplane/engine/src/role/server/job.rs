//! A job at its server: everything it owns, and how groups come to be open.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use arrayvec::ArrayVec;
use weft_kernel::Kernels;
use weft_wire::frame::Endpoint;
use weft_wire::header::{ElementType, HEADER_LEN, Header, Outcome};
use weft_wire::{GroupId, JobId, MEMBERS_MAX, Members, Nanos, Rank};

use super::config::ServerJobConfig;
use super::follow::ReplicaLink;
use super::group::{Group, OpenIndex, Opening};
use super::log::Log;
use super::source::{Source, SourceId};
use super::stats::ServerJobStats;
use super::{CommitMode, ModelView};
use crate::push::{
    Command, Event, GROUPS_OPEN_MAX, GroupDescriptor, GroupMember, InstallError, OrderNumber,
    ROW_DIRECT, Version,
};
use crate::random::SplitMix64;
use crate::role::channel::{ChannelHost, Peer};
use crate::role::model::{Model, Snapshots, StagePool};
use crate::send::pacer::TokenBucket;

/// A job at its server.
#[derive(Debug)]
pub(super) struct Job {
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
    rows: Vec<Option<OpenIndex>>,
    /// Open direct groups of each worker, by the low bits of their generation.
    direct: Vec<[Option<OpenIndex>; DIRECT_OPEN_MAX]>,
    /// Open groups in the order of their numbers.
    pub(super) plan: Vec<OpenIndex>,
    pub(super) open_count: usize,
    pub(super) next_order: u64,
    /// Since when the next order number is missing although later ones are there.
    pub(super) hole_since: Option<Nanos>,
    /// Members by rank, then boxes by index.
    pub(super) sources: Vec<Source>,
    pub(super) bucket: Option<TokenBucket>,
    pub(super) turn: usize,
    pub(super) log: Log,
    pub(super) replica: Option<ReplicaLink>,
    /// The last decided groups of each worker.
    pub(super) decided: Vec<VecDeque<Decided>>,
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

/// What became of a worker's update.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    pub(super) group: GroupId,
    pub(super) outcome: Outcome,
    pub(super) version: u64,
    /// The decision that it is told of only when the replica has it.
    pub(super) held_by: Option<u64>,
}

impl Job {
    /// Takes the memory of a job whose configuration was checked.
    pub(super) fn new(
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
        let stages = config.stages_open() + config.stages_logged();
        let open_max = usize::from(config.groups_open_max);
        let workers = config.workers.len();
        let outbox_max = open_max * (workers + 2) + OUTBOX_EXTRA;
        let headers_len = if local.addr.is_ipv4() { 42 } else { 62 };
        let sources = workers + config.boxes.len();
        let ring = || VecDeque::with_capacity(DECIDED_KEPT);
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
            hole_since: None,
            sources: core::iter::repeat_with(|| Source::new(config)).take(sources).collect(),
            bucket: config.rate_bytes_per_sec.map(bucket),
            turn: 0,
            log: Log::new(config.log_entries_max, config.stages_logged() as usize),
            replica: config.replica.map(|index| ReplicaLink::new(index, config.initial_order.0)),
            decided: core::iter::repeat_with(ring).take(workers).collect(),
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

    pub(super) fn stats(&self) -> &ServerJobStats {
        &self.stats
    }

    pub(super) fn view(&self) -> ModelView<'_> {
        let dimension = self.config.model.dimension;
        ModelView {
            version: Version(self.model.version),
            next_order: OrderNumber(self.next_order),
            weights: &self.model.w[..dimension],
            momentum: &self.model.h[..dimension],
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(super) fn tell(&mut self, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        } else {
            self.stats.events_lost += 1;
        }
    }

    pub(super) fn handle_command(&mut self, now: Nanos, command: &Command) {
        self.is_dirty = true;
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
        }
    }

    /// Opens a group that a controller planned.
    fn install(&mut self, now: Nanos, descriptor: &GroupDescriptor) -> Result<(), InstallError> {
        let row = usize::from(descriptor.group.row());
        if row >= self.rows.len() {
            return Err(InstallError::Shape);
        }
        if let Some(index) = self.rows[row] {
            // A controller that lost the answer asks again.
            let group = self.group(index);
            let is_known = group.id == descriptor.group
                && group.order == descriptor.order.0
                && group.members[..] == descriptor.members[..];
            return if is_known { Ok(()) } else { Err(InstallError::RowTaken) };
        }
        let opening = Opening::from(descriptor);
        let shape = &self.config.model;
        if descriptor.chunks != self.chunks || descriptor.elements != shape.elements {
            return Err(InstallError::Shape);
        }
        self.check_shape(&opening)?;
        let order = match self.config.commit {
            CommitMode::Order => descriptor.order.0,
            CommitMode::Arrival => self.order_after_all(),
        };
        let is_taken = self.plan.iter().any(|index| self.group(*index).order == order);
        if order < self.next_order || is_taken {
            return Err(InstallError::Order);
        }
        let index = self.open_group(now, &opening, order)?;
        self.rows[row] = Some(index);
        Ok(())
    }

    fn check_shape(&self, opening: &Opening<'_>) -> Result<(), InstallError> {
        let mask = mask_of(opening.members);
        let count = opening.members.len();
        let via_known = match opening.via {
            None => count == 1,
            Some(index) => self.config.boxes.get(usize::from(index.0)).is_some_and(Option::is_some),
        };
        let fits = (1..=MEMBERS_MAX).contains(&count)
            && mask.len() == count
            && self.host.worker_mask().contains(mask)
            && matches!(opening.element_type, ElementType::I32 | ElementType::F32)
            && (-126..=126).contains(&opening.exponent)
            && opening.rate_bytes_per_sec != Some(0)
            && via_known;
        if fits { Ok(()) } else { Err(InstallError::Shape) }
    }

    /// Opens a group of one that its worker announced; true when it is open now.
    pub(super) fn open_direct(&mut self, now: Nanos, rank: Rank, of: &Opening<'_>) -> bool {
        let place = usize::from(of.id.generation()) % DIRECT_OPEN_MAX;
        if self.direct[rank.index()][place].is_some() || self.check_shape(of).is_err() {
            return false;
        }
        let Ok(index) = self.open_group(now, of, self.order_after_all()) else {
            self.stats.groups_refused += 1;
            return false;
        };
        self.direct[rank.index()][place] = Some(index);
        true
    }

    fn order_after_all(&self) -> u64 {
        let last = self.plan.last().map_or(0, |index| self.group(*index).order + 1);
        last.max(self.next_order)
    }

    fn open_group(
        &mut self,
        now: Nanos,
        opening: &Opening<'_>,
        order: u64,
    ) -> Result<OpenIndex, InstallError> {
        let free = self.groups.iter().position(Option::is_none).ok_or(InstallError::Full)?;
        if self.open_count >= self.config.stages_open() as usize {
            return Err(InstallError::Full);
        }
        let stage = self.pool.take().ok_or(InstallError::Full)?;
        let index = OpenIndex(u16::try_from(free).map_err(|_| InstallError::Full)?);
        let members: ArrayVec<_, MEMBERS_MAX> = opening.members.iter().copied().collect();
        let mask = mask_of(opening.members);
        self.groups[free] = Some(Group {
            id: opening.id,
            order,
            members,
            granted: mask,
            mask,
            element_type: opening.element_type,
            exponent: opening.exponent,
            via: opening.via,
            is_direct: opening.via.is_none(),
            bucket: opening.rate_bytes_per_sec.map(bucket),
            after: opening.after,
            lateness_ns: opening.lateness_ns,
            stage,
            chunks_staged: 0,
            is_staged: false,
            is_composed: false,
            cursor: 0,
            cursors: [0; MEMBERS_MAX],
            installed_at: now,
            head_since: None,
            first_at: None,
            bytes: 0,
        });
        let at = self.plan.partition_point(|index| self.group(*index).order < order);
        self.plan.insert(at, index);
        self.open_count += 1;
        self.stats.groups_installed += 1;
        self.is_dirty = true;
        Ok(index)
    }

    /// Takes a decided group out of all tables. Its stage is the caller's.
    pub(super) fn shut_group(&mut self, index: OpenIndex) -> Group {
        let group = self.groups[index.index()].take().expect("only open groups are decided");
        self.plan.retain(|other| *other != index);
        self.open_count -= 1;
        for source in &mut self.sources {
            source.forget(index);
        }
        let row = usize::from(group.id.row());
        if let Some(place) = self.rows.get_mut(row) {
            *place = None;
        } else {
            for place in self.direct.iter_mut().flatten().filter(|place| **place == Some(index)) {
                *place = None;
            }
        }
        group
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

fn mask_of(members: &[GroupMember]) -> Members {
    members.iter().fold(Members::EMPTY, |mask, member| mask.union(member.rank.bit()))
}

/// A bucket of a few frames: credits leave evenly, not in bursts.
fn bucket(rate_bytes_per_sec: u64) -> TokenBucket {
    TokenBucket::new(rate_bytes_per_sec, BURST_BYTES)
}

/// Direct updates that one worker may have open.
const DIRECT_OPEN_MAX: usize = 4;
/// Decided updates kept for each worker.
pub(super) const DECIDED_KEPT: usize = 32;
/// Events kept until somebody takes them.
const EVENTS_MAX: usize = 4096;
/// Places in the queue of acknowledgements for what is repeated.
const OUTBOX_EXTRA: usize = 64;
/// Depth of the token buckets of credits.
const BURST_BYTES: u64 = 16 * 1024;
