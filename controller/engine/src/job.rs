//! What the controller knows of a job.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use weft_config::controller::JobConfig;
use weft_control::{GroupDescriptor, InstallError, Mode, Version};
use weft_wire::{GroupId, JobId, Members, Rank};

use weft_plan::case::Segment;
use weft_plan::policy::AnyPolicy;

use super::message::{GrantSegment, LostCommits, NodeId};

mod counters;
mod numbers;
mod pause;
mod promotion;
mod replica;
mod round;
mod worker;

pub use counters::JobCounters;
pub(super) use numbers::Numbers;
pub(super) use pause::{AWAY_MAX_NS, Pause};
pub(super) use promotion::Promotion;
pub(super) use replica::ReplicaProgress;
pub(super) use round::Round;
pub(super) use worker::{FirstAsked, Worker};

/// Names a request; grows with every one.
pub(super) type Ticket = u64;

/// A job.
pub(super) struct Job {
    pub(super) id: JobId,
    pub(super) config: JobConfig,
    pub(super) policy: AnyPolicy,
    pub(super) server: NodeId,
    pub(super) aggregators: Vec<NodeId>,
    pub(super) replica: Option<NodeId>,
    pub(super) workers: Vec<Worker>,
    /// Requests that are not granted.
    pub(super) pending: BTreeMap<Ticket, Pending>,
    /// What the last plan made of them, in order; the front is granted next.
    pub(super) planned: VecDeque<Planned>,
    /// Oldest request that no plan covers: when it came.
    pub(super) unplanned_since_ns: Option<u64>,
    /// What its policy, another program, was asked and has not answered.
    pub(super) asked: Option<Asked>,
    /// Groups with an order number that is not decided.
    pub(super) open: BTreeMap<u64, GroupId>,
    pub(super) numbers: Numbers,
    pub(super) version: u64,
    pub(super) momentum_norm: f64,
    /// The server has told its state.
    pub(super) is_known: bool,
    /// Nobody was ever granted anything of it, as far as its controllers remember.
    pub(super) is_untouched: bool,
    /// The box and the life of it that told it last.
    pub(super) learnt_from: Option<(NodeId, Option<u64>)>,
    /// Its server has been away for a lease: nothing is promised to its transfers.
    pub(super) is_server_away: bool,
    /// The commits that its server returned without; the server is then not followed.
    pub(super) lost: Option<LostCommits>,
    /// No replica takes over after such a loss: the job has ended.
    pub(super) is_over: bool,
    pub(super) replica_progress: ReplicaProgress,
    pub(super) promotion: Promotion,
    pub(super) round: Round,
    /// The last decisions of plans: true for a drop.
    pub(super) recent: VecDeque<bool>,
    /// Bytes planned, over the weight: whose turn it is.
    pub(super) virtual_bytes: f64,
    /// The box that refused a group of it last, and took none since, and why.
    pub(super) refusing: Option<(NodeId, InstallError)>,
    /// What the server's box was last told to receive at most.
    pub(super) told_rate_bytes_per_sec: u64,
    pub(super) pause: Pause,
    pub(super) counters: JobCounters,
    /// Who is late is so after this.
    pub(super) first_asked: FirstAsked,
}

/// A request that is not granted.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) rank: Rank,
    pub(super) update_id: u64,
    pub(super) size_bytes: u64,
    pub(super) version: u64,
    pub(super) norm: f64,
    pub(super) max_abs: f64,
    pub(super) asked_ns: u64,
}

/// A group of a plan that is not installed.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    /// Its members in order, each with the sender's own rates.
    pub(super) members: Vec<(Ticket, Vec<Segment>)>,
    /// Position of its aggregator in the job.
    pub(super) via: Option<usize>,
    /// The transfer into the server.
    pub(super) sum: Vec<Segment>,
    /// The copy to the replica.
    pub(super) copy: Vec<Segment>,
    /// First instant at which anything of it moves.
    pub(super) start_ns: u64,
}

/// A group with an order number.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) job: JobId,
    /// As the boxes were told. A re-learnt group has only its id, order and members.
    pub(super) descriptor: GroupDescriptor,
    /// Its members in order.
    pub(super) members: Vec<Member>,
    pub(super) state: GroupState,
    /// Boxes that must still acknowledge it.
    pub(super) waiting: Vec<NodeId>,
    pub(super) installed_ns: u64,
    /// It is late after this.
    pub(super) late_ns: u64,
    /// Nobody was granted and nobody will be: VOID as soon as the server knows it.
    pub(super) is_doomed: bool,
    /// The server refused it; it is offered again then.
    pub(super) retry_ns: Option<u64>,
    pub(super) offers: Offers,
}

impl Group {
    /// Sum of its members' norms, which bounds the norm of their sum.
    pub(super) fn planned_norm(&self) -> f64 {
        let requests = self.members.iter().filter_map(|member| member.request.as_ref());
        requests.map(|request| request.norm).sum()
    }

    /// No member will send.
    pub(super) fn is_deserted(&self) -> bool {
        self.members.iter().all(|member| member.is_gone)
    }

