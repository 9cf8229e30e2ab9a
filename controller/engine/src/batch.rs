//! Decides when plans are made, and turns the requests of all jobs into planned groups.
//!
//! A round of planning throws away what is planned and not granted, and plans all requests anew on
//! what granted transfers leave. Several jobs take turns of a few updates each, least served (by
//! weight) of the best band first, every turn on what the turns before it left: one ledger,
//! weighted shares, and no job waits longer than the age limit (facts/mlfabric.md, decision 7).
//! Groups that have an order number are never touched: a re-plan takes new numbers, or those that a
//! grant left free (`numbers`).

use alloc::vec::Vec;

use weft_control::{ConductMode, DropReason, Mode};
use weft_wire::JobId;

use weft_plan::case::{Case, HostId, Objective, Options, Reservation, Server, ServerId, Update};
use weft_plan::plan::Plan;
use weft_plan::policy;

use super::answer::{by_ticket, planned_groups, reserve};
use super::job::{Group, Job, Planned, Ticket};
use super::message::{Action, Reply};
use super::node::Node;
use super::{Controller, Why};

/// What a job's next turn builds on: what its own earlier turns planned.
pub(super) struct Turn {
    job: JobId,
    left: Vec<Ticket>,
    planned_updates: u64,
    commit_ns: u64,
    planned_copies: Vec<f64>,
    /// What it was granted so far, and would be by this plan, over its weight.
    virtual_bytes: f64,
}

impl Controller {
    /// When a plan is due; none if nothing asks for one.
    pub(super) fn plan_due_ns(&self) -> Option<u64> {
        if self.replan.is_some() && self.jobs.values().any(|job| !job.pending.is_empty()) {
            return Some(0);
        }
        self.jobs.values().filter_map(|job| self.job_due_ns(job)).min()
    }

    fn job_due_ns(&self, job: &Job) -> Option<u64> {
        if !self.can_plan(job) {
            return None;
        }
        if let Some(asked) = job.asked.as_ref().filter(|asked| !asked.is_late) {
            return (!job.pending.is_empty()).then_some(asked.late_ns);
        }
        let since_ns = job.unplanned_since_ns?;
        let batch_max = self.config.tuning.batch_max;
        let planned = job.planned_updates();
        if job.pending.len() <= planned {
            // Those that no plan covers were taken back.
            return None;
        }
        if planned >= batch_max.div_ceil(2) && job.pending.len() > batch_max {
            // Enough is planned; the rest waits until half of it is granted.
            return None;
        }
        let is_idle = planned == 0 && self.flights.arriving(self.host_of(job.server)) == 0;
        if is_idle
            || !self.does_planning_pay(job)
            || job.pending.len() - planned >= batch_max
            || job.is_fair()
        {
            return Some(since_ns);
        }
        Some(since_ns.saturating_add(self.config.tuning.gather_window_ns()))
    }

    /// Whether what is on its way to a job's server, and what waits, is on that link for longer
    /// than requests are gathered. If not, no order and no sum can win what gathering costs, so
    /// updates go direct and at once (*derived*).
    fn does_planning_pay(&self, job: &Job) -> bool {
        let host = self.host_of(job.server);
        let down = self.links.topology().down(host);
        let rate = self.links.usable()[down.index()].max(1);
        let size_bytes = job.pending.values().map(|pending| pending.size_bytes).max().unwrap_or(0);
        let waiting = job.pending.len() as u64 + u64::from(self.flights.arriving(host));
        let work = u128::from(size_bytes) * u128::from(waiting) * 1_000_000_000;
        work / u128::from(rate) >= u128::from(self.config.tuning.gather_window_ns())
    }

    /// A job can be planned while it runs, and its server listens and has told its state.
    pub(super) fn can_plan(&self, job: &Job) -> bool {
        job.is_known && job.pause.by().is_none() && self.nodes[job.server.index()].is_attached()
    }

