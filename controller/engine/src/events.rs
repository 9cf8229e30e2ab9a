//! Takes in what boxes report: acknowledgements, arrivals, decisions.
//!
//! Invariant: a decision of order n says that all below are decided too, even if their events were
//! lost.

use alloc::vec::Vec;

use weft_control::{Command, Decision, Event};
use weft_wire::{GroupId, JobId, Rank};

use weft_plan::case::HostId;

use super::endings::Decided;
use super::job::{Group, GroupState};
use super::message::{NodeId, Refusal, TransferKey};
use super::nodes::COUNT_MAX;
use super::promote::Promoted;
use super::{Controller, Why};

impl Controller {
    /// A box reports an event of a job. Events of groups that are over are taken without effect.
    ///
    /// # Errors
    /// A job that is not there, a group of another job, a figure that is none, or a box that has no
    /// such thing to report.
    pub fn handle_event(
        &mut self,
        now_ns: u64,
        node: NodeId,
        job: JobId,
        event: &Event,
    ) -> Result<(), Refusal> {
        let checked = self.check_event(node, job, event);
        self.checked(checked)?;
        self.held(now_ns, node, job, event);
        self.hear_reduce_box(now_ns, node, job, event);
        self.note_band(now_ns, node, job, event);
        self.nodes[node.index()].count_event(now_ns);
        self.accounts.note_event(node, job, event);
        if !self.jobs.contains_key(&job) {
            return Ok(());
        }
        match *event {
            Event::Installed { group } => self.installed(now_ns, node, group),
            Event::Refused { group, error } => self.refused(now_ns, node, group, error),
            Event::Gathered { group, rank } => {
                let waiters = self.flights.finish(now_ns, TransferKey::Member(group, rank));
                self.release(waiters);
            }
            Event::Staged { group } => self.staged(now_ns, node, group),
            Event::Transferred { group, rank, bytes, duration_ns, .. } => {
                self.transferred(now_ns, node, group, rank, (bytes, duration_ns));
            }
            Event::Decided { group, order, decision, members, norm, momentum_norm } => {
                let decided = Decided { order: order.0, decision, members, norm, momentum_norm };
                self.decided(now_ns, node, job, group, &decided);
            }
            Event::MemberLost { rank, .. } => self.member_lost(job, rank),
            Event::ReplicaAt { order, divergence_bound, is_held } => {
                if is_held {
                    self.confirm_replica(job);
                }
                let job = self.jobs.get_mut(&job).expect("checked");
                let is_left = job.promotion.is_replica_left() || job.replica.is_none();
                let (is_held, h_norm) = (is_held && !is_left, job.momentum_norm);
                job.replica_progress.report(order.0, divergence_bound, is_held, h_norm);
            }
            // It is in the account, or was an answer.
            Event::ReplicaFitness { .. }
            | Event::StoodDown { .. }
            | Event::HoldingInstalled { .. }
            | Event::HoldingRemoved { .. }
            | Event::HoldingRefused { .. }
            | Event::BandSet { .. }
            | Event::BandLost { .. }
            | Event::BandRefused { .. } => {}
            Event::Promoted { epoch, applied, order, version, momentum_norm } => {
                let promoted = Promoted { epoch, applied, order, version, momentum_norm };
                self.promoted(now_ns, job, node, promoted);
            }
            Event::PromotionRefused { applied } => self.promotion_refused(now_ns, job, applied.0),
        }
        Ok(())
    }

