//! What a resize is checked against before anything is said to workers: the job's places, and the
//! slots of hosts that other jobs leave.
//!
//! Invariant: the places that a resize stops for are taken from the word on, so that two words at
//! once do not both get them.

use alloc::vec::Vec;

use weft_wire::JobId;

use super::job::Reduce;
use super::placing;
use crate::Controller;
use crate::steered::SteerError;

impl Controller {
    /// Has an allreduce job go on with another number of workers. An
    /// [`Action::Resized`](crate::Action::Resized) tells of its end.
    ///
    /// # Errors
    /// There is no such job, it is a push job, it is paused or being resized, or there is no room.
    pub fn resize_job(&mut self, now_ns: u64, name: &str, to: u32) -> Result<JobId, SteerError> {
        let Some(id) = self.reduce_by_name(name) else {
            return Err(match self.job_by_name(name) {
                Some(_) => SteerError::Pushed,
                None => SteerError::Unknown,
            });
        };
        let places = self.reduces[&id].config.places.len();
        let to = u16::try_from(to).map_err(|_| SteerError::Places { wanted: to, places })?;
        let places = self.room_for(id, to)?;
        self.reduces.get_mut(&id).expect("found by its name").resize(now_ns, places)?;
        self.settle_reduce(id);
        Ok(id)
    }

    /// Places for so many workers of an allreduce job that are there and free.
    pub(super) fn room_for(&self, id: JobId, to: u16) -> Result<Vec<u16>, SteerError> {
        let job = &self.reduces[&id];
        let free = |host: &str| self.free_slots(id, host);
        placing::choose(&job.config, to, job.skew(), free)
    }

    /// Slots of a host that other jobs leave; none: as many as there are.
    fn free_slots(&self, id: JobId, host: &str) -> Option<usize> {
        let host = self.config.hosts.iter().find(|known| known.name == host)?;
        let slots = usize::from(host.slots?);
        let others = self.reduces.values().filter(|job| job.id != id);
        let reduced: usize = others.map(|job| Reduce::workers_on(job, &host.name)).sum();
        let pushed = self.jobs.values().flat_map(|job| &job.config.workers);
        let pushed = pushed.filter(|worker| worker.host() == host.name).count();
        Some(slots.saturating_sub(reduced + pushed))
    }
}
