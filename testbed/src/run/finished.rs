//! What a finished run amounts to: verdict, counters, bottleneck, and the rows of its directory.

use super::background::FlowSeen;
use super::bottleneck::Bottleneck;
use super::message::{BoxCounters, WorkerSummary};
use super::plan::{Io, Place, Plan, WorkerIo};
use super::proof::Proof;
use super::push::PushProof;
use super::reduce::verify::ReduceProof;
use super::{Observed, push, reduce};
use crate::report::{
    EventRow, FilesError, PushOutcome, RunOutcome, RunWriter, Surroundings, Verdict,
};
use crate::scenario::{CONTROLLER, FaultSection, Scenario};

/// Where the frames really travel, and why not where they were asked to.
#[derive(Clone, Debug)]
pub struct Ground {
    /// The port.
    pub io: Io,
    /// Where boxes and workers are.
    pub place: Place,
    /// Why it is less than what was asked for.
    pub degraded: Option<String>,
}

/// A run that is over, and how to tell of it.
#[derive(Debug)]
pub struct Finished<'a> {
    /// What was asked for.
    pub scenario: &'a Scenario,
    /// How it was laid out.
    pub plan: &'a Plan,
    /// Where it ran.
    pub ground: &'a Ground,
    /// What was seen.
    pub observed: &'a Observed,
    /// What the proof found, or why there is none.
    pub proof: Result<Proof, String>,
    /// When it began, by the monotonic clock.
    pub begun_ns: u64,
    /// How long it took.
    pub wall_ns: u64,
}

/// What the two kinds of runs find by other rules.
pub(super) struct Judgement {
    /// What contradicts the run's promises.
    pub(super) wrong: Vec<String>,
    pub(super) rounds: u64,
    /// The time that the rounds took.
    pub(super) span_ns: u64,
    /// `None`: there is nothing to say it of.
    pub(super) accuracy: Option<f64>,
    pub(super) is_identical: Option<bool>,
    pub(super) model_sha256: Option<String>,
    pub(super) wrong_sums: Option<u64>,
    /// `None`: the run did not come to its end, and what held it is no bottleneck.
    pub(super) bottleneck: Option<Bottleneck>,
    pub(super) push: Option<PushOutcome>,
}