    /// Its members as a bitmap.
    pub(super) fn mask(&self) -> Members {
        self.members.iter().fold(Members::EMPTY, |mask, member| mask.union(member.rank.bit()))
    }
}

/// How far a group is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum GroupState {
    /// Not all boxes have acknowledged it.
    Installing,
    /// Its members may send.
    Granted,
    /// All of it is at the server.
    Staged,
}

/// How often a group was offered to its server in vain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Offers {
    /// All refusals: how long to wait.
    pub(super) refused: u32,
    /// Those that no patience explains.
    pub(super) in_vain: u32,
}

/// A member of a group.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) rank: Rank,
    /// The request; none for a group that was re-learnt from the server, or once it is taken back.
    pub(super) request: Option<Pending>,
    /// It will not send.
    pub(super) is_gone: bool,
    pub(super) version: u64,
    /// What its grant will say, with the planned start of each segment.
    pub(super) segments: Vec<(u64, GrantSegment)>,
}

/// A question under way.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) number: u64,
    pub(super) tickets: Vec<Ticket>,
    /// From then on the default policy plans in its place.
    pub(super) late_ns: u64,
    pub(super) is_late: bool,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.policy.cancel();
    }
}

impl Job {
    /// Whether it waits for its policy.
    pub(super) fn is_waiting(&self) -> bool {
        self.asked.as_ref().is_some_and(|asked| !asked.is_late)
    }

    /// Updates of a round; none without rounds.
    pub(super) fn round_size(&self) -> Option<u32> {
        let workers = u32::try_from(self.workers.len()).unwrap_or(u32::MAX);
        match self.config.mode {
            Mode::Async => None,
            Mode::Sync => Some(workers),
            Mode::Partial => Some(self.config.partial_count.unwrap_or(workers)),
        }
    }

    /// Updates that its round still has room for; none without rounds.
    pub(super) fn round_room(&self) -> Option<u32> {
        self.round_size().map(|size| self.round.room(size))
    }

    /// Begins the next round when all of this one is in the model. True when it does.
    pub(super) fn close_round(&mut self) -> bool {
        let Some(size) = self.round_size() else { return false };
        let is_over = self.round.is_over(size);
        self.round.close(self.version, size);
        is_over
    }

    /// A round that a former server began goes on with the updates that are in the model.
    pub(super) fn begin_round_within(&mut self) {
        if let Some(size) = self.round_size().filter(|size| *size > 0) {
            self.round = Round::within(self.version, size);
        }
    }

    /// Members with an order number that is not decided.
    pub(super) fn in_flight(&self, groups: &BTreeMap<GroupId, Group>) -> u64 {
        let members = self.open.values().filter_map(|group| groups.get(group));
        members.map(|group| group.members.len() as u64).sum()
    }

    /// Requests that the plan covers.
    pub(super) fn planned_updates(&self) -> usize {
        self.planned.iter().map(|group| group.members.len()).sum()
    }

    /// Notes a decision of a plan for the drop budget.
    pub(super) fn note_decision(&mut self, is_drop: bool) {
        let window = self.config.options.drop_window as usize;
        self.recent.push_back(is_drop);
        while self.recent.len() > window {
            self.recent.pop_front();
        }
    }

    /// Takes a request out of the plan and of the pending ones.
    pub(super) fn take_back(&mut self, ticket: Ticket) -> Option<Pending> {
        for group in &mut self.planned {
            group.members.retain(|(member, _)| *member != ticket);
        }
        self.planned.retain(|group| !group.members.is_empty());
        self.pending.remove(&ticket)
    }

    /// Box index of the replica.
    pub(super) fn replica_box(&self) -> u8 {
        u8::try_from(self.aggregators.len()).unwrap_or(u8::MAX)
    }

    /// A worker.
    pub(super) fn worker_mut(&mut self, rank: Rank) -> Option<&mut Worker> {
        self.workers.get_mut(rank.index())
    }

    /// An update has come to its end.
    pub(super) fn end_update(&mut self, rank: Rank) {
        if let Some(worker) = self.worker_mut(rank) {
            worker.end_update();
        }
    }

    /// Takes in where the server is: a box, and which life of it. What the same life told before
    /// stands: within a life nothing goes back.
    pub(super) fn learn(
        &mut self,
        server: (NodeId, Option<u64>),
        version: Version,
        next_order: u64,
        momentum_norm: f64,
    ) {
        let is_new = self.learnt_from.replace(server) != Some(server);
        if is_new || version.0 >= self.version {
            self.version = version.0;
            self.momentum_norm = momentum_norm;
        }
        self.is_untouched &= next_order == 0;
        self.numbers.begin_at(next_order);
        if is_new && !self.is_known {
            self.round.set_base(version.0);
            self.replica_progress.set_h_norm(momentum_norm);
        }
        self.is_known = true;
    }
}

impl core::fmt::Debug for Job {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Job")
            .field("config", &self.config)
            .field("pending", &self.pending)
            .field("planned", &self.planned)
            .field("open", &self.open)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
