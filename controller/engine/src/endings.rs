//! What becomes of a group and its members' updates when it ends: aborted before anybody was
//! granted, decided, or decided while nobody listened.
//!
//! Invariant: a group leaves the books once, when its order number is decided.

use alloc::vec::Vec;

use weft_control::{AckMode, Command, Decision, Mode, Version};
use weft_wire::{GroupId, Members, Rank};

use super::job::{Group, GroupState};
use super::message::{Action, Reply};
use super::{Controller, Why};

/// A decision, as the server reports it.
pub(super) struct Decided {
    pub(super) order: u64,
    pub(super) decision: Decision,
    pub(super) members: Members,
    pub(super) norm: f64,
    pub(super) momentum_norm: f64,
}

impl Controller {
    /// Ends a group before anybody was granted: its requests are planned anew, and the server
    /// judges its order number VOID.
    pub(super) fn abort(&mut self, now_ns: u64, id: GroupId, why: Why) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        if group.is_doomed || group.state != GroupState::Installing {
            return;
        }
        group.is_doomed = true;
        let has_server = !group.waiting.contains(&self.jobs[&group.job].server);
        let (job_id, via) = (group.job, group.descriptor.via);
        let job = self.jobs.get_mut(&job_id).expect("a group's job");
        for member in &mut group.members {
            if let Some(request) = member.request.take() {
                self.tickets += 1;
                job.round.withdraw(1);
                job.pending.insert(self.tickets, request);
            }
        }
        job.unplanned_since_ns.get_or_insert(now_ns);
        let aggregator = via.and_then(|via| job.aggregators.get(usize::from(via.0))).copied();
        let server = has_server.then_some(job.server);
        for node in aggregator.into_iter().chain(server) {
            self.command(node, Command::Remove { job: job_id, group: id });
        }
        let waiters = self.flights.finish_group(now_ns, id);
        self.release(waiters);
        self.need_plan(why);
    }

    /// A member of a group that is open will not send. Once none will, nothing of the group moves,
    /// and neither others' transfers nor the numbers before it wait for it.
    pub(super) fn lose_member(&mut self, now_ns: u64, id: GroupId, rank: Rank) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let job = self.jobs.get_mut(&group.job).expect("a group's job");
        for member in group.members.iter_mut().filter(|member| member.rank == rank) {
            member.is_gone = true;
            if member.request.take().is_some() {
                job.end_update(rank);
            }
        }
        if group.state == GroupState::Staged || !group.is_deserted() {
            return;
        }
        if group.state == GroupState::Installing {
            job.round.withdraw(group.members.len());
            return self.abort(now_ns, id, Why::Failure);
        }
        let waiters = self.flights.finish_group(now_ns, id);
        self.release(waiters);
        self.need_plan(Why::Failure);
    }

    /// Ends a group whose order number is decided.
    pub(super) fn end_group(&mut self, now_ns: u64, id: GroupId, decided: &Decided) {
        let Some(group) = self.take_group(now_ns, id) else { return };
        let job = self.jobs.get_mut(&group.job).expect("a group's job");
        let committed = match decided.decision {
            Decision::Committed(_) => group.mask().0 & decided.members.0,
            Decision::Void | Decision::Dropped => 0,
        };
        let count = u64::from(committed.count_ones());
        let mut position = 0;
        let mut replies = Vec::with_capacity(group.members.len());
        for member in &group.members {
            let decision = match decided.decision {
                Decision::Committed(Version(version)) if committed & member.rank.bit().0 != 0 => {
                    let before = version.saturating_sub(count) + position;
                    position += 1;
                    job.counters.committed += 1;
                    let delay = before.saturating_sub(member.version);
                    if member.request.is_some() {
                        job.counters.delay_max = job.counters.delay_max.max(delay);
                    }
                    job.round.commit();
                    Decision::Committed(Version(version))
                }
                // The group is gone because of some; the others may be sent anew.
                Decision::Dropped
                    if job.version.saturating_sub(member.version) > job.config.delay_max() =>
                {
                    job.counters.dropped += 1;
                    Decision::Dropped
                }
                Decision::Committed(_) | Decision::Void | Decision::Dropped => {
                    job.counters.voided += 1;
                    Decision::Void
                }
            };
            if !matches!(decision, Decision::Committed(_)) && !group.is_doomed {
                job.round.withdraw(1);
            }
            let Some(request) = &member.request else { continue };
            job.end_update(member.rank);
            if let Decision::Committed(_) = decision {
                job.counters.commit_sum_ns += now_ns.saturating_sub(request.asked_ns);
                if let Some(worker) = job.worker_mut(member.rank) {
                    worker.note_commit();
                }
                if job.config.ack == AckMode::Replica {
                    // The server tells it, when the replica has it too.
                    continue;
                }
            }
            let reply = Reply::Delivered { update_id: request.update_id, decision };
            replies.push(Action::Reply { job: group.job, rank: member.rank, reply });
        }
        let round_ends = job.close_round();
        if !job.pending.is_empty() && (round_ends || job.config.mode == Mode::Partial) {
            job.unplanned_since_ns.get_or_insert(now_ns);
        }
        let is_failure = count < group.members.len() as u64;
        let via = group.descriptor.via.filter(|_| is_failure && !group.is_doomed);
        let via = via.and_then(|via| job.aggregators.get(usize::from(via.0))).copied();
        self.actions.extend(replies);
        if let Some(node) = via {
            self.command(node, Command::Remove { job: group.job, group: id });
        }
        if is_failure {
            self.need_plan(Why::Failure);
        }
    }

    /// Ends a group of which only the server knows what became of it. Workers ask the server.
    pub(super) fn end_unknown(&mut self, now_ns: u64, id: GroupId) {
        let Some(group) = self.take_group(now_ns, id) else { return };
        let job = self.jobs.get_mut(&group.job).expect("a group's job");
        for member in &group.members {
            if member.request.is_some() {
                job.counters.unknown += 1;
                job.round.commit();
                job.end_update(member.rank);
            }
        }
        job.close_round();
    }

    /// Takes a group off the books.
    pub(super) fn take_group(&mut self, now_ns: u64, id: GroupId) -> Option<Group> {
        let group = self.groups.remove(&id)?;
        let job = self.jobs.get_mut(&group.job).expect("a group's job");
        job.open.remove(&group.descriptor.order.0);
        self.rows.free(id);
        let waiters = self.flights.finish_group(now_ns, id);
        self.release(waiters);
        Some(group)
    }
}
