//! Decides when a job gets another server (SPEC#promotion, DESIGN I9; MLfabric decision 12).
//!
//! A server is dead when nothing was heard of its box for a lease. Its replica takes over if
//! workers were told only of what the replica has, which is so in jobs with `ack = "replica"` once
//! the replica was level with its server; it says so itself. That the server has not left it since
//! must have been said by the server: to this controller, or to one whose state this one has. Once
//! the replica was asked, the old server is out: it could acknowledge nothing without that replica,
//! and is told to stand down when it comes back. A replica that is dead while its server lives is
//! left, so that acknowledgements do not wait for it for ever.
//!
//! Invariants: epochs of a job's servers grow; order numbers of one epoch are above all of the
//! epochs before; a replica that may lack what a worker was told of is never the server.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use weft_control::{Command, OrderNumber, ServerEpoch, Version};
use weft_wire::{GroupId, JobId, Rank};

use super::job::GroupState;
use super::message::{Action, NodeId, Notice, Reply, RoleState};
use super::{Controller, Why};

mod fitness;
mod lease;
mod lost;

/// What became of a replica that was promoted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promoted {
    pub(super) epoch: ServerEpoch,
    pub(super) applied: OrderNumber,
    pub(super) order: OrderNumber,
    pub(super) version: Version,
    pub(super) momentum_norm: f64,
}

impl Controller {
    fn ask_replica(&mut self, now_ns: u64, id: JobId, replica: NodeId) {
        // Of a server that never spoke to this controller its replica tells most.
        let heard = self.applied_by(id, replica);
        let job = self.jobs.get_mut(&id).expect("just listed");
        let beyond = job.open.last_key_value().map_or(0, |(order, _)| order + 1);
        // The server may have given numbers to updates that came to it directly.
        let first = job.numbers.next().max(beyond).max(heard) + ORDERS_SKIPPED;
        let (order, is_first) = job.promotion.ask(now_ns, first);
        job.is_known = false;
        let epoch = ServerEpoch(job.promotion.epoch().0 + 1);
        let server = job.server;
        self.must_save();
        if is_first {
            let (server, replica) = (self.name(server), self.name(replica));
            self.notice(id, Notice::Promoting { server, replica, epoch });
        }
        let order = OrderNumber(order);
        self.command(replica, Command::Promote { job: id, epoch, order });
    }

    fn leave_replica(&mut self, id: JobId, replica: NodeId) {
        self.forget_replica(id);
        let server = self.jobs[&id].server;
        self.notice(id, Notice::ReplicaLeft { replica: self.name(replica) });
        self.command(server, Command::LeaveReplica { job: id });
    }

    /// Nobody is to take the server's place: acknowledgements do not wait for its replica.
    fn forget_replica(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("the caller's job");
        if job.promotion.leave_replica() {
            job.replica_progress.release();
            let replica = job.replica;
            self.must_save();
            if let Some(replica) = replica {
                self.command(replica, Command::LeaveReplica { job: id });
            }
        }
    }

    /// The replica is the server now, or was before this controller began.
    pub(super) fn promoted(&mut self, now_ns: u64, id: JobId, node: NodeId, promoted: Promoted) {
        let job = self.jobs.get_mut(&id).expect("checked");
        let former = job.server;
        if !job.promotion.complete(promoted.epoch, former) {
            return;
        }
        job.server = node;
        self.bands.note_change();
        job.replica = None;
        job.replica_progress.release();
        self.nodes[node.index()].name().clone_into(&mut job.config.server);
        job.config.replica = None;
        job.config.div_max = None;
        job.counters.promotions += 1;
        let open: Vec<GroupId> = job.open.values().copied().collect();
        for group in open {
            self.end_with_server(now_ns, group);
        }
        let job = self.jobs.get_mut(&id).expect("checked");
        job.is_known = false;
        (job.lost, job.is_over) = (None, false);
        let server = (node, self.nodes[node.index()].life());
        job.learn(server, promoted.version, promoted.order.0, promoted.momentum_norm);
        job.begin_round_within();
        job.planned.clear();
        job.told_rate_bytes_per_sec = 0;
        if !job.pending.is_empty() {
            job.unplanned_since_ns.get_or_insert(now_ns);
        }
        self.must_save();
        let (server, epoch) = (self.name(node), promoted.epoch);
        let applied = promoted.applied.0;
        self.notice(id, Notice::Promoted { server, epoch, applied, version: promoted.version });
        self.tell_of_server(id);
        self.command(former, Command::StandDown { job: id, epoch });
        self.tell_rates(now_ns);
        self.need_plan(Why::Failure);
    }

    /// Tells aggregators and workers where the job's server is.
    fn tell_of_server(&mut self, id: JobId) {
        let aggregators = self.jobs[&id].aggregators.clone();
        for node in aggregators {
            self.move_aggregator(id, node);
        }
        let job = &self.jobs[&id];
        let address = self.nodes[job.server.index()].address().to_owned();
        let ranks = (0u8..).zip(&job.workers).filter(|(_, worker)| worker.is_attached());
        let ranks: Vec<Rank> = ranks.filter_map(|(rank, _)| Rank::new(rank)).collect();
        let epoch = job.promotion.epoch();
        for rank in ranks {
            let reply = Reply::ServerMoved { address: address.clone(), epoch };
            self.actions.push_back(Action::Reply { job: id, rank, reply });
        }
    }

