//! Decides what becomes of a group that a box refuses.
//!
//! A server is offered it again, each time after twice as long: it may have no room now. One that
//! refuses it over and over, while nothing of the job is there whose end would make room, will not
//! take it: its updates are dropped, their workers told, and its order number skipped. What can be
//! planned anew at once is: in another row, with another number, without that aggregator.
//! Invariant: a group is offered at most [`OFFERS_MAX`] times in vain; people hear of a refusal
//! once until the box takes groups of the job again.

use weft_control::{Command, DropReason, InstallError, OrderNumber};
use weft_wire::{GroupId, JobId};

use super::job::{Group, GroupState};
use super::message::{Action, NodeId, Notice, Reply};
use super::{Controller, Why};

impl Controller {
    /// A box refuses a group.
    pub(super) fn refused(&mut self, now_ns: u64, node: NodeId, id: GroupId, error: InstallError) {
        let Some(job) = self.groups.get(&id).map(|group| group.job) else { return };
        self.note_refusal(job, node, error);
        let is_installing = self.groups[&id].state == GroupState::Installing;
        if self.jobs[&job].server != node {
            let pause_ns = |refusals| backed_off(REFUSES_NS, refusals, REFUSES_NS_MAX);
            self.nodes[node.index()].refuse(now_ns, pause_ns);
            self.give_up_on(now_ns, id, node);
            return;
        }
        match error {
            // The server has given this number to somebody else: an update that came direct.
            InstallError::Order if is_installing => self.plan_anew(now_ns, id),
            // It has a group there that nobody told of.
            InstallError::RowTaken if is_installing => {
                let order = self.groups[&id].descriptor.order.0;
                self.plan_anew(now_ns, id);
                self.skip_number(job, order);
            }
            _ => self.offer_later(now_ns, id, error),
        }
    }

    /// Takes a group that its server does not have off the books, and its updates back into the
    /// plan.
    fn plan_anew(&mut self, now_ns: u64, id: GroupId) {
        self.abort(now_ns, id, Why::Failure);
        let Some(group) = self.groups.remove(&id) else { return };
        let job = self.jobs.get_mut(&group.job).expect("a group's job");
        job.open.remove(&group.descriptor.order.0);
        self.rows.free(id);
    }

    fn offer_later(&mut self, now_ns: u64, id: GroupId, error: InstallError) {
        let job = &self.jobs[&self.groups[&id].job];
        let is_there = |group: &Group| group.state != GroupState::Installing;
        let mut others = job.open.values().filter_map(|other| self.groups.get(other));
        let may_make_room = error == InstallError::Full && others.any(is_there);
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.offers.refused += 1;
        group.offers.in_vain += u32::from(!may_make_room);
        if group.offers.in_vain >= OFFERS_MAX && group.state == GroupState::Installing {
            return self.drop_group(now_ns, id);
        }
        let pause_ns = backed_off(RETRY_NS, group.offers.refused, RETRY_NS_MAX);
        group.retry_ns = Some(now_ns.saturating_add(pause_ns));
        self.need_plan(Why::Failure);
    }

    /// Drops the updates of a group that its server will not take.
    fn drop_group(&mut self, now_ns: u64, id: GroupId) {
        let Some(group) = self.take_group(now_ns, id) else { return };
        let (job_id, order) = (group.job, group.descriptor.order.0);
        let job = self.jobs.get_mut(&job_id).expect("a group's job");
        for member in &group.members {
            let Some(request) = &member.request else { continue };
            job.counters.dropped += 1;
            job.counters.unreachable += 1;
            job.round.withdraw(1);
            job.end_update(member.rank);
            let update_id = request.update_id;
            let reply = Reply::Drop { update_id, reason: DropReason::Refused };
            self.actions.push_back(Action::Reply { job: job_id, rank: member.rank, reply });
        }
        self.take_from_boxes(&group);
        self.skip_number(job_id, order);
        self.need_plan(Why::Failure);
    }

    /// Tells all boxes of a group that it is over; the server judges it VOID if it has it.
    pub(super) fn take_from_boxes(&mut self, group: &Group) {
        let job = &self.jobs[&group.job];
        let via = group.descriptor.via.map(|via| usize::from(via.0));
        let mut nodes = vec![job.server];
        nodes.extend(via.and_then(|via| job.aggregators.get(via)));
        nodes.extend(job.replica.filter(|_| group.descriptor.replicate));
        let (job, group) = (job.id, group.descriptor.group);
        for node in nodes {
            self.command(node, Command::Remove { job, group });
        }
    }

    /// A number that was given and that no group will have: the server need not wait for it.
    fn skip_number(&mut self, id: JobId, order: u64) {
        let job = self.jobs.get_mut(&id).expect("the caller's job");
        job.numbers.forget_below(order);
        let server = job.server;
        self.command(server, Command::Skip { job: id, below: OrderNumber(order + 1) });
    }

    fn note_refusal(&mut self, id: JobId, node: NodeId, error: InstallError) {
        let job = self.jobs.get_mut(&id).expect("a group's job");
        job.counters.installs_refused += 1;
        // What went direct meanwhile has the number, which is nobody's mistake.
        let is_news = job.refusing.replace((node, error)) != Some((node, error));
        if is_news && error != InstallError::Order {
            let node = self.name(node);
            self.actions.push_back(Action::Notice {
                job: id,
                notice: Notice::InstallRefused { node, error },
            });
        }
    }

    /// A box took a group.
    pub(super) fn note_taken(&mut self, node: NodeId, id: GroupId) {
        self.nodes[node.index()].accept();
        let Some(group) = self.groups.get_mut(&id) else { return };
        let job = self.jobs.get_mut(&group.job).expect("a group's job");
        if job.server == node {
            group.retry_ns = None;
        }
        job.refusing = job.refusing.filter(|(refusing, _)| *refusing != node);
    }
}

/// Twice as long each time, and never longer than the longest.
fn backed_off(first_ns: u64, times: u32, longest_ns: u64) -> u64 {
    let doubled = 1u64.checked_shl(times.saturating_sub(1)).unwrap_or(u64::MAX);
    first_ns.saturating_mul(doubled).min(longest_ns)
}

/// A group that its server refused so often is dropped.
const OFFERS_MAX: u32 = 8;
/// A server that refused a group is asked again after this at first, ...
const RETRY_NS: u64 = 20_000_000;
/// ... and after this at last.
const RETRY_NS_MAX: u64 = 1_000_000_000;
/// Another box that refused a group is left alone for so long at first, ...
const REFUSES_NS: u64 = 100_000_000;
/// ... and for so long at last.
const REFUSES_NS_MAX: u64 = 5_000_000_000;