    pub(super) fn check_event(
        &self,
        node: NodeId,
        job: JobId,
        event: &Event,
    ) -> Result<(), Refusal> {
        check_figures(event)?;
        if event.is_of_bands() {
            // Of jobs that ended meanwhile too; what was not asked has no effect.
            return Ok(());
        }
        if event.holding().is_some() {
            // Boxes hold things for jobs that are none of this controller's too.
            return Ok(());
        }
        let Some(known) = self.jobs.get(&job) else {
            // It may be registered yet, and then begins where this box is.
            return match self.accounts.get(node, job) {
                Some(_) => Ok(()),
                None => Err(Refusal::new("job", format!("there is no job {}", job.0))),
            };
        };
        let is_server = known.server == node;
        let is_replica = known.replica == Some(node);
        let is_former = known.promotion.former() == Some(node);
        let is_box = is_server || is_replica || known.aggregators.contains(&node);
        let may = match event {
            Event::Installed { .. } | Event::Refused { .. } | Event::Transferred { .. } => is_box,
            Event::Gathered { .. } => known.aggregators.contains(&node),
            Event::Staged { .. } | Event::Decided { .. } => is_server || is_replica,
            Event::MemberLost { job: own, .. } => is_server && *own == job,
            Event::ReplicaAt { .. } => is_server,
            Event::PromotionRefused { .. } => is_replica,
            // Said before it was promoted.
            Event::ReplicaFitness { .. } => {
                is_replica || (is_server && known.promotion.former().is_some())
            }
            Event::Promoted { epoch, order, .. } => {
                match known.promotion.is_answer(*epoch, order.0) {
                    Some(is_answer) if is_replica => is_answer,
                    // Asked by a controller before this one; or it said so in its hello already.
                    _ => is_replica || (is_server && *epoch <= known.promotion.epoch()),
                }
            }
            Event::StoodDown { .. } => is_former,
            Event::HoldingInstalled { .. }
            | Event::HoldingRemoved { .. }
            | Event::HoldingRefused { .. }
            | Event::BandSet { .. }
            | Event::BandLost { .. }
            | Event::BandRefused { .. } => true,
        };
        // What a former server had still to say changes nothing.
        if is_former && !may {
            let epoch = known.promotion.epoch().0;
            let problem =
                format!("job `{}` has another server, in epoch {epoch}", known.config.name);
            return Err(Refusal::new("event", problem));
        }
        if !may {
            let name = self.nodes.get(node.index()).map_or("?", |node| node.name());
            let problem = format!("`{name}` has no such role in job `{}`", known.config.name);
            return Err(Refusal::new("event", problem));
        }
        let group = match *event {
            Event::Installed { group }
            | Event::Refused { group, .. }
            | Event::Gathered { group, .. }
            | Event::Staged { group }
            | Event::Transferred { group, .. }
            | Event::Decided { group, .. } => Some(group),
            _ => None,
        };
        let other = group.and_then(|group| self.groups.get(&group)).is_some_and(|g| g.job != job);
        match other {
            true => Err(Refusal::new("group", "belongs to another job")),
            false => Ok(()),
        }
    }

    fn installed(&mut self, now_ns: u64, node: NodeId, id: GroupId) {
        self.note_taken(node, id);
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.waiting.retain(|waiting| *waiting != node);
        if group.is_doomed && self.jobs[&group.job].server == node {
            let job = group.job;
            self.command(node, Command::Remove { job, group: id });
        }
        self.grant_if_ready(now_ns, id);
    }

    /// All boxes have acknowledged the group, and nothing is in its way.
    pub(super) fn is_ready(&self, group: &Group) -> bool {
        group.state == GroupState::Installing
            && group.waiting.is_empty()
            && !group.is_doomed
            && (group.descriptor.via.is_some()
                || self.sum_blocker(group.descriptor.group).is_none())
    }

    pub(super) fn grant_if_ready(&mut self, now_ns: u64, id: GroupId) {
        if self.groups.get(&id).is_some_and(|group| self.is_ready(group)) {
            self.grant(now_ns, id);
        }
    }

    fn staged(&mut self, now_ns: u64, node: NodeId, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        if self.jobs[&group.job].replica == Some(node) {
            let waiters = self.flights.finish(now_ns, TransferKey::Copy(id));
            self.release(waiters);
            return;
        }
        group.state = GroupState::Staged;
        let ranks: Vec<Rank> = group.members.iter().map(|member| member.rank).collect();
        let mut waiters = self.flights.finish(now_ns, TransferKey::Sum(id));
        for rank in ranks {
            waiters.extend(self.flights.finish(now_ns, TransferKey::Member(id, rank)));
        }
        self.release(waiters);
    }

