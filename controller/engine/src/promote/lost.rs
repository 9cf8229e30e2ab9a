//! Ends or moves a job whose server returned with fewer commits than it had announced.
//!
//! A server with a journal announces what is on its disk (SPEC, "Durable"), so a version below the
//! announced one means that its files lost their end; a server without a journal lost everything.
//! Workers computed on the lost versions. A fit replica takes over; else the job ends until it is
//! registered again or the controller restarts.

use weft_control::Version;
use weft_wire::JobId;

use crate::Controller;
use crate::message::{LostCommits, Notice, RoleState};

impl Controller {
    /// The loss that a job's server returned with, now or before.
    pub(super) fn lost_commits(&self, state: &RoleState) -> Option<LostCommits> {
        let job = &self.jobs[&state.job];
        let acknowledged = Version(job.version);
        let is_less = state.version < acknowledged;
        let lost = LostCommits { returned: state.version, acknowledged };
        job.lost.or_else(|| is_less.then_some(lost))
    }

    /// Promotes the replica of a server that lost commits, or ends the job.
    pub(super) fn lose_commits(&mut self, now_ns: u64, id: JobId, lost: LostCommits) {
        let job = self.jobs.get_mut(&id).expect("the caller's job");
        if job.is_over {
            return;
        }
        job.lost = Some(lost);
        let (server, replica) = (job.server, job.replica);
        let fit = replica.filter(|node| self.is_here(now_ns, *node) && self.is_fit(id));
        let is_over = fit.is_none();
        self.notice(id, Notice::CommitsLost { server: self.name(server), lost, is_over });
        self.jobs.get_mut(&id).expect("the caller's job").is_over = is_over;
        match fit {
            Some(replica) => self.ask_replica(now_ns, id, replica),
            None => _ = self.end_updates(now_ns, id),
        }
    }
}
