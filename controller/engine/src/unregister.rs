//! Decides what becomes of a job that was registered at run time and is to end.
//!
//! What was asked for and not granted is dropped; groups that are open are taken back from their
//! boxes, where the server judges VOID what it has not decided. Invariant: afterwards nothing of
//! the job holds a row, a link or a gate of another one.

use alloc::vec::Vec;

use thiserror::Error;
use weft_control::DropReason;
use weft_wire::{GroupId, JobId, Rank};

use super::job::{GroupState, Ticket};
use super::message::{Action, Reply};
use super::{Controller, Why};

/// What ended with a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Unregistered {
    /// Its index, which may be used again.
    pub job: JobId,
    /// Updates that were asked for and will not be granted.
    pub dropped: u64,
    /// Groups that were taken back from their boxes.
    pub groups: u32,
}

/// Why a job was not unregistered. Nothing changed.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum UnregisterError {
    /// There is none of that name.
    #[error("name: there is no such job; status lists those that there are")]
    Unknown,
    /// It would be back with the next start.
    #[error("name: the job is in the configuration file; take it out there and start again")]
    Configured,
}

impl Controller {
    /// Ends a job that was registered at run time.
    ///
    /// # Errors
    /// There is no such job, or it is one of the configuration.
    pub fn unregister_job(
        &mut self,
        now_ns: u64,
        name: &str,
    ) -> Result<Unregistered, UnregisterError> {
        let id = self.job_by_name(name).ok_or(UnregisterError::Unknown)?;
        if !self.registered.iter().any(|job| job.name == name) {
            return Err(UnregisterError::Configured);
        }
        let ended = self.end_updates(now_ns, id);
        self.jobs.remove(&id);
        self.bands.remove_job(id);
        self.registered.retain(|job| job.name != name);
        self.is_saved = false;
        // Others may use what it was promised.
        self.need_plan(Why::Word);
        Ok(ended)
    }

    /// Drops what a job asked for, takes its groups back, and detaches its workers.
    pub(super) fn end_updates(&mut self, now_ns: u64, id: JobId) -> Unregistered {
        let job = &self.jobs[&id];
        let pending: Vec<Ticket> = job.pending.keys().copied().collect();
        let open: Vec<GroupId> = job.open.values().copied().collect();
        let ranks = (0u8..).zip(&job.workers).filter_map(|(rank, _)| Rank::new(rank));
        let ranks: Vec<Rank> = ranks.collect();
        let mut dropped = pending.len() as u64;
        for ticket in pending {
            self.drop_update(id, ticket, DropReason::JobEnded);
        }
        let groups = u32::try_from(open.len()).unwrap_or(u32::MAX);
        for group in open {
            dropped += self.end_with_job(now_ns, group);
        }
        for rank in ranks {
            self.handle_worker_gone(id, rank);
        }
        Unregistered { job: id, dropped, groups }
    }

    /// Ends a group; returns how many of its updates were not granted. Of the others their server
    /// tells.
    fn end_with_job(&mut self, now_ns: u64, id: GroupId) -> u64 {
        let Some(group) = self.take_group(now_ns, id) else { return 0 };
        self.take_from_boxes(&group);
        let mut dropped = 0;
        for member in &group.members {
            let Some(request) = &member.request else { continue };
            let (job, rank, update_id) = (group.job, member.rank, request.update_id);
            self.flights.forget(job, rank, update_id);
            if group.state == GroupState::Installing {
                dropped += 1;
                let reply = Reply::Drop { update_id, reason: DropReason::JobEnded };
                self.actions.push_back(Action::Reply { job, rank, reply });
            }
        }
        dropped
    }
}
