//! Decides when planned groups get their order numbers, installs them, and grants their members.
//!
//! Groups leave the plan from its front only, so order numbers follow the plan; they leave it late
//! (shortly before they move, or when the server would run dry), so that the rest can be planned
//! anew. Members are granted after every box on the path has acknowledged the group (PROTOCOL
//! section 6). An order number whose group the server refused is offered again until it takes it:
//! numbers are decided in sequence, and a gap would hold all later ones up.

use alloc::vec::Vec;

use weft_control::{
    BoxIndex, Command, GroupDescriptor, GroupMember, OrderNumber, TRAIN_CHUNKS_MAX, Version,
};
use weft_wire::header::ElementType;
use weft_wire::quant::exponent_for;
use weft_wire::{GroupId, JobId};

use weft_plan::case::{HostId, Segment};
use weft_plan::float;

use super::Controller;
use super::flights::{Flight, SEGMENTS_MAX, WaitingSegment, past_trickles};
use super::job::{Group, GroupState, Job, Member, Offers, Pending, Planned};
use super::message::{Action, Gate, Grant, GrantSegment, NodeId, Reply, TransferKey};

impl Controller {
    /// When the next planned group is due by its start.
    pub(super) fn grant_due_ns(&self) -> Option<u64> {
        let lead_ns = self.config.tuning.grant_lead_ns();
        let jobs = self.jobs.values().filter(|job| self.can_plan(job));
        let starts = jobs.flat_map(|job| job.planned.iter().map(|group| group.start_ns));
        starts.min().map(|start_ns| start_ns.saturating_sub(lead_ns))
    }

    /// Installs what is due: up to the last planned group that starts soon, and enough that two
    /// transfers are on their way to every server. Where the network shares itself all are.
    pub(super) fn install_due(&mut self, now_ns: u64) {
        let soon_ns = now_ns.saturating_add(self.config.tuning.grant_lead_ns());
        let mut jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        // What was planned to move first is granted first: it takes the links' next free time.
        let first_ns = |id: &JobId| self.jobs[id].planned.front().map(|group| group.start_ns);
        jobs.sort_by_key(|id| first_ns(id).unwrap_or(u64::MAX));
        for id in jobs {
            let job = &self.jobs[&id];
            if job.planned.is_empty() || !self.can_plan(job) {
                continue;
            }
            let server = self.host_of(job.server);
            let starts_soon = |group: &Planned| group.start_ns <= soon_ns;
            let mut due = job.planned.iter().rposition(starts_soon).map_or(0, |last| last + 1);
            let arriving = self.flights.arriving(server) as usize;
            let ahead =
                if job.is_fair() { usize::MAX } else { ARRIVING_MIN.saturating_sub(arriving) };
            due = due.max(ahead.min(job.planned.len()));
            for _ in 0..due {
                if !self.install_next(now_ns, id) {
                    break;
                }
            }
        }
    }

