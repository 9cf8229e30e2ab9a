//! Decides when planned groups get their order numbers, installs them, and grants their members.
//!
//! Groups leave the plan from its front only, so order numbers follow the plan; they leave it late
//! (shortly before they move, or when the server would run dry), so that the rest can be planned
//! anew. Members are granted after every box on the path has acknowledged the group (PROTOCOL
//! section 6). An order number whose group the server refused is offered again until it takes it:
//! numbers are decided in sequence, and a gap would hold all later ones up.

use weft_engine::push::{BoxIndex, Command, GroupDescriptor, GroupMember, OrderNumber, Version};
use weft_wire::header::ElementType;
use weft_wire::quant::exponent_for;
use weft_wire::{GroupId, JobId};

use crate::case::{HostId, Segment};

use super::Controller;
use super::flights::{Flight, Waiter};
use super::job::{Group, GroupState, Job, Member, Pending, Planned};
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
    /// transfers are on their way to every server.
    pub(super) fn install_due(&mut self, now_ns: u64) {
        let soon_ns = now_ns.saturating_add(self.config.tuning.grant_lead_ns());
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in jobs {
            let job = &self.jobs[&id];
            if job.planned.is_empty() || !self.can_plan(job) {
                continue;
            }
            let server = self.host_of(job.server);
            let starts_soon = |group: &Planned| group.start_ns <= soon_ns;
            let mut due = job.planned.iter().rposition(starts_soon).map_or(0, |last| last + 1);
            let arriving = self.flights.arriving(server) as usize;
            due = due.max(ARRIVING_MIN.saturating_sub(arriving).min(job.planned.len()));
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
        let order = job.next_order;
        job.next_order += 1;
        job.open.insert(order, group);
        let requests: Vec<Pending> =
            planned.members.iter().filter_map(|(ticket, _)| job.pending.remove(ticket)).collect();
        job.round.granted += u32::try_from(requests.len()).unwrap_or(u32::MAX);
        let server = self.host_of(self.jobs[&id].server);
        let via = planned.via.map(|i| self.host_of(self.jobs[&id].aggregators[i]));
        let mut members = Vec::with_capacity(requests.len());
        for (request, (_, own)) in requests.iter().zip(&planned.members) {
            let from = self.jobs[&id].workers[request.rank.index()].host;
            let path = (from, via.unwrap_or(server));
            let segments = self.grant_segments(now_ns, id, planned.via.is_some(), path, own);
            if via.is_some() {
                let flight = Flight { from, to: path.1, segments: own.clone() };
                self.flights.insert(TransferKey::Member(group, request.rank), flight);
            }
            members.push(Member {
                rank: request.rank,
                version: request.version,
                segments,
                request: Some(request.clone()),
            });
        }
        let source = via.unwrap_or_else(|| self.worker_host(id, &members));
        let descriptor =
            self.descriptor(id, (group, OrderNumber(order)), &planned, &requests, source);
        let sum = Flight { from: source, to: server, segments: planned.sum };
        let duration_ns = sum.duration_ns();
        let end_ns = sum.segments.last().map_or(now_ns, |last| last.to_ns);
        self.flights.insert(TransferKey::Sum(group), sum);
        let waiting = self.install(id, &descriptor, source, planned.copy);
        let slack_ns = (duration_ns as f64 * self.config.tuning.lateness_share).ceil();
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
        };
        self.groups.insert(group, entry);
        true
    }

    fn worker_host(&self, job: JobId, members: &[Member]) -> HostId {
        let workers = &self.jobs[&job].workers;
        members.first().map_or(HostId(0), |member| workers[member.rank.index()].host)
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
            let flight = Flight { from: source, to, segments: copy };
            self.flights.insert(TransferKey::Copy(descriptor.group), flight);
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
        source: HostId,
    ) -> GroupDescriptor {
        let job = &self.jobs[&id];
        let server = self.host_of(job.server);
        let start_ns = planned.sum.first().map_or(0, |first| first.from_ns);
        let of_same_server = |key: TransferKey| {
            matches!(key, TransferKey::Sum(other)
                if self.groups.get(&other).is_some_and(|other| other.job == id))
        };
        let opener =
            self.flights.opener(self.links.topology(), (source, server), start_ns, of_same_server);
        let rate = planned.sum.iter().map(|segment| segment.bytes_per_sec).max();
        let is_fair = job.policy.name() == "fair";
        let duration_ns = planned.sum.last().map_or(0, |last| last.to_ns - start_ns);
        let tuning = &self.config.tuning;
        let lateness_ns = duration_ns.saturating_mul(tuning.void_factor).max(tuning.void_ns_min());
        let replica = job.replica.filter(|node| self.nodes[node.index()].is_attached);
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
            element_type: job.config.element.to_wire(),
            elements: job.config.elements(),
            exponent: exponent(job, requests),
            via: planned.via.and_then(|via| u8::try_from(via).ok()).map(BoxIndex),
            replicate: replica.is_some(),
            rate_bytes_per_sec: rate.filter(|_| !is_fair).map(|rate| self.links.ceiling(rate)),
            after: opener.map(TransferKey::group),
            lateness_ns,
        }
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
            let gate = match is_aggregated {
                true => self.gate(now_ns, path, start_ns),
                false => Gate::Open,
            };
            let rate_bytes_per_sec = match self.jobs[&id].policy.name() {
                "fair" => super::check::RATE_BYTES_PER_SEC_MAX,
                _ => self.links.ceiling(fastest),
            };
            let expected_in_ns = start_ns.saturating_sub(now_ns);
            return vec![(start_ns, GrantSegment { gate, rate_bytes_per_sec, expected_in_ns })];
        }
        let segment = |segment: &Segment| {
            let segment = GrantSegment {
                gate: self.gate(now_ns, path, segment.from_ns),
                rate_bytes_per_sec: self.links.ceiling(segment.bytes_per_sec),
                expected_in_ns: segment.from_ns.saturating_sub(now_ns),
            };
            segment
        };
        own.iter().map(|own| (own.from_ns, segment(own))).collect()
    }

    fn gate(&self, now_ns: u64, path: (HostId, HostId), start_ns: u64) -> Gate {
        if start_ns <= now_ns.saturating_add(OPEN_NS) {
            return Gate::Open;
        }
        let is_first_or_sum = |key: TransferKey| !matches!(key, TransferKey::Copy(_));
        match self.flights.opener(self.links.topology(), path, start_ns, is_first_or_sum) {
            Some(key) => Gate::After(key),
            None => Gate::Timed,
        }
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
            job.counters.aggregated += u64::from(descriptor.via.is_some());
            job.counters.granted_bytes += request.size_bytes;
            job.counters.grant_sum_ns += now_ns.saturating_sub(request.asked_ns);
            job.note_decision(false);
            if let Some(worker) = job.worker_mut(member.rank) {
                worker.dropped_before = false;
            }
        }
        let mask = descriptor.mask();
        for member in members {
            let Some(request) = &member.request else { continue };
            let waiter = |segment| Waiter {
                job: descriptor.job,
                rank: member.rank,
                update_id: request.update_id,
                segment,
            };
            let segments = member.segments.iter().enumerate().map(|(i, (start_ns, segment))| {
                let mut segment = *segment;
                let waiter = waiter(u32::try_from(i).unwrap_or(u32::MAX));
                segment.gate = self.open_or_wait(now_ns, segment.gate, *start_ns, waiter);
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
            };
            let reply = Reply::Grant(grant);
            self.actions.push_back(Action::Reply { job: descriptor.job, rank: member.rank, reply });
        }
    }

    /// The gate as it is now; one that is closed has the segment wait.
    fn open_or_wait(&mut self, now_ns: u64, gate: Gate, start_ns: u64, waiter: Waiter) -> Gate {
        match gate {
            Gate::After(key) if self.flights.get(key).is_some() => self.flights.wait(key, waiter),
            Gate::Timed if start_ns > now_ns => self.flights.wait_until(start_ns, waiter),
            Gate::Open | Gate::After(_) | Gate::Timed => return Gate::Open,
        }
        gate
    }

    /// Tells those whose gate has opened.
    pub(super) fn release(&mut self, waiters: Vec<Waiter>) {
        for Waiter { job, rank, update_id, segment } in waiters {
            let reply = Reply::Release { update_id, segment };
            self.actions.push_back(Action::Reply { job, rank, reply });
        }
    }
}

/// The exponent at which the largest element of any member fits, given how many are summed.
fn exponent(job: &Job, requests: &[Pending]) -> i8 {
    if job.config.element.to_wire() != ElementType::I32 {
        return 0;
    }
    let largest = requests.iter().map(|request| request.max_abs).fold(0.0, f64::max);
    #[expect(clippy::cast_possible_truncation, reason = "rounded up by a step, so it still covers")]
    let largest = (largest as f32).next_up();
    exponent_for(largest, u32::try_from(requests.len()).unwrap_or(u32::MAX))
}

/// Transfers on their way to a server below which the next group is granted whatever the clock says.
const ARRIVING_MIN: usize = 2;
/// Rates of one grant; a plan with more gets its highest.
const SEGMENTS_MAX: usize = 8;
/// A start this near is now.
const OPEN_NS: u64 = 10_000;
/// A transfer is not called late within this.
const LATE_SLACK_NS_MIN: u64 = 2_000_000;
