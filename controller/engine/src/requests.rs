//! Takes in what workers say, and refuses what makes no sense without touching anything else.

use alloc::vec::Vec;
use core::net::IpAddr;

use weft_control::Command;
use weft_wire::{GroupId, JobId, Rank};

use weft_plan::case::HostId;

use super::Controller;
use super::job::{GroupState, Job, Pending, Ticket};
use super::message::{NodeId, Refusal, Reporter, TransferRequest};

type Checked<T> = Result<T, Refusal>;

impl Controller {
    /// A worker begins to talk. Another life than before means that what it was granted will not
    /// be sent: its open groups close without it.
    ///
    /// # Errors
    /// No such job or rank, or not from where that worker may call.
    pub fn handle_worker(
        &mut self,
        job: JobId,
        rank: Rank,
        life: u64,
        from: Option<IpAddr>,
    ) -> Checked<()> {
        let checked = self.known_worker(job, rank).and_then(|known| {
            let allowed = known.config.workers[rank.index()].address();
            match (allowed, from) {
                (Some(allowed), Some(from)) if allowed != from.to_canonical() => {
                    let problem =
                        format!("rank {rank} of job `{}` calls from {allowed}", known.config.name);
                    Err(Refusal::new("rank", problem))
                }
                _ => Ok(()),
            }
        });
        self.checked(checked)?;
        let known = self.jobs.get_mut(&job).expect("checked");
        let worker = &mut known.workers[rank.index()];
        let (is_new, host) = (worker.attach(life), worker.host());
        if is_new {
            self.forget_worker(job, rank);
        }
        self.count_anew(host, Reporter::Worker(job, rank));
        Ok(())
    }

    /// A worker's stream has ended: what it was not granted is forgotten.
    pub fn handle_worker_gone(&mut self, job: JobId, rank: Rank) {
        let Some(known) = self.jobs.get_mut(&job) else { return };
        let Some(worker) = known.worker_mut(rank) else { return };
        worker.detach();
        let host = worker.host();
        cancel_pending(known, rank);
        self.count_anew(host, Reporter::Worker(job, rank));
    }

    /// A worker asks to send.
    ///
    /// # Errors
    /// Which field is wrong. Nothing changed.
    pub fn handle_request(
        &mut self,
        now_ns: u64,
        job: JobId,
        rank: Rank,
        request: &TransferRequest,
    ) -> Checked<()> {
        let checked = self.check_request(job, rank, request);
        self.checked(checked)?;
        self.tickets += 1;
        let ticket = self.tickets;
        let job = self.jobs.get_mut(&job).expect("checked");
        let size_bytes = match request.size_bytes {
            0 => job.config.update_bytes(),
            given => given,
        };
        let lag_ns = job.first_asked.lag_ns(now_ns, request.version.0);
        let worker = &mut job.workers[rank.index()];
        worker.ask(request.update_id);
        worker.note_request(now_ns, lag_ns);
        job.counters.requested += 1;
        job.unplanned_since_ns.get_or_insert(now_ns);
        let pending = Pending {
            rank,
            update_id: request.update_id,
            size_bytes,
            version: request.version.0,
            norm: request.norm,
            max_abs: request.max_abs,
            asked_ns: now_ns,
        };
        job.pending.insert(ticket, pending);
        Ok(())
    }

    /// A worker takes a request back, or will not send what it was granted.
    ///
    /// # Errors
    /// No such update of that worker.
    pub fn handle_cancel(
        &mut self,
        now_ns: u64,
        job: JobId,
        rank: Rank,
        update_id: u64,
    ) -> Checked<()> {
        let checked = self.known_worker(job, rank).map(|_| ());
        self.checked(checked)?;
        let known = self.jobs.get_mut(&job).expect("checked");
        let is_it = |pending: &Pending| (pending.rank, pending.update_id) == (rank, update_id);
        let ticket = known.pending.iter().find(|(_, pending)| is_it(pending)).map(|(t, _)| *t);
        if let Some(ticket) = ticket {
            known.take_back(ticket);
            known.counters.cancelled += 1;
            known.end_update(rank);
            return Ok(());
        }
        let has_it = |group: &GroupId| {
            self.groups.get(group).is_some_and(|group| {
                group.members.iter().any(|member| member.request.as_ref().is_some_and(is_it))
            })
        };
        let Some(group) = known.open.values().copied().find(has_it) else {
            let problem = format!("{update_id} is not asked for, or decided already");
            let refusal = Refusal::new("update_id", problem);
            return self.checked(Err(refusal));
        };
        self.flights.forget(job, rank, update_id);
        self.close_member(job, Some(group), rank, true);
        self.lose_member(now_ns, group, rank);
        Ok(())
    }

    /// A worker has pulled the model: a sample of the way from its server, unless an aggregator may
    /// have relayed it.
    ///
    /// # Errors
    /// No such job or rank.
    pub fn handle_pull_sample(
        &mut self,
        now_ns: u64,
        job: JobId,
        rank: Rank,
        sample: (u64, u64),
    ) -> Checked<()> {
        let checked = self.known_worker(job, rank).map(|_| ());
        self.checked(checked)?;
        let known = &self.jobs[&job];
        if known.aggregators.is_empty() {
            let path = (self.host_of(known.server), known.workers[rank.index()].host());
            self.links.handle_delivered(now_ns, path, sample, None);
        }
        Ok(())
    }

