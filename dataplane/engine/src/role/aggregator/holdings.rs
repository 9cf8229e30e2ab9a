//! Jobs and leases that come and go at run time, and those of the file, which come the same way.
//!
//! Decides where a lease is put and what its removal leaves behind; of push jobs `gather/places.rs`
//! does. The table judges what is installed (`table.rs`); the arena is the lane's places for
//! leases, taken when the lane was made, so nothing here allocates, and what finds no place is
//! refused (I8). Called between bursts only: no run waits, no verdict is open. Invariant: all lanes
//! of a box get the same commands in the same order, so they come to the same answers. O(places)
//! per command.

use weft_control::{Command, Event, Holding, HoldingCommand, HoldingError};
use weft_wire::hello::Integrity;
use weft_wire::{JobId, Nanos};

use super::lease::Lease;
use super::{Aggregator, Job, JobStats, NEAR_BYTES};
use crate::random::Owner;
use crate::role::LeaseIndex;
use crate::send::pacer::TokenBucket;
use crate::table::{Holdings, JobConfig, PushConfig, RowConfig};

impl Aggregator {
    /// Takes a controller's word, between bursts. Answered by events.
    pub fn handle_command(&mut self, command: Command) {
        let Command::Holding(command) = command else {
            return self.gather.handle_command(&command);
        };
        let (job, holding) = (command.job(), command.holding());
        let result = match command {
            HoldingCommand::InstallJob(config) => self.install_job(config),
            HoldingCommand::InstallLease(row) => self.install_lease(row),
            HoldingCommand::InstallPush(push) => self.install_push(push),
            HoldingCommand::RemoveJob { job } => self.remove_job(job),
            HoldingCommand::RemoveLease { job, row } => self.remove_lease(job, row),
            HoldingCommand::RemovePush { job } => self.remove_push(job),
        };
        let done = result.unwrap_or_else(|error| Event::HoldingRefused { holding, error });
        self.gather.answer(job, done);
    }

    fn install_job(&mut self, config: JobConfig) -> Result<Event, HoldingError> {
        self.shape.check_job(&config, self).map_err(|error| error.reason)?;
        if Holdings::jobs(self).count() >= self.jobs_max {
            return Err(HoldingError::Full);
        }
        self.add_job(config);
        Ok(Event::HoldingInstalled { holding: Holding::Job })
    }

    fn install_lease(&mut self, row: RowConfig) -> Result<Event, HoldingError> {
        let holding = Holding::Row(row.row);
        self.shape.check_row(&row, self).map_err(|error| error.reason)?;
        if !self.arena.carries(&self.shape, &row) {
            return Err(HoldingError::Port);
        }
        let places = self.leases.iter().zip(0..);
        let fitting = places.filter(|(lease, _)| lease.has_room(&self.shape, &row));
        let smallest = fitting.min_by_key(|(lease, place)| (lease.words_max(), *place));
        let (_, place) = smallest.ok_or(HoldingError::Full)?;
        self.add_lease(LeaseIndex(place), row);
        self.renew();
        Ok(Event::HoldingInstalled { holding })
    }

    fn install_push(&mut self, push: PushConfig) -> Result<Event, HoldingError> {
        self.shape.check_push(&push, self).map_err(|error| error.reason)?;
        if push.integrity == Integrity::Checksum16 && self.arena.lacks_checksums {
            return Err(HoldingError::Port);
        }
        self.gather.install(self.local, push)?;
        self.renew();
        Ok(Event::HoldingInstalled { holding: Holding::Push })
    }

    fn remove_push(&mut self, job: JobId) -> Result<Event, HoldingError> {
        self.gather.remove(job)?;
        self.renew();
        Ok(Event::HoldingRemoved { holding: Holding::Push })
    }

    fn remove_job(&mut self, job: JobId) -> Result<Event, HoldingError> {
        let held = self.jobs.get_mut(usize::from(job.0)).ok_or(HoldingError::Missing)?;
        if held.is_none() {
            return Err(HoldingError::Missing);
        }
        if self.leases.iter().any(|lease| lease.is_installed && lease.row.job == job) {
            return Err(HoldingError::InUse);
        }
        *held = None;
        Ok(Event::HoldingRemoved { holding: Holding::Job })
    }

    pub(super) fn remove_lease(&mut self, job: JobId, row: u16) -> Result<Event, HoldingError> {
        debug_assert!(self.waiting_run().is_none(), "commands come between bursts");
        let number = usize::from(row);
        let place = self.rows.get(number).copied().flatten().ok_or(HoldingError::Missing)?;
        let lease = &mut self.leases[place.index()];
        if lease.row.job != job {
            return Err(HoldingError::OtherJob);
        }
        lease.remove(&mut self.pasts[number]);
        self.rows[number] = None;
        self.timers.set(place.index(), Nanos::MAX);
        self.renew();
        Ok(Event::HoldingRemoved { holding: Holding::Row(row) })
    }

    /// Takes in a job that was judged.
    pub(super) fn add_job(&mut self, config: JobConfig) {
        let shards = u64::from(self.shards);
        let bucket = config.rate_bytes_per_sec.map(|rate| {
            TokenBucket::new((rate / shards).max(1), (config.burst_bytes / shards).max(2048))
        });
        let job = Job { config, bucket, stats: JobStats::default() };
        self.jobs[usize::from(config.job.0)] = Some(job);
    }

    /// Puts a lease that was judged into a free place. [`Aggregator::renew`] is to follow.
    pub(super) fn add_lease(&mut self, place: LeaseIndex, row: RowConfig) {
        let number = usize::from(row.row);
        let job = self.jobs[usize::from(row.job.0)].as_ref();
        let has_quota = job.is_some_and(|job| job.config.rate_bytes_per_sec.is_some());
        let lease = &mut self.leases[place.index()];
        let past = &self.pasts[number];
        let random = self.random.of(Owner::Row(row.row));
        lease.install(&self.shape, row, self.lane, past, random);
        lease.has_quota = has_quota;
        lease.cast_from(&self.shape, self.lane, self.multicast);
        self.rows[number] = Some(place);
    }

    /// Renews what is known of all leases together.
    pub(super) fn renew(&mut self) {
        self.roots.renew(&self.leases);
        let leases = self.leases.iter().flat_map(Lease::addresses);
        self.strangers.renew(leases.chain(self.gather.addresses()));
        let len_bytes = |lease: &Lease| lease.slots.store().len_bytes();
        self.has_far_slots = self.installed().map(len_bytes).sum::<usize>() > NEAR_BYTES;
    }

    /// The leases that are there.
    pub(super) fn installed(&self) -> impl Iterator<Item = &Lease> {
        self.leases.iter().filter(|lease| lease.is_installed)
    }
}

impl Holdings for Aggregator {
    fn jobs(&self) -> impl Iterator<Item = &JobConfig> {
        self.jobs.iter().flatten().map(|job| &job.config)
    }

    fn rows(&self) -> impl Iterator<Item = &RowConfig> {
        self.installed().map(|lease| &lease.row)
    }

    fn pushes(&self) -> impl Iterator<Item = &PushConfig> {
        self.gather.held()
    }
}