impl Finished<'_> {
    /// The workers' port: with rings of one process there is one for all.
    fn worker_io(&self) -> &'static str {
        match self.plan.workers.first() {
            Some(worker) if self.ground.io != Io::Memory => worker.io.name(),
            _ => self.ground.io.name(),
        }
    }

    /// Judges the run.
    #[must_use]
    pub fn outcome(&self, requested: Io, seed: u64) -> RunOutcome {
        let observed = self.observed;
        let total = self.total();
        let judged = match &self.scenario.push {
            None => reduce::judge::judge(self, self.reduce_proof(), &total),
            Some(_) => push::judge::judge(self, self.push_proof(), &total),
        };
        let mut wrong: Vec<String> = observed.ended.iter().cloned().collect();
        wrong.extend(observed.missing.iter().cloned());
        let failures = observed.failures.iter();
        wrong.extend(failures.map(|(_, rank, error)| format!("worker {rank}: {error}")));
        wrong.extend(judged.wrong);
        wrong.extend(self.proof.as_ref().err().cloned());
        let verdict = if wrong.is_empty() { Verdict::Ok } else { Verdict::Failed };
        let hidden = wrong.len().saturating_sub(PROBLEMS_SHOWN_MAX);
        wrong.truncate(PROBLEMS_SHOWN_MAX);
        if hidden > 0 {
            wrong.push(format!("and {hidden} more"));
        }
        let mut reasons = self.degraded();
        reasons.extend(wrong);
        let told = |count| self.told(count);
        let (bottleneck, bottleneck_evidence) =
            judged.bottleneck.map(|found| (found.name.to_owned(), found.evidence)).unzip();
        let duplicates = |name: &str| Some(self.counted(name)?.duplicates);
        RunOutcome {
            verdict,
            reasons,
            io_requested: requested.name().to_owned(),
            io: self.ground.io.name().to_owned(),
            worker_io: self.worker_io().to_owned(),
            rounds: judged.rounds,
            rounds_per_second: (judged.span_ns > 0)
                .then(|| judged.rounds as f64 * 1e9 / judged.span_ns as f64),
            accuracy: judged.accuracy,
            model_identical: judged.is_identical,
            model_sha256: judged.model_sha256,
            wrong_sums: judged.wrong_sums,
            chunks_aggregated: told(total.chunks_aggregated),
            chunks_by_multicast: told(total.chunks_by_multicast),
            chunks_direct: told(total.chunks_direct),
            retransmissions: told(total.retransmissions),
            duplicates_dropped: self.plan.boxes.iter().map(|it| duplicates(&it.name)).sum(),
            bottleneck,
            bottleneck_evidence,
            seed,
            surroundings: Surroundings {
                background: observed.background.iter().map(FlowSeen::row).collect(),
                ..Surroundings::default()
            },
            push: judged.push,
        }
    }

    /// What the run did without although it was asked for, and no fault was (DESIGN I11).
    #[must_use]
    pub fn degraded(&self) -> Vec<String> {
        let mut reasons: Vec<String> = self.ground.degraded.iter().cloned().collect();
        let fallbacks = self.total().controller_fallbacks;
        let is_quiet = self.scenario.faults == FaultSection::default();
        if fallbacks > 0 && is_quiet && self.observed.restarts.is_empty() {
            reasons.push(format!("{fallbacks} updates went without a word from the controller"));
        }
        if let Some(failures @ 1..) = self.policy_failures() {
            let push = self.scenario.push.as_ref().expect("a scenario with [push]");
            reasons.push(format!(
                "the default policy made {failures} plans, for `{}` gave none that can be used",
                push.policy
            ));
        }
        let worker_io = self.plan.workers.first().map(|worker| worker.io);
        reasons.extend(missed_multicast(worker_io, &self.total()));
        reasons
    }

    /// Plans that the default policy made; `None` where the controller left no statistics.
    pub(super) fn policy_failures(&self) -> Option<u64> {
        if !self.scenario.push.as_ref().is_some_and(|push| push.controller) {
            return Some(0);
        }
        Some(self.counted(CONTROLLER)?.policy_failures)
    }

    /// The counters of a box that came to its end.
    pub(super) fn counted(&self, name: &str) -> Option<&BoxCounters> {
        let found = self.observed.boxes.iter().find(|(box_name, _)| box_name == name);
        found.map(|(_, counters)| counters)
    }

    /// A sum over the workers; `None` if none came to its end and reported its share.
    pub(super) fn told<T>(&self, sum: T) -> Option<T> {
        (!self.observed.summaries.is_empty()).then_some(sum)
    }

    /// Whether nothing ended the run, or a worker, before its time.
    pub(super) fn is_whole(&self) -> bool {
        self.observed.ended.is_none() && self.observed.failures.is_empty()
    }

    fn reduce_proof(&self) -> Option<&ReduceProof> {
        match &self.proof {
            Ok(Proof::Reduce(proof)) => Some(proof),
            _ => None,
        }
    }

    fn push_proof(&self) -> Option<&PushProof> {
        match &self.proof {
            Ok(Proof::Push(proof)) => Some(proof),
            _ => None,
        }
    }

    fn total(&self) -> WorkerSummary {
        let mut total = WorkerSummary::default();
        self.observed.summaries.iter().for_each(|(_, summary)| total.add(summary));
        total
    }

    /// Processor time of all processes of the run.
    pub(super) fn cpu_ns(&self) -> u64 {
        let of_boxes: u64 = self.observed.boxes.iter().map(|(_, counters)| counters.cpu_ns).sum();
        let of_workers = self.observed.summaries.iter().map(|(_, summary)| summary.cpu_ns);
        of_boxes
            + self.observed.others_cpu_ns
            + if self.ground.io == Io::Memory {
                // Threads of one process: each saw the whole.
                of_workers.max().unwrap_or(0)
            } else {
                of_workers.sum()
            }
    }

    /// Nanoseconds since the run began.
    pub(super) const fn since_begin(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.begun_ns)
    }

    /// A row of the list of events.
    pub(super) fn event(
        &self,
        at_ns: u64,
        event: &str,
        fields: &[(&str, serde_json::Value)],
    ) -> EventRow {
        EventRow {
            t_ns: self.since_begin(at_ns),
            event: event.to_owned(),
            fields: fields.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect(),
        }
    }

    /// Fills the run directory.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, mut writer: RunWriter, outcome: RunOutcome) -> Result<(), FilesError> {
        for row in self.events() {
            writer.event(&row)?;
        }
        match &self.scenario.push {
            None => reduce::judge::write(self, self.reduce_proof(), &mut writer)?,
            Some(_) => push::tables::write(self, self.push_proof(), &mut writer)?,
        }
        writer.finish(outcome)
    }

    fn events(&self) -> Vec<EventRow> {
        let observed = self.observed;
        let of_box = |name: &str| [("box", name.into())];
        let restart = match &self.scenario.push {
            None => "aggregator_restart",
            Some(_) => "restart",
        };
        let mut rows = Vec::new();
        for (at_ns, name) in &observed.restarts {
            rows.push(self.event(*at_ns, restart, &of_box(name)));
        }
        for (at_ns, step) in &observed.rate_steps {
            let fields = [
                ("box", step.name.as_str().into()),
                ("up_mbit", step.up.into()),
                ("down_mbit", step.down.into()),
            ];
            rows.push(self.event(*at_ns, "rate_step", &fields));
        }
        for (at_ns, name) in &observed.crashes {
            rows.push(self.event(*at_ns, "crash", &of_box(name)));
        }
        rows.extend(observed.background.iter().flat_map(|flow| flow.events(self.begun_ns)));
        for (at_ns, rank) in &observed.joined {
            rows.push(self.event(*at_ns, "worker_joined", &[("rank", (*rank).into())]));
        }
        for (at_ns, rank, error) in &observed.failures {
            let fields = [("rank", (*rank).into()), ("error", error.as_str().into())];
            rows.push(self.event(*at_ns, "worker_failed", &fields));
        }
        rows
    }
}