    /// Gives the front of a job's plan its order number and tells the boxes. False when no row is
    /// free.
    fn install_next(&mut self, now_ns: u64, id: JobId) -> bool {
        let Some(group) = self.rows.take() else { return false };
        let job = self.jobs.get_mut(&id).expect("the caller's job");
        let Some(planned) = job.planned.pop_front() else {
            self.rows.free(group);
            return false;
        };
        let requests: Vec<Pending> =
            planned.members.iter().filter_map(|(ticket, _)| job.pending.remove(ticket)).collect();
        job.round.grant(requests.len());
        let end_ns = planned.sum.last().map_or(now_ns, |last| last.to_ns);
        let order = self.give_number(now_ns, id, &requests, end_ns);
        let job = self.jobs.get_mut(&id).expect("the caller's job");
        job.open.insert(order, group);
        if core::mem::take(&mut job.is_untouched) {
            (self.is_saved, self.is_steering_unsaved) = (false, true);
        }
        let bytes: u64 = requests.iter().map(|request| request.size_bytes).sum();
        job.virtual_bytes += bytes as f64 / job.config.weight;
        let server = self.host_of(self.jobs[&id].server);
        let via = planned.via.map(|i| self.host_of(self.jobs[&id].aggregators[i]));
        let mut members = Vec::with_capacity(requests.len());
        for (request, (_, own)) in requests.iter().zip(&planned.members) {
            let from = self.jobs[&id].workers[request.rank.index()].host();
            let path = (from, via.unwrap_or(server));
            let own = past_trickles(own);
            let segments = self.grant_segments(now_ns, id, planned.via.is_some(), path, &own);
            if via.is_some() {
                let opened_by = match segments.first().map(|(_, first)| first.gate) {
                    Some(Gate::After(key)) => Some(key),
                    _ => None,
                };
                let flight = Flight::new(path, own, opened_by);
                let key = TransferKey::Member(group, request.rank);
                self.flights.insert(key, flight, Some(now_ns));
            }
            members.push(Member {
                rank: request.rank,
                version: request.version,
                segments,
                request: Some(request.clone()),
                is_gone: false,
            });
        }
        let source = via.unwrap_or_else(|| self.worker_host(id, &members));
        let after = self.sum_opener(id, &planned, (source, server));
        let numbers = (group, OrderNumber(order));
        let descriptor = self.descriptor(id, numbers, &planned, &requests, after);
        let sum = Flight::new((source, server), planned.sum, after.map(TransferKey::Sum));
        let duration_ns = sum.duration_ns();
        // A sum moves when its members are there, which only the plan can tell.
        self.flights.insert(TransferKey::Sum(group), sum, via.is_none().then_some(now_ns));
        let waiting = self.install(id, &descriptor, source, planned.copy);
        let slack_ns = float::ceil(duration_ns as f64 * self.config.tuning.lateness_share);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
        let late_ns = end_ns.saturating_add((slack_ns as u64).max(LATE_SLACK_NS_MIN));
        let entry = Group {
            job: id,
            descriptor,
            members,
            state: GroupState::Installing,
            waiting,
            installed_ns: now_ns,
            late_ns,
            is_doomed: false,
            retry_ns: None,
            offers: Offers::default(),
        };
        self.groups.insert(group, entry);
        if let Some(blocker) = self.sum_blocker(group) {
            self.flights.open_by(TransferKey::Sum(group), blocker);
        }
        true
    }

    fn worker_host(&self, job: JobId, members: &[Member]) -> HostId {
        let workers = &self.jobs[&job].workers;
        members.first().map_or(HostId(0), |member| workers[member.rank.index()].host())
    }

    /// Tells server, replica and aggregator; returns who must acknowledge.
    fn install(
        &mut self,
        id: JobId,
        descriptor: &GroupDescriptor,
        source: HostId,
        copy: Vec<Segment>,
    ) -> Vec<NodeId> {
        let job = &self.jobs[&id];
        let mut waiting = vec![job.server];
        let replica = job.replica.filter(|_| descriptor.replicate);
        let aggregator = descriptor.via.and_then(|via| job.aggregators.get(usize::from(via.0)));
        waiting.extend(replica);
        waiting.extend(aggregator);
        if let Some(replica) = replica
            && !copy.is_empty()
        {
            let to = self.host_of(replica);
            let flight = Flight::new((source, to), copy, None);
            self.flights.insert(TransferKey::Copy(descriptor.group), flight, None);
        }
        for node in &waiting {
            self.command(*node, Command::Install(descriptor.clone()));
        }
        waiting
    }