    /// Tells an aggregator where the job's server is, if it is not where its file says.
    pub(super) fn move_aggregator(&mut self, id: JobId, node: NodeId) {
        let job = &self.jobs[&id];
        let Ok(server) = self.nodes[job.server.index()].address().parse() else { return };
        if job.promotion.epoch() > ServerEpoch(0) {
            self.command(node, Command::MoveServer { job: id, server });
        }
    }

    /// Ends a group whose server is gone. What was granted is the new server's to judge: its
    /// workers ask it. What was not is planned anew.
    fn end_with_server(&mut self, now_ns: u64, id: GroupId) {
        let Some(group) = self.take_group(now_ns, id) else { return };
        let job = self.jobs.get_mut(&group.job).expect("a group's job");
        for member in group.members {
            let Some(request) = member.request else { continue };
            if group.state == GroupState::Installing {
                self.tickets += 1;
                job.pending.insert(self.tickets, request);
            } else {
                job.counters.unknown += 1;
                job.end_update(member.rank);
            }
        }
    }

    /// The replica lacks decisions that workers may have been told of: the old server is needed.
    pub(super) fn promotion_refused(&mut self, now_ns: u64, id: JobId, applied: u64) {
        let job = self.jobs.get_mut(&id).expect("checked");
        if !job.promotion.is_pending() {
            return;
        }
        job.promotion.strand();
        let server = job.server;
        let server = self.name(server);
        self.notice(id, Notice::Refused { server, applied });
        self.take_back(now_ns, id);
    }

    /// Nobody is asked to take over any more: the old server goes on, if it is there.
    fn take_back(&mut self, now_ns: u64, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("the caller's job");
        job.promotion.cancel();
        let server = job.server;
        self.must_save();
        // It may have come back meanwhile.
        let state = self.accounts.get(server, id).cloned();
        if let Some(state) = state.filter(|_| self.is_here(now_ns, server)) {
            self.go_on(now_ns, server, &state);
        }
    }

    /// A box says that it serves a job: it does, or it did and stands down, or it was promoted
    /// while no controller listened.
    pub(super) fn take_server(&mut self, now_ns: u64, node: NodeId, state: &RoleState) {
        let job = self.jobs.get_mut(&state.job).expect("checked");
        let (id, epoch) = (state.job, job.promotion.epoch());
        let is_successor = job.replica == Some(node) && state.epoch > epoch;
        if is_successor {
            let promoted = Promoted {
                epoch: state.epoch,
                applied: state.next_order,
                order: state.next_order,
                version: state.version,
                momentum_norm: state.momentum_norm,
            };
            self.promoted(now_ns, id, node, promoted);
            self.reconcile_server(now_ns, node, state);
        } else if job.server != node || state.epoch < epoch {
            self.notice(id, Notice::StoodDown { server: self.name(node), epoch });
            self.command(node, Command::StandDown { job: id, epoch });
        } else if !job.promotion.is_pending() {
            self.go_on(now_ns, node, state);
        }
    }

    /// The job's server is here, and nobody takes its place.
    fn go_on(&mut self, now_ns: u64, node: NodeId, state: &RoleState) {
        let id = state.job;
        if let Some(lost) = self.lost_commits(state) {
            return self.lose_commits(now_ns, id, lost);
        }
        let job = self.jobs.get_mut(&id).expect("the caller's job");
        job.promotion.resume();
        let is_first = !job.is_known;
        if state.has_left_replica {
            // A controller before this one had it do so.
            self.forget_replica(id);
        } else if state.has_met_replica {
            self.confirm_replica(id);
        }
        let is_left = self.jobs[&id].promotion.is_replica_left();
        self.reconcile_server(now_ns, node, state);
        if is_first {
            // Aggregators that came before it could not be told where it is.
            let aggregators = self.jobs[&id].aggregators.clone();
            aggregators.into_iter().for_each(|node| self.move_aggregator(id, node));
        }
        if is_left {
            self.command(node, Command::LeaveReplica { job: id });
        }
    }

    /// The epoch of a job's server, and whether its replica is lost for good.
    #[must_use]
    pub fn server_epoch(&self, job: JobId) -> ServerEpoch {
        self.jobs.get(&job).map_or(ServerEpoch(0), |job| job.promotion.epoch())
    }

    fn must_save(&mut self) {
        self.is_saved = false;
        self.is_promotion_unsaved = true;
    }

    pub(super) fn name(&self, node: NodeId) -> String {
        self.nodes[node.index()].name().to_owned()
    }

    fn notice(&mut self, job: JobId, notice: Notice) {
        self.actions.push_back(Action::Notice { job, notice });
    }
}

/// Order numbers left out between two servers: what the old one may have given away unheard.
const ORDERS_SKIPPED: u64 = 4096;