/// A broken run breaks everything that comes after; the first lines tell why.
const PROBLEMS_SHOWN_MAX: usize = 8;

/// What is to be said where sums were to come by multicast and none did.
fn missed_multicast(worker_io: Option<WorkerIo>, total: &WorkerSummary) -> Option<String> {
    worker_io?.multicast()?;
    let is_missed = total.chunks_aggregated > 0 && total.chunks_by_multicast == 0;
    is_missed.then(|| format!("none of {} sums came by multicast", total.chunks_aggregated))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_that_were_to_come_by_multicast_and_did_not_are_named() {
        let total = |by_multicast| WorkerSummary {
            chunks_aggregated: 40,
            chunks_by_multicast: by_multicast,
            ..WorkerSummary::default()
        };
        let missed = |io, by_multicast| missed_multicast(Some(io), &total(by_multicast));
        let told = missed(WorkerIo::UdpMulticast, 0).expect("it is said");
        assert_eq!(told, "none of 40 sums came by multicast");
        assert_eq!(missed(WorkerIo::UdpMulticast, 1), None);
        assert_eq!(missed(WorkerIo::Udp, 0), None, "nobody asked for it");
        let nothing = WorkerSummary::default();
        assert_eq!(missed_multicast(Some(WorkerIo::UdpMulticast), &nothing), None, "no sums");
    }
}