    fn descriptor(
        &self,
        id: JobId,
        (group, order): (GroupId, OrderNumber),
        planned: &Planned,
        requests: &[Pending],
        after: Option<GroupId>,
    ) -> GroupDescriptor {
        let job = &self.jobs[&id];
        let start_ns = planned.sum.first().map_or(0, |first| first.from_ns);
        let rate = planned.sum.iter().map(|segment| segment.bytes_per_sec).max();
        let duration_ns = planned.sum.last().map_or(0, |last| last.to_ns - start_ns);
        let tuning = &self.config.tuning;
        let lateness_ns = duration_ns.saturating_mul(tuning.void_factor).max(tuning.void_ns_min());
        let replica = job.replica.filter(|node| self.nodes[node.index()].is_attached());
        GroupDescriptor {
            job: id,
            group,
            order,
            members: requests
                .iter()
                .map(|request| GroupMember {
                    rank: request.rank,
                    version: Version(request.version),
                })
                .collect(),
            chunks: u32::try_from(job.config.chunk_count()).unwrap_or(u32::MAX),
            element_type: job.config.element,
            elements: job.config.elements(),
            exponent: exponent(job, requests),
            via: planned.via.and_then(|via| u8::try_from(via).ok()).map(BoxIndex),
            replicate: replica.is_some(),
            rate_bytes_per_sec: rate
                .filter(|_| !job.is_fair())
                .map(|rate| self.links.ceiling(rate)),
            train_chunks: self.train_chunks(job, planned, requests),
            after,
            lateness_ns,
        }
    }

    /// Chunks that the group's transfers begin with as a train: enough to outlast a shaper's burst,
    /// few against the update, for what leaves beyond the granted rate is paid for by what follows.
    fn train_chunks(&self, job: &Job, planned: &Planned, requests: &[Pending]) -> u16 {
        let chunks = job.config.chunk_count().max(1);
        let members = planned.members.iter().flat_map(|(_, own)| own);
        let fastest = members.chain(&planned.sum).map(|segment| segment.bytes_per_sec).max();
        let size_bytes = requests.iter().map(|request| request.size_bytes).max().unwrap_or(0);
        let rate = u128::from(self.links.ceiling(fastest.unwrap_or(0)));
        let bytes = rate * u128::from(self.config.tuning.train_us) / 1_000_000;
        let wanted = bytes * u128::from(chunks) / u128::from(size_bytes.max(1));
        let most = (chunks / 3).min(TRAIN_CHUNKS_MAX.into());
        let count = u64::try_from(wanted).unwrap_or(u64::MAX).max(TRAIN_CHUNKS_MIN).min(most);
        let is_wanted = self.config.tuning.train_us > 0 && count >= TRAIN_CHUNKS_MIN;
        if is_wanted { u16::try_from(count).unwrap_or(TRAIN_CHUNKS_MAX) } else { 0 }
    }

    /// The group of the same server that a group's transfer into it comes after, which the server
    /// sees to.
    fn sum_opener(&self, id: JobId, planned: &Planned, path: (HostId, HostId)) -> Option<GroupId> {
        // A server that calls chunks in order lets a group use what those before it leave, and its
        // own plan has nothing else to wait for. Where the network shares itself nobody waits.
        let job = &self.jobs[&id];
        if job.is_fair() || self.is_closed_loop(job) {
            return None;
        }
        let is_own = |key| matches!(key, TransferKey::Sum(_)) && self.job_of(key) == Some(id);
        self.opener(path, planned.sum.first()?, is_own).map(TransferKey::group)
    }

    pub(super) fn job_of(&self, key: TransferKey) -> Option<JobId> {
        self.groups.get(&key.group()).map(|group| group.job)
    }

    /// The segments of a member's grant, each with its planned start. A direct member has one: the
    /// server's credits are its gate.
    fn grant_segments(
        &self,
        now_ns: u64,
        id: JobId,
        is_aggregated: bool,
        path: (HostId, HostId),
        own: &[Segment],
    ) -> Vec<(u64, GrantSegment)> {
        let fastest = own.iter().map(|segment| segment.bytes_per_sec).max().unwrap_or(1);
        let start_ns = own.first().map_or(now_ns, |first| first.from_ns);
        if !is_aggregated || own.len() > SEGMENTS_MAX {
            let gate = match own.first() {
                Some(first) if is_aggregated => self.gate(path, first),
                _ => Gate::Open,
            };
            let rate_bytes_per_sec = match self.jobs[&id].is_fair() {
                true => super::check::RATE_BYTES_PER_SEC_MAX,
                false => self.links.ceiling(fastest),
            };
            let expected_in_ns = start_ns.saturating_sub(now_ns);
            return vec![(start_ns, GrantSegment { gate, rate_bytes_per_sec, expected_in_ns })];
        }
        let segment = |segment: &Segment| GrantSegment {
            gate: self.gate(path, segment),
            rate_bytes_per_sec: self.links.ceiling(segment.bytes_per_sec),
            expected_in_ns: segment.from_ns.saturating_sub(now_ns),
        };
        own.iter().map(|own| (own.from_ns, segment(own))).collect()
    }