    fn known_worker(&self, job: JobId, rank: Rank) -> Checked<&Job> {
        let Some(known) = self.jobs.get(&job) else {
            return Err(match self.reduces.get(&job) {
                Some(reduce) => {
                    let name = &reduce.config.name;
                    let problem = format!(
                        "is missing; `{name}` is an allreduce job: say which \
                        cohort the worker is of, and which round it begins next"
                    );
                    Refusal::new("position", problem)
                }
                None => Refusal::new("job", format!("there is no job {}", job.0)),
            });
        };
        if let Some(lost) = known.lost.filter(|_| known.is_over) {
            return Err(Refusal::new("job", format!("{lost}")));
        }
        if rank.index() >= known.workers.len() {
            let (name, workers) = (&known.config.name, known.workers.len());
            let problem = format!("is {rank}; job `{name}` has ranks 0 to {}", workers - 1);
            return Err(Refusal::new("rank", problem));
        }
        Ok(known)
    }

    /// Where a worker is that has a stream.
    pub(super) fn attached_worker_host(&self, job: JobId, rank: Rank) -> Checked<HostId> {
        let worker = &self.known_worker(job, rank)?.workers[rank.index()];
        match worker.is_attached() {
            true => Ok(worker.host()),
            false => Err(Refusal::new("hello", "say hello before reporting")),
        }
    }

    fn check_request(&self, job: JobId, rank: Rank, request: &TransferRequest) -> Checked<()> {
        let known = self.known_worker(job, rank)?;
        let worker = &known.workers[rank.index()];
        if !worker.is_attached() {
            return Err(Refusal::new("hello", "say hello before asking"));
        }
        if worker.has_used(request.update_id) {
            let problem = format!("{} was used already; ids grow", request.update_id);
            return Err(Refusal::new("update_id", problem));
        }
        let (least, most) = known.config.update_bytes_range();
        if request.size_bytes != 0 && !(least..=most).contains(&request.size_bytes) {
            let (name, given) = (&known.config.name, request.size_bytes);
            let problem =
                format!("is {given}; an update of job `{name}` takes {least} to {most}, or say 0");
            return Err(Refusal::new("size_bytes", problem));
        }
        for (field, value) in [("norm", request.norm), ("max_abs", request.max_abs)] {
            if !(value.is_finite() && value >= 0.0) {
                let problem = format!("is {value}; it is finite and not negative");
                return Err(Refusal::new(field, problem));
            }
        }
        let newest = known.version + known.in_flight(&self.groups) + VERSION_SLACK;
        if known.is_known && request.version.0 > newest {
            let problem = format!("is {}; the model is at {}", request.version.0, known.version);
            return Err(Refusal::new("version", problem));
        }
        let limit = self.config.tuning.updates_per_worker_max;
        if worker.outstanding() >= limit {
            let problem = format!("{limit} updates of this worker are under way; await their end");
            return Err(Refusal::new("update_id", problem));
        }
        Ok(())
    }

    /// What a former life of a worker asked for and was granted will not come.
    pub(super) fn forget_worker(&mut self, job: JobId, rank: Rank) {
        let Some(known) = self.jobs.get_mut(&job) else { return };
        cancel_pending(known, rank);
        let open: Vec<GroupId> = known.open.values().copied().collect();
        let mut has_any = false;
        for id in open {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            for member in group.members.iter_mut().filter(|member| member.rank == rank) {
                has_any = true;
                if let Some(request) = member.request.take() {
                    self.flights.forget(job, rank, request.update_id);
                    known.counters.cancelled += 1;
                }
            }
        }
        if has_any {
            self.close_member(job, None, rank, true);
        }
    }

    /// Tells the boxes that open groups, or one, close without a member.
    pub(super) fn close_member(
        &mut self,
        job: JobId,
        group: Option<GroupId>,
        rank: Rank,
        tell_server: bool,
    ) {
        let known = &self.jobs[&job];
        let mut nodes: Vec<NodeId> = tell_server.then_some(known.server).into_iter().collect();
        for id in known.open.values().filter(|id| group.is_none_or(|only| only == **id)) {
            let Some(open) = self.groups.get(id) else { continue };
            if open.state == GroupState::Staged || !open.mask().contains(rank.bit()) {
                continue;
            }
            let via = open.descriptor.via.map(|via| usize::from(via.0));
            nodes.extend(via.and_then(|via| known.aggregators.get(via)));
        }
        nodes.sort_unstable();
        nodes.dedup();
        for node in nodes {
            self.command(node, Command::CloseMember { job, group, rank });
        }
    }
}

fn cancel_pending(job: &mut Job, rank: Rank) {
    let tickets: Vec<Ticket> = (job.pending.iter())
        .filter(|(_, pending)| pending.rank == rank)
        .map(|(ticket, _)| *ticket)
        .collect();
    for ticket in tickets {
        job.take_back(ticket);
        job.counters.cancelled += 1;
        job.end_update(rank);
    }
}

/// How far the model may be ahead of what the controller has heard: updates that went direct.
const VERSION_SLACK: u64 = 4096;
