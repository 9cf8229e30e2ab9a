//! Decides by silence: whose server is dead, which replica is left, what is promised to nobody.
//!
//! Invariants: a server is given as long as its replica to come back from where both were away; the
//! controller's own absence is nobody's silence.

use alloc::vec::Vec;

use weft_control::AckMode;
use weft_wire::{GroupId, JobId};

use crate::job::Job;
use crate::message::{NodeId, Notice};
use crate::{Controller, Why};

/// What is to be done about a job now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    Nothing,
    Leave(NodeId),
    Ask(NodeId),
    Strand,
}

impl Controller {
    /// The controller itself was away, stopped or busy: what was said meanwhile is still to be
    /// read, and whose word is overdue is not known. Everybody gets that time again.
    pub(crate) fn forgive_pause(&mut self, now_ns: u64) {
        let pause_ns = now_ns.saturating_sub(self.leases_at_ns);
        if pause_ns < PAUSE_NS_MIN {
            return;
        }
        let shift = |at_ns: &mut u64| *at_ns = at_ns.saturating_add(pause_ns).min(now_ns);
        self.nodes.iter_mut().for_each(|node| node.shift(shift));
        self.groups.values_mut().for_each(|group| shift(&mut group.installed_ns));
        self.jobs.values_mut().for_each(|job| job.promotion.shift(shift));
    }

    /// Boxes whose word is overdue: servers that are replaced, replicas that are left.
    pub(crate) fn check_leases(&mut self, now_ns: u64) {
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in jobs {
            self.check_absence(now_ns, id);
            match self.next_step(now_ns, id) {
                Step::Nothing => {}
                Step::Leave(replica) => self.leave_replica(id, replica),
                Step::Ask(replica) => self.ask_replica(now_ns, id, replica),
                Step::Strand => {
                    let job = self.jobs.get_mut(&id).expect("just listed");
                    job.promotion.strand();
                    let server = job.server;
                    self.notice(id, Notice::Stranded { server: self.name(server) });
                }
            }
        }
    }

    /// A server that is away calls for no sums: nothing of its job moves, and what other jobs wait
    /// for would not end. Once it has been away for a lease they need not wait.
    fn check_absence(&mut self, now_ns: u64, id: JobId) {
        let server = self.jobs[&id].server;
        let is_overdue = self.lease_end(server).is_some_and(|end_ns| end_ns <= now_ns);
        let is_away = is_overdue && !self.nodes[server.index()].is_attached();
        let job = self.jobs.get_mut(&id).expect("the caller's job");
        if core::mem::replace(&mut job.is_server_away, is_away) == is_away {
            return;
        }
        let open: Vec<GroupId> = job.open.values().copied().collect();
        for group in open.into_iter().filter(|_| is_away) {
            let waiters = self.flights.finish_group(now_ns, group);
            self.release(waiters);
        }
        self.need_plan(Why::Failure);
    }

    /// When [`Controller::check_leases`] has something to do.
    pub(crate) fn lease_due_ns(&self, now_ns: u64) -> Option<u64> {
        // Looked at often, so that a look that comes late is known for one.
        let look_ns = self.leases_at_ns.saturating_add(LOOK_NS);
        let away = self.jobs.values().map(|job| self.lease_end(job.server));
        let jobs = self.jobs.values().filter(|job| job.config.ack == AckMode::Replica);
        let due = jobs.flat_map(|job| {
            let (server, replica) = (self.server_lease_end(job), job.replica);
            let replica = replica.filter(|_| !job.promotion.is_replica_left());
            let replica = replica.and_then(|node| self.replica_lease_end(job.server, node));
            let asked = job.promotion.asked_ns().map(|asked_ns| asked_ns + self.lease_ns());
            [server, replica, asked]
        });
        let due = due.chain(away).flatten().filter(|due_ns| *due_ns > now_ns).min();
        due.map(|due_ns| due_ns.min(look_ns))
    }

    fn next_step(&self, now_ns: u64, id: JobId) -> Step {
        let job = &self.jobs[&id];
        let promotion = &job.promotion;
        if job.config.ack != AckMode::Replica {
            return Step::Nothing;
        }
        let replica = job.replica;
        let fit = replica.filter(|node| self.is_here(now_ns, *node) && self.is_fit(id));
        if let Some(asked_ns) = promotion.asked_ns() {
            // Its answer, or the question, may be lost; only another life of it never heard it.
            let is_due = asked_ns.saturating_add(self.lease_ns()) <= now_ns;
            return match fit {
                _ if !is_due => Step::Nothing,
                Some(node) => Step::Ask(node),
                None if promotion.is_stranded() => Step::Nothing,
                None => Step::Strand,
            };
        }
        let Some(silent_at) = self.server_lease_end(job) else { return Step::Nothing };
        if silent_at > now_ns {
            let left = replica.filter(|node| {
                let end_ns = self.replica_lease_end(job.server, *node);
                !promotion.is_replica_left() && end_ns.is_some_and(|end_ns| end_ns <= now_ns)
            });
            return left.map_or(Step::Nothing, Step::Leave);
        }
        match fit {
            Some(node) => Step::Ask(node),
            None if promotion.is_stranded() => Step::Nothing,
            None => Step::Strand,
        }
    }

    /// True for a box that has a stream and speaks.
    pub(super) fn is_here(&self, now_ns: u64, node: NodeId) -> bool {
        let is_fresh = self.lease_end(node).is_some_and(|end_ns| end_ns > now_ns);
        is_fresh && self.nodes[node.index()].is_attached()
    }

    /// Until when a box counts as alive; none for one that was never here.
    fn lease_end(&self, node: NodeId) -> Option<u64> {
        let node = &self.nodes[node.index()];
        Some(node.heard_ns()?.saturating_add(self.lease_ns()))
    }

    /// Until when a job's server is waited for; none before it or its replica was ever here. Where
    /// the replica came last both were away, maybe for this controller's sake: the server, too, has
    /// time to dial.
    fn server_lease_end(&self, job: &Job) -> Option<u64> {
        let heard_ns = self.nodes[job.server.index()].heard_ns();
        let came_ns = job.replica.and_then(|node| self.nodes[node.index()].came_ns());
        let since_ns = match came_ns.filter(|came_ns| heard_ns.is_none_or(|ns| ns < *came_ns)) {
            Some(came_ns) => came_ns.saturating_add(REDIAL_NS),
            None => heard_ns?,
        };
        Some(since_ns.saturating_add(self.lease_ns()))
    }

    /// Until when a replica is waited for. One that never came may be about to dial.
    fn replica_lease_end(&self, server: NodeId, replica: NodeId) -> Option<u64> {
        let came_ns = self.nodes[server.index()].came_ns()?;
        let since_ns = match self.nodes[replica.index()].heard_ns() {
            Some(heard_ns) => heard_ns.max(came_ns),
            None => came_ns.saturating_add(REDIAL_NS),
        };
        Some(since_ns.saturating_add(self.lease_ns()))
    }

    const fn lease_ns(&self) -> u64 {
        self.config.tuning.server_lease_ns()
    }
}

/// How often leases are looked at while any runs.
const LOOK_NS: u64 = 500_000_000;
/// A look that comes so long after the last one says that the controller was away.
const PAUSE_NS_MIN: u64 = 2 * LOOK_NS;
/// Boxes dial at least so often, with some to spare.
const REDIAL_NS: u64 = 10_000_000_000;