    /// Grants the members of a group that all boxes have acknowledged.
    pub(super) fn grant(&mut self, now_ns: u64, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.state = GroupState::Granted;
        let descriptor = group.descriptor.clone();
        let members = group.members.clone();
        let job = self.jobs.get_mut(&descriptor.job).expect("a group's job");
        for member in &members {
            let Some(request) = &member.request else { continue };
            job.counters.granted += 1;
            job.counters.aggregated += u64::from(descriptor.members.len() > 1);
            job.counters.granted_bytes += request.size_bytes;
            job.counters.grant_sum_ns += now_ns.saturating_sub(request.asked_ns);
            job.note_decision(false);
            if let Some(worker) = job.worker_mut(member.rank) {
                worker.note_decision(false);
            }
        }
        let mask = descriptor.mask();
        let start_ns = |member: &Member| member.segments.first().map(|(start_ns, _)| *start_ns);
        let sent = members.iter().filter(|member| member.request.is_some());
        let last = sent.max_by_key(|member| start_ns(member)).map(|member| member.rank);
        for member in members {
            let Some(request) = &member.request else { continue };
            let waiter = |segment| WaitingSegment {
                job: descriptor.job,
                rank: member.rank,
                update_id: request.update_id,
                segment,
                group: id,
                keeps_sum: segment == 0 && last == Some(member.rank),
            };
            let mut shut = None;
            let segments = member.segments.iter().enumerate().map(|(i, (start_ns, segment))| {
                let mut segment = *segment;
                let waiter = waiter(u32::try_from(i).unwrap_or(u32::MAX));
                segment.gate = self.open_or_wait(segment.gate, shut, waiter);
                if let Gate::After(key) = segment.gate {
                    shut = Some(key);
                }
                segment.expected_in_ns = start_ns.saturating_sub(now_ns);
                segment
            });
            let grant = Grant {
                update_id: request.update_id,
                group: id,
                order: descriptor.order,
                via: descriptor.via,
                exponent: descriptor.exponent,
                segments: segments.collect(),
                replicate: descriptor.replicate,
                member_count: u32::try_from(mask.len()).unwrap_or(u32::MAX),
                train_chunks: descriptor.train_chunks,
            };
            let reply = Reply::Grant(grant);
            self.actions.push_back(Action::Reply { job: descriptor.job, rank: member.rank, reply });
        }
    }
}

/// The exponent at which the largest element of any member fits, given how many are summed.
fn exponent(job: &Job, requests: &[Pending]) -> i8 {
    if job.config.element != ElementType::I32 {
        return 0;
    }
    let largest = requests.iter().map(|request| request.max_abs).fold(0.0, f64::max);
    #[expect(clippy::cast_possible_truncation, reason = "rounded up by a step, so it still covers")]
    let largest = (largest as f32).next_up();
    exponent_for(largest, u32::try_from(requests.len()).unwrap_or(u32::MAX))
}

/// Transfers on their way to a server below which the next group is granted whatever the clock
/// says.
const ARRIVING_MIN: usize = 2;
/// Fewer chunks pass within the burst of a shaper of the lab's kind.
const TRAIN_CHUNKS_MIN: u64 = 24;
/// A transfer is not called late within this.
const LATE_SLACK_NS_MIN: u64 = 2_000_000;
