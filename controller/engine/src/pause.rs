//! Decides when a push job that is to pause stands still, and what it may do until then.
//!
//! Paused means no new grant. What was granted finishes: it has an order number that its server
//! decides in sequence, and taking it back would waste what has moved. Groups that nobody was
//! granted yet are aborted, and their updates wait with the others. A server's link has one
//! transfer granted behind the one that moves, so that it does not run dry: so the last commit
//! comes at most one largest transfer after the end of what moves at the word. The time from the
//! word to the standstill is measured and told.
//!
//! A server without a stream is waited for [`AWAY_MAX_NS`], if anything of the job was ever
//! granted; then whoever asked is told, and the job is not paused.
//!
//! Invariants: a paused job is granted nothing; a pause outlives the controller; what an operator
//! paused no policy resumes.

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::vec::Vec;

use weft_control::JobState;
use weft_wire::{GroupId, JobId};

use super::job::{AWAY_MAX_NS, Group, GroupState, Job};
use super::message::Action;
use super::reduce::Reduce;
use super::steered::{SteerError, Steerer};
use super::{Controller, Why};

impl Controller {
    /// Has a job pause. An [`Action::State`] tells of the standstill.
    ///
    /// # Errors
    /// There is no such job, or it is paused already.
    pub fn pause_job(&mut self, now_ns: u64, name: &str, by: Steerer) -> Result<JobId, SteerError> {
        if let Some(id) = self.reduce_by_name(name) {
            return self.pause_reduce(now_ns, id, by);
        }
        let id = self.job_by_name(name).ok_or(SteerError::Unknown)?;
        let job = self.jobs.get_mut(&id).expect("found by its name");
        if job.pause.by().is_some_and(|paused| paused >= by) {
            return Err(SteerError::Paused(job.pause.state()));
        }
        let was_running = job.pause.by().is_none();
        job.pause.begin(now_ns, by);
        self.is_saved = false;
        self.is_steering_unsaved = true;
        if was_running {
            job.planned.clear();
            self.tell_state(id, None);
            self.abort_waiting(now_ns, id);
        }
        Ok(id)
    }

    /// Has a paused job go on.
    ///
    /// # Errors
    /// There is no such job, it is not paused, or a greater authority paused it.
    pub fn resume_job(
        &mut self,
        now_ns: u64,
        name: &str,
        by: Steerer,
    ) -> Result<JobId, SteerError> {
        if let Some(id) = self.reduce_by_name(name) {
            return self.resume_reduce(id, by);
        }
        let id = self.job_by_name(name).ok_or(SteerError::Unknown)?;
        let job = &self.jobs[&id];
        let paused = job.pause.by().ok_or_else(|| SteerError::NotPaused(job.pause.state()))?;
        if paused > by {
            return Err(SteerError::Operators);
        }
        self.end_pause(now_ns, id);
        Ok(id)
    }

    /// Whether a job is paused and stands still.
    #[must_use]
    pub fn stands(&self, job: JobId) -> bool {
        let pushed = self.jobs.get(&job).map(|job| job.pause.state());
        let state = pushed.or_else(|| self.reduces.get(&job).map(Reduce::state));
        state == Some(JobState::Paused)
    }

    /// Groups of a job that nobody was granted end; their updates wait.
    fn abort_waiting(&mut self, now_ns: u64, job: JobId) {
        let open = self.jobs[&job].open.values().copied();
        let is_waiting = |id: &GroupId| {
            self.groups.get(id).is_some_and(|group| group.state == GroupState::Installing)
        };
        let waiting: Vec<GroupId> = open.filter(is_waiting).collect();
        for id in waiting {
            self.abort(now_ns, id, Why::Word);
        }
    }

    /// Tells of jobs that have come to a standstill, and of pauses that come to none.
    pub(super) fn note_standstills(&mut self, now_ns: u64) {
        let paused = self.jobs.values().filter(|job| job.pause.by().is_some());
        let jobs: Vec<JobId> = paused.map(|job| job.id).collect();
        for id in jobs {
            let stands = self.is_still(&self.jobs[&id]);
            let is_there = self.nodes[self.jobs[&id].server.index()].is_attached();
            let pause = &mut self.jobs.get_mut(&id).expect("just seen").pause;
            if !stands {
                pause.note_server(now_ns, is_there);
                // Its server came with groups that this controller has no record of.
                if pause.stir() {
                    self.tell_state(id, None);
                }
            } else if let Some(after_ns) = pause.stand(now_ns) {
                self.tell_state(id, after_ns);
            }
            if self.jobs[&id].pause.given_up_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                self.give_pause_up(now_ns, id);
            }
        }
    }

    /// When a pause is given up.
    pub(super) fn pause_due_ns(&self) -> Option<u64> {
        self.jobs.values().filter_map(|job| job.pause.given_up_ns()).min()
    }

    /// Nothing of a job is granted and not decided. Where its server is, and so what it has still
    /// to decide, is not known before it tells, unless nobody was ever granted anything.
    fn is_still(&self, job: &Job) -> bool {
        let mut open = job.open.values().filter_map(|group| self.groups.get(group));
        (job.is_known || job.is_untouched) && !open.any(moves)
    }

    /// A job's server has been away for too long for its standstill: the job goes on as it was.
    fn give_pause_up(&mut self, now_ns: u64, id: JobId) {
        let job = &self.jobs[&id];
        let open = job.open.values().filter_map(|group| self.groups.get(group));
        let left = match (job.is_known, open.filter(|group| moves(group)).count()) {
            (false, _) => "what it has still to decide is not known".to_owned(),
            (true, groups) => format!("{groups} groups that were granted are not decided"),
        };
        let problem = format!(
            "name: the job's server `{}` has had no stream for {} s, and {left}; the job goes on as \
             it was, when the server is back",
            self.name(job.server),
            AWAY_MAX_NS / 1_000_000_000
        );
        self.actions.push_back(Action::Unpaused { job: id, problem });
        self.end_pause(now_ns, id);
    }

    fn end_pause(&mut self, now_ns: u64, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("the caller's job");
        job.pause.end();
        if !job.pending.is_empty() {
            job.unplanned_since_ns.get_or_insert(now_ns);
        }
        self.is_saved = false;
        self.is_steering_unsaved = true;
        self.tell_state(id, None);
        self.need_plan(Why::Word);
    }

    fn tell_state(&mut self, id: JobId, after_ns: Option<u64>) {
        let state = self.jobs[&id].pause.state();
        self.actions.push_back(Action::State { job: id, state, after_ns });
    }
}

/// Something of the group is still to come.
fn moves(group: &Group) -> bool {
    !group.is_doomed && (group.state == GroupState::Staged || !group.is_deserted())
}