    /// Plans everything that is not granted.
    pub(super) fn plan(&mut self, now_ns: u64) {
        let why = self.replan.take();
        let mut turns = self.turns(now_ns, why.is_some());
        if let Some(why) = why {
            for turn in &turns {
                let counters = &mut self.jobs.get_mut(&turn.job).expect("a turn's job").counters;
                match why {
                    Why::Failure => counters.replans_failure += 1,
                    Why::Word => counters.replans_words += 1,
                    Why::Late => counters.replans_late += 1,
                    Why::Bandwidth => counters.replans_bandwidth += 1,
                    Why::Bands => counters.replans_bands += 1,
                }
            }
        }
        let mut case = self.links.case(now_ns);
        self.flights.reservations(now_ns, &mut case.reservations);
        // Plans that are thrown away are gone by now.
        self.reserve_planned(&mut case.reservations, |job| job.policy.may_wait());
        let tuning = &self.config.tuning;
        let limit = if turns.len() > 1 { tuning.turn_updates } else { tuning.batch_max };
        let aged_ns = now_ns.saturating_sub(tuning.age_limit_ns());
        let batch_max = tuning.batch_max as u64;
        loop {
            // The longest waiting first once it is over the age limit, else the best band, and in
            // it the least served.
            let next = (0..turns.len())
                .filter(|i| !turns[*i].left.is_empty() && turns[*i].planned_updates < batch_max)
                .filter(|i| !self.jobs[&turns[*i].job].is_waiting())
                .min_by(|a, b| {
                    let key = |i: usize| {
                        let job = &self.jobs[&turns[i].job];
                        let asked_ns = job.pending[&turns[i].left[0]].asked_ns;
                        (
                            if asked_ns <= aged_ns { asked_ns } else { u64::MAX },
                            self.bands.rank(turns[i].job),
                            turns[i].virtual_bytes,
                        )
                    };
                    let (a, b) = (key(*a), key(*b));
                    (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2))
                });
            let Some(next) = next else { break };
            let count = turns[next].left.len().min(limit);
            let tickets: Vec<Ticket> = turns[next].left.drain(..count).collect();
            self.plan_turn(&mut turns[next], &tickets, &mut case);
        }
        for turn in turns {
            let job = self.jobs.get_mut(&turn.job).expect("a turn's job");
            let first_left = turn.left.first().and_then(|ticket| job.pending.get(ticket));
            job.unplanned_since_ns = first_left.map(|pending| pending.asked_ns);
        }
    }

    /// Whether a job's plan stands while others are planned: a program is asked anew when its job
    /// is due or everything is planned anew, or a busy neighbour would keep it from ever answering.
    fn keeps_plan(&self, job: &Job, now_ns: u64, is_replan: bool) -> bool {
        let is_due = || self.job_due_ns(job).is_some_and(|due_ns| due_ns <= now_ns);
        job.policy.may_wait() && !is_due() && (!is_replan || job.is_waiting())
    }

    /// The jobs that take part, with what they ask for; their plans are thrown away.
    fn turns(&mut self, now_ns: u64, is_replan: bool) -> Vec<Turn> {
        let plannable: Vec<JobId> = (self.jobs.values())
            .filter(|job| !job.pending.is_empty() && self.can_plan(job))
            .filter(|job| !self.keeps_plan(job, now_ns, is_replan))
            .map(|job| job.id)
            .collect();
        let idle = |job: &Job| job.planned.is_empty() && job.open.is_empty();
        let active = self.jobs.values().filter(|job| !idle(job)).map(|job| job.virtual_bytes);
        let least = active.fold(f64::INFINITY, f64::min);
        let mut turns = Vec::with_capacity(plannable.len());
        for id in plannable {
            let job = self.jobs.get_mut(&id).expect("just listed");
            if idle(job) && least.is_finite() {
                // A job that slept has not saved up.
                job.virtual_bytes = job.virtual_bytes.max(least);
            }
            if let Some(asked) = &mut job.asked {
                asked.is_late = true;
            }
            let mut left: Vec<Ticket> = job.pending.keys().copied().collect();
            left.sort_by_key(|ticket| (job.pending[ticket].asked_ns, *ticket));
            turns.push(self.begin_turn(now_ns, id, left));
        }
        self.drop_stale();
        for turn in &mut turns {
            let job = &self.jobs[&turn.job];
            turn.left.retain(|ticket| job.pending.contains_key(ticket));
        }
        turns
    }

    /// A job's turn, in place of the plan that it has.
    pub(super) fn begin_turn(&mut self, now_ns: u64, id: JobId, left: Vec<Ticket>) -> Turn {
        let commit_ns = self.last_commit_ns(id).max(now_ns);
        let job = self.jobs.get_mut(&id).expect("who has a turn is there");
        job.planned.clear();
        job.close_round();
        Turn {
            job: id,
            left,
            planned_updates: 0,
            commit_ns,
            planned_copies: Vec::new(),
            virtual_bytes: job.virtual_bytes,
        }
    }

    /// When the last granted group of a job is planned to commit, of those that the next one comes
    /// after.
    fn last_commit_ns(&self, job: JobId) -> u64 {
        let job = &self.jobs[&job];
        let open = job.open.range(..job.numbers.lowest()).map(|(_, group)| group);
        let ends = open.filter_map(|group| {
            let sum = self.flights.get(super::message::TransferKey::Sum(*group))?;
            Some(sum.segments.last()?.to_ns)
        });
        ends.max().unwrap_or(0)
    }

    /// One policy call, or the question to a program.
    fn plan_turn(&mut self, turn: &mut Turn, tickets: &[Ticket], case: &mut Case) {
        self.fill_case(turn, tickets, case);
        let job = &self.jobs[&turn.job];
        let plan = match &job.asked {
            None if job.policy.may_wait() => return self.ask(turn.job, tickets, case),
            None => job.policy.plan(case).ok(),
            // Its answer is late.
            Some(_) => None,
        };
        let is_failure = plan.is_none();
        self.take_plan(turn, tickets, case, (plan, is_failure));
    }

    /// Takes a plan, or the default policy's without one, which counts if its own policy failed.
    /// What is planned is added to the reservations of the case.
    pub(super) fn take_plan(
        &mut self,
        turn: &mut Turn,
        tickets: &[Ticket],
        case: &mut Case,
        (plan, is_failure): (Option<Plan>, bool),
    ) {
        self.plans += 1;
        let plan = plan.or_else(|| policy::default().plan(case).ok()).unwrap_or_default();
        let job = &self.jobs[&turn.job];
        let rank_of = |ticket: Ticket| job.pending[&ticket].rank;
        let live = self.live_aggregators(job, case.now_ns);
        let groups = planned_groups(&live, &plan, case, tickets, rank_of);
        let room = job.round_room();
        let job = self.jobs.get_mut(&turn.job).expect("a turn's job");
        job.counters.policy_failures += u64::from(is_failure);
        let mut room = room.map(|room| u64::from(room).saturating_sub(turn.planned_updates));
        for mut group in groups {
            if let Some(room) = &mut room {
                // What a round has no room for waits for its end, which drops it. A sum takes as
                // many as there is room for: if it waited whole, the round might never end.
                group.members.truncate(usize::try_from(*room).unwrap_or(usize::MAX));
                if group.members.is_empty() {
                    continue;
                }
                *room -= group.members.len() as u64;
            }
            for (ticket, _) in &group.members {
                turn.virtual_bytes += job.pending[ticket].size_bytes as f64 / job.config.weight;
            }
            reserve_group(&self.nodes, job, &group, &mut case.reservations);
            turn.planned_updates += group.members.len() as u64;
            turn.planned_copies
                .push(group.members.iter().map(|(ticket, _)| job.pending[ticket].norm).sum());
            turn.commit_ns = turn.commit_ns.max(group.sum.last().map_or(0, |last| last.to_ns));
            job.planned.push_back(group);
        }
        for (update, reason) in plan.dropped {
            if let Some(ticket) = tickets.get(update.index()) {
                self.drop_update(turn.job, *ticket, reason);
            }
        }
    }

    /// Adds what is planned and not granted, of such jobs.
    pub(super) fn reserve_planned(
        &self,
        reservations: &mut Vec<Reservation>,
        counts: impl Fn(&Job) -> bool,
    ) {
        for job in self.jobs.values().filter(|job| counts(job)) {
            for group in &job.planned {
                reserve_group(&self.nodes, job, group, reservations);
            }
        }
    }

    /// Writes a question of a job's turn into a case.
    pub(super) fn fill_case(&self, turn: &Turn, tickets: &[Ticket], case: &mut Case) {
        let job = &self.jobs[&turn.job];
        let has_rounds = job.config.mode != Mode::Async;
        let version = job.version + job.in_flight(&self.groups) + turn.planned_updates;
        let live_replica = job.replica.filter(|node| self.nodes[node.index()].is_attached());
        let mut lag_norms: Vec<f64> = Vec::new();
        if live_replica.is_some() {
            lag_norms.extend(job.replica_progress.lag_norms());
            let open = job.open.values().filter_map(|group| self.groups.get(group));
            lag_norms.extend(open.map(Group::planned_norm));
            lag_norms.extend(&turn.planned_copies);
        }
        case.servers = vec![Server {
            name: job.config.name.clone(),
            host: self.host_of(job.server),
            version,
            tau_max: if has_rounds { NO_DEADLINE } else { job.config.delay_max() },
            momentum: job.config.momentum,
            div_max: live_replica.and(job.config.div_max),
            replica: live_replica.map(|node| self.host_of(node)),
            job: Some(job.config.name.clone()),
            h_norm: job.replica_progress.h_norm(),
            lag_norms,
            commit_from_ns: turn.commit_ns,
        }];
        case.aggregators =
            self.live_aggregators(job, case.now_ns).into_iter().map(|(host, _)| host).collect();
        case.updates = tickets
            .iter()
            .map(|ticket| {
                let pending = &job.pending[ticket];
                let worker = &job.workers[pending.rank.index()];
                Update {
                    // Tickets grow, so names sort as requests came.
                    name: format!("{ticket:016}"),
                    server: ServerId(0),
                    host: worker.host(),
                    size_bytes: pending.size_bytes,
                    version: pending.version.min(version),
                    norm: pending.norm,
                    dropped_before: worker.is_dropped_before(),
                }
            })
            .collect();
        case.ranks = by_ticket(tickets);
        let drops = job.recent.iter().filter(|is_drop| **is_drop).count();
        let pays = self.does_planning_pay(job);
        // A loop's rules keep a link busy; where none is, the batch alone counts.
        let options = match self.is_closed_loop(job) && pays {
            true => job.config.options.clone().closed_loop(),
            false => job.config.options.clone(),
        };
        case.options = Options {
            recent_drops: u32::try_from(drops).unwrap_or(u32::MAX),
            no_drop: options.no_drop || has_rounds,
            no_aggregate: options.no_aggregate || !pays,
            objective: if has_rounds { Objective::Last } else { options.objective },
            ..options
        };
    }

    /// Hosts of the aggregators that listen, one for each host, with their positions in the job.
    fn live_aggregators(&self, job: &Job, now_ns: u64) -> Vec<(HostId, usize)> {
        let mut live: Vec<(HostId, usize)> = Vec::with_capacity(job.aggregators.len());
        for (position, node) in job.aggregators.iter().enumerate() {
            let host = self.host_of(*node);
            let listens = self.nodes[node.index()].takes_groups(now_ns);
            if listens && live.iter().all(|(other, _)| *other != host) {
                live.push((host, position));
            }
        }
        live
    }

    /// Tells a worker that its update is dropped.
    pub(super) fn drop_update(&mut self, job: JobId, ticket: Ticket, reason: DropReason) {
        let Some(job) = self.jobs.get_mut(&job) else { return };
        let Some(pending) = job.take_back(ticket) else { return };
        job.counters.dropped += 1;
        job.note_decision(true);
        job.end_update(pending.rank);
        if let Some(worker) = job.worker_mut(pending.rank) {
            worker.note_decision(true);
        }
        self.is_saved = false;
        let reply = Reply::Drop { update_id: pending.update_id, reason };
        self.actions.push_back(Action::Reply { job: job.id, rank: pending.rank, reply });
    }

    /// Drops what belongs to a round that is over.
    pub(super) fn drop_stale(&mut self) {
        let mut stale = Vec::new();
        for job in self.jobs.values().filter(|job| job.config.mode == Mode::Partial) {
            let Some(size) = job.round_size() else { continue };
            let is_stale = |version| job.round.is_stale(version, size);
            let of_old_round = job.pending.iter().filter(|(_, pending)| is_stale(pending.version));
            stale.extend(of_old_round.map(|(ticket, _)| (job.id, *ticket)));
        }
        for (job, ticket) in stale {
            self.drop_update(job, ticket, DropReason::RoundClosed);
        }
    }
}

impl Job {
    /// Whether its transfers share the links by themselves, see [`ConductMode::Fair`].
    pub(super) fn is_fair(&self) -> bool {
        self.policy.manner().conduct == ConductMode::Fair
    }
}

/// Adds what a planned group promises of the network.
fn reserve_group(nodes: &[Node], job: &Job, group: &Planned, reservations: &mut Vec<Reservation>) {
    let via = group.via.map(|i| nodes[job.aggregators[i].index()].host());
    let server = nodes[job.server.index()].host();
    let worker = |ticket| job.workers[job.pending[ticket].rank.index()].host();
    for (ticket, segments) in &group.members {
        reserve(reservations, worker(ticket), via.unwrap_or(server), segments);
    }
    let source = via.or_else(|| group.members.last().map(|(ticket, _)| worker(ticket)));
    if let Some(source) = source {
        if via.is_some() {
            reserve(reservations, source, server, &group.sum);
        }
        if let Some(replica) = job.replica {
            reserve(reservations, source, nodes[replica.index()].host(), &group.copy);
        }
    }
}

/// A delay bound that never binds.
const NO_DEADLINE: u64 = 1 << 61;