    fn decided(&mut self, now_ns: u64, node: NodeId, job: JobId, id: GroupId, decided: &Decided) {
        let known = self.jobs.get_mut(&job).expect("checked");
        if known.replica == Some(node) {
            let waiters = self.flights.finish(now_ns, TransferKey::Copy(id));
            self.release(waiters);
            return;
        }
        let earlier: Vec<GroupId> = known.open.range(..decided.order).map(|(_, g)| *g).collect();
        known.numbers.begin_at(decided.order + 1);
        known.momentum_norm = decided.momentum_norm;
        if let Decision::Committed(version) = decided.decision {
            known.version = version.0.max(known.version);
            if known.replica.is_some() {
                known.replica_progress.miss(decided.order, decided.norm);
            }
        }
        if known.is_fair() {
            // Its server commits what is there, in no order that was granted.
            if known.open.values().any(|open| *open == id) {
                self.end_group(now_ns, id, decided);
            }
            return;
        }
        for group in earlier {
            self.end_unknown(now_ns, group);
        }
        let known = &self.jobs[&job];
        if known.open.get(&decided.order) == Some(&id) {
            self.end_group(now_ns, id, decided);
        }
    }

    fn member_lost(&mut self, job: JobId, rank: Rank) {
        // The server knows; it said so.
        self.close_member(job, None, rank, false);
        self.need_plan(Why::Failure);
    }

    fn transferred(
        &mut self,
        now_ns: u64,
        node: NodeId,
        id: GroupId,
        rank: Option<Rank>,
        (bytes, duration_ns): (u64, u64),
    ) {
        let Some(path) = self.path_into(node, id, rank) else { return };
        let Some(descriptor) = self.groups.get(&id).map(|group| &group.descriptor) else { return };
        // The time is that from the first frame to the last; the first came before it.
        let bytes = bytes - bytes / u64::from(descriptor.chunks.max(1));
        let key = match rank {
            Some(rank) if descriptor.via.is_some() => TransferKey::Member(id, rank),
            _ => TransferKey::Sum(id),
        };
        // By the time that a sample comes, the flight may have ended; into a server the descriptor
        // says what was granted.
        let flight = self.flights.get(key).map(|flight| flight.rate_bytes_per_sec());
        let granted = match (flight, key) {
            (Some(rate), _) => Some(self.links.ceiling(rate)),
            (None, TransferKey::Sum(_)) => descriptor.rate_bytes_per_sec,
            (None, _) => None,
        };
        // Where a train speaks, or a sum may have waited for its members, this is a bound.
        let is_bound = descriptor.train_chunks > 0 || (rank.is_none() && descriptor.via.is_some());
        let granted = granted.filter(|_| !is_bound);
        self.links.handle_delivered(now_ns, path, (bytes, duration_ns), granted);
    }

    /// Where a transfer of a group into a box comes from, and the box's host.
    pub(super) fn path_into(
        &self,
        node: NodeId,
        id: GroupId,
        rank: Option<Rank>,
    ) -> Option<(HostId, HostId)> {
        let group = self.groups.get(&id)?;
        let job = &self.jobs[&group.job];
        let via = group.descriptor.via.and_then(|via| job.aggregators.get(usize::from(via.0)));
        let worker = |rank: Rank| job.workers.get(rank.index()).map(|worker| worker.host());
        let from = match (rank, via) {
            (Some(rank), _) => worker(rank),
            (None, Some(via)) => Some(self.host_of(*via)),
            (None, None) => group.members.first().and_then(|member| worker(member.rank)),
        };
        Some((from?, self.host_of(node)))
    }
}

/// Whether what an event says can be counted with.
fn check_figures(event: &Event) -> Result<(), Refusal> {
    let (counts, norms) = match *event {
        Event::Decided { order, decision, norm, momentum_norm, .. } => {
            let version = match decision {
                Decision::Committed(version) => version.0,
                Decision::Void | Decision::Dropped => 0,
            };
            ([order.0, version, 0], [norm, momentum_norm])
        }
        // What the server cannot bound is infinite.
        Event::ReplicaAt { order, divergence_bound, .. } => {
            ([order.0, 0, 0], [divergence_bound.min(f64::MAX), 0.0])
        }
        Event::Promoted { momentum_norm, order, applied, version, .. } => {
            ([order.0, applied.0, version.0], [momentum_norm, 0.0])
        }
        Event::PromotionRefused { applied } => ([applied.0, 0, 0], [0.0; 2]),
        _ => ([0; 3], [0.0; 2]),
    };
    if counts.iter().any(|count| *count >= COUNT_MAX) {
        return Err(Refusal::new("order", "is beyond anything that can be counted"));
    }
    if norms.iter().any(|norm| !(norm.is_finite() && *norm >= 0.0)) {
        return Err(Refusal::new("norm", "must be finite and not negative"));
    }
    Ok(())
}
