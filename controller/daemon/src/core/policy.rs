//! The policy of jobs at work: what the controller saw of its jobs goes to it, what it says is said
//! to the engine.
//!
//! Attained service is what ran: of an allreduce its rounds, as the engine counted them; of a push
//! job the time in which its model went on, times its workers. Speed is learnt from the rounds that
//! were seen at each width. A job is shown once something of it was seen, as Tiresias profiles a
//! new job first. Invariant: a word that the engine refuses changes nothing, and is said again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weft_config::Problem;
use weft_config::controller::JobPolicySection;
use weft_control::JobState;
use weft_controller_engine::{ReduceStatus, Status, Steerer};
use weft_jobs::cluster::Cluster;
use weft_jobs::job::{Job, NS_PER_S};
use weft_jobs::live::{Live, View, Word};
use weft_jobs::policy::{BUILT_IN, Knobs, Setting, Widths};

use super::Core;

/// A policy of jobs, and what it is told.
#[derive(Debug)]
pub struct JobPolicy {
    live: Live,
    speeds: Arc<Speeds>,
    period_ns: u64,
    due_ns: u64,
    /// Of each push job: version and time at the last look, and what it was served.
    pushed: BTreeMap<String, Pushed>,
    /// It failed once, which was told; it is asked no more.
    has_failed: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pushed {
    version: u64,
    at_ns: u64,
    executed_ns: u64,
}

impl JobPolicy {
    /// The policy that a configuration names.
    ///
    /// # Errors
    /// The key that makes no sense.
    pub fn new(section: &JobPolicySection) -> Result<Self, Problem> {
        let wrong = |key: &str, problem: String| Problem::new(format!("job_policy.{key}"), problem);
        if section.slots == 0 {
            return Err(wrong("slots", "is 0; expected at least 1".to_owned()));
        }
        if section.period_ms == 0 {
            return Err(wrong("period_ms", "is 0; expected at least 1".to_owned()));
        }
        let is_limit = |limit: &f64| limit.is_finite() && *limit > 0.0;
        let grows = section.queue_limits_s.is_sorted_by(|one, next| one < next);
        if !(section.queue_limits_s.iter().all(is_limit) && grows) {
            return Err(wrong("queue_limits_s", "must be above 0 and grow".to_owned()));
        }
        if section.promote_knob.is_some_and(|knob| !is_limit(&knob)) {
            return Err(wrong("promote_knob", "must be above 0".to_owned()));
        }
        let policy =
            BUILT_IN.find(&section.policy).map_err(|error| wrong("policy", error.to_string()))?;
        let speeds = Arc::new(Speeds::default());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "they clamp")]
        let ns = |limit_s: &f64| (limit_s * NS_PER_S as f64) as u64;
        let knobs = Knobs {
            queue_limits_ns: section.queue_limits_s.iter().map(ns).collect(),
            promote_knob: section.promote_knob,
            restart_ns: section.restart_ms.saturating_mul(1_000_000),
            ..Knobs::default()
        };
        let widths: Arc<dyn Widths> = Arc::clone(&speeds) as Arc<dyn Widths>;
        let setting = Setting {
            knobs: knobs.bounded(),
            widths,
            ..Setting::new(Cluster::of_nodes(1, section.slots))
        };
        let scheduler =
            policy.plan(&setting).map_err(|error| wrong("policy", error.to_string()))?;
        Ok(Self {
            live: Live::new(scheduler),
            speeds,
            period_ns: section.period_ms.saturating_mul(1_000_000),
            due_ns: 0,
            pushed: BTreeMap::new(),
            has_failed: false,
        })
    }

    /// How long until it is asked again.
    pub(super) fn due_in(&self, now_ns: u64) -> Option<Duration> {
        (!self.has_failed).then(|| Duration::from_nanos(self.due_ns.saturating_sub(now_ns)))
    }

    fn look(&mut self, now_ns: u64, status: &Status) -> Vec<Word> {
        self.due_ns = now_ns.saturating_add(self.period_ns);
        self.speeds.learn(&status.reduces);
        self.pushed.retain(|name, _| status.jobs.iter().any(|job| job.name == *name));
        let mut views: Vec<View<'_>> = status.reduces.iter().filter_map(reduced).collect();
        for job in &status.jobs {
            let pushed = self.pushed.entry(job.name.clone()).or_default();
            let span_ns = now_ns.saturating_sub(pushed.at_ns);
            if job.version > pushed.version && pushed.at_ns > 0 {
                pushed.executed_ns = pushed.executed_ns.saturating_add(span_ns);
            }
            (pushed.version, pushed.at_ns) = (job.version, now_ns);
            let is_running = job.state == JobState::Running;
            if pushed.executed_ns == 0 {
                continue;
            }
            let workers = u32::try_from(job.workers.len()).unwrap_or(u32::MAX);
            views.push(View {
                name: &job.name,
                workers,
                asked: workers,
                is_running,
                is_steerable: is_running || job.state == JobState::Paused,
                executed_ns: pushed.executed_ns,
                service_ns: pushed.executed_ns.saturating_mul(workers.into()),
                remaining_ns: 0,
            });
        }
        match self.live.look(now_ns, &views) {
            Ok(words) => words,
            Err(error) => {
                self.has_failed = true;
                weft_process::say!(
                    "weft-controller: the policy of jobs failed and is asked no more: {error}"
                );
                Vec::new()
            }
        }
    }
}

/// An allreduce job of which something was seen, and which has not ended.
fn reduced(job: &ReduceStatus) -> Option<View<'_>> {
    let left = job.rounds_max.map(|rounds| rounds.saturating_sub(job.next_round));
    if job.rounds < PROFILE_ROUNDS || left == Some(0) {
        return None;
    }
    // What is left at the width that it has, at the one that it asked for.
    let left_ns = left.unwrap_or(0).saturating_mul(job.round_ns);
    let scaled = u128::from(left_ns) * u128::from(job.workers) / u128::from(job.workers_first);
    let is_running = job.state == JobState::Running;
    Some(View {
        name: &job.name,
        workers: job.workers.into(),
        asked: job.workers_first.into(),
        is_running,
        is_steerable: is_running || job.state == JobState::Paused,
        executed_ns: job.executed_ns,
        service_ns: job.service_ns,
        remaining_ns: u64::try_from(scaled).unwrap_or(u64::MAX),
    })
}

/// How long rounds take at each width of each job, as was seen.
#[derive(Debug, Default)]
struct Speeds(Mutex<BTreeMap<String, Speed>>);

#[derive(Debug, Default)]
struct Speed {
    places: u32,
    round_ns: BTreeMap<u32, u64>,
}

impl Speeds {
    fn learn(&self, jobs: &[ReduceStatus]) {
        let mut speeds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The first round of a cohort has the workers' start in it.
        let is_known = |job: &&ReduceStatus| {
            let rounds = job.next_round.saturating_sub(job.from_round);
            job.round_ns > 0 && rounds >= PROFILE_ROUNDS
        };
        for job in jobs.iter().filter(is_known) {
            let speed = speeds.entry(job.name.clone()).or_default();
            speed.places = u32::try_from(job.places).unwrap_or(u32::MAX);
            speed.round_ns.insert(job.workers.into(), job.round_ns);
        }
    }
}

impl Widths for Speeds {
    /// Every worker brings its own batch, so a round of twice the workers does twice the work. One
    /// of a width that was not seen takes as long as at the nearest that was.
    fn speedup(&self, job: &Job, gpus: u32) -> f64 {
        let speeds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(speed) = speeds.get(&*job.name).filter(|speed| gpus <= speed.places) else {
            return if gpus == job.gpus { 1.0 } else { 0.0 };
        };
        let round_ns = |width: u32| {
            let nearest = speed.round_ns.iter().min_by_key(|(seen, _)| seen.abs_diff(width));
            nearest.map_or(1.0, |(_, round_ns)| *round_ns as f64)
        };
        f64::from(gpus) / f64::from(job.gpus.max(1)) * round_ns(job.gpus) / round_ns(gpus)
    }

    fn gpus_max(&self, job: &Job) -> u32 {
        let speeds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        speeds.get(&*job.name).map_or(job.gpus, |speed| speed.places)
    }
}

impl Core {
    /// Has the policy of jobs look, when it is due.
    pub(super) fn steer_jobs(&mut self) {
        let now_ns = self.now_ns();
        let Some(policy) = &mut self.job_policy else { return };
        if policy.has_failed || policy.due_ns > now_ns {
            return;
        }
        let words = policy.look(now_ns, &self.controller.status(now_ns));
        for word in words {
            // What is refused now is said again.
            let _ = match word {
                Word::Pause(name) => self.controller.pause_job(now_ns, &name, Steerer::Policy),
                Word::Resume(name) => self.controller.resume_job(now_ns, &name, Steerer::Policy),
                Word::Resize(name, workers) => self.controller.resize_job(now_ns, &name, workers),
            };
        }
    }
}

/// Rounds after which a job's speed is known.
const PROFILE_ROUNDS: u64 = 4;

#[cfg(test)]
mod tests {
    use std::sync::Arc as Shared;

    use super::*;

    fn section(policy: &str) -> JobPolicySection {
        JobPolicySection {
            policy: policy.to_owned(),
            slots: 4,
            period_ms: 100,
            queue_limits_s: vec![1.0, 4.0],
            promote_knob: None,
            restart_ms: 100,
        }
    }

    fn job(name: &str, workers: u16, round_ns: u64) -> ReduceStatus {
        ReduceStatus {
            name: name.to_owned(),
            job: 0,
            state: JobState::Running,
            cohort: 0,
            workers,
            attached: workers.into(),
            from_round: 0,
            next_round: 100,
            boundary: None,
            is_leased: true,
            wants_workers: false,
            rounds: 100,
            bytes: 0,
            executed_ns: 100 * round_ns,
            service_ns: 100 * round_ns * u64::from(workers),
            rounds_max: Some(10_000),
            workers_first: 2,
            places: 4,
            placed: (0..workers).collect(),
            round_ns,
            round_messages: 0,
            round_bytes: 0,
            largest_bytes: 0,
            skew: None,
            resizes: Vec::new(),
            pauses: weft_controller_engine::PauseStatus::default(),
            refusing: String::new(),
            unbegun: String::new(),
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_key() {
        let refused = |change: &dyn Fn(&mut JobPolicySection)| {
            let mut section = section("dlas-gpu");
            change(&mut section);
            JobPolicy::new(&section).expect_err("it is wrong").to_string()
        };
        assert!(refused(&|s| s.policy = "none".into()).contains("job_policy.policy"));
        assert!(refused(&|s| s.slots = 0).contains("slots"));
        assert!(refused(&|s| s.period_ms = 0).contains("period_ms"));
        assert!(refused(&|s| s.queue_limits_s = vec![2.0, 1.0]).contains("queue_limits_s"));
        assert!(refused(&|s| s.queue_limits_s = vec![f64::NAN]).contains("queue_limits_s"));
        assert!(refused(&|s| s.promote_knob = Some(-1.0)).contains("promote_knob"));
        assert!(JobPolicy::new(&section("doubling")).is_ok());
    }

    #[test]
    fn speed_is_learnt_from_rounds() {
        let speeds = Speeds::default();
        let asked = |name: &str| Job {
            name: Shared::from(name),
            gpus: 2,
            submit_ns: 0,
            duration_ns: 0,
            model: Shared::from(""),
            iterations: 0,
            global_batch: 0,
        };
        assert!(speeds.speedup(&asked("a"), 4).abs() < 1e-9, "nothing was seen");
        speeds.learn(&[job("a", 2, 10_000_000)]);
        assert!((speeds.speedup(&asked("a"), 4) - 2.0).abs() < 1e-9);
        assert!((speeds.speedup(&asked("a"), 2) - 1.0).abs() < 1e-9);
        assert!(speeds.speedup(&asked("a"), 8).abs() < 1e-9, "there are no such places");
        speeds.learn(&[job("a", 4, 16_000_000)]);
        assert!((speeds.speedup(&asked("a"), 4) - 1.25).abs() < 1e-9);
        assert_eq!(speeds.gpus_max(&asked("a")), 4);
        // One round of a new cohort says nothing yet.
        let early = ReduceStatus { from_round: 98, ..job("a", 4, 900_000_000) };
        speeds.learn(&[early]);
        assert!((speeds.speedup(&asked("a"), 4) - 1.25).abs() < 1e-9);
    }

    fn pushed() -> weft_controller_engine::JobStatus {
        weft_controller_engine::JobStatus {
            name: String::new(),
            job: 1,
            policy: String::new(),
            counters: weft_controller_engine::JobCounters::default(),
            version: 3,
            next_order: 4,
            pending: 0,
            in_flight: 0,
            replica: None,
            epoch: 0,
            is_replica_lost: false,
            is_server_attached: true,
            refusing: String::new(),
            bands: weft_controller_engine::BandStatus::default(),
            state: JobState::Running,
            pauses: weft_controller_engine::PauseStatus::default(),
            workers: Vec::new(),
            groups: Vec::new(),
        }
    }

    #[test]
    fn push_jobs_that_have_gone_are_forgotten() {
        let mut policy = JobPolicy::new(&section("dlas-gpu")).expect("it is built in");
        for name in 0..100 {
            let job = weft_controller_engine::JobStatus { name: format!("{name}"), ..pushed() };
            let status = Status { jobs: vec![job], ..Status::default() };
            policy.look(1_000_000_000, &status);
            assert_eq!(policy.pushed.len(), 1);
        }
    }

    #[test]
    fn the_doubling_heuristic_widens_one_job_and_halves_it_for_another() {
        let mut policy = JobPolicy::new(&section("doubling")).expect("it is built in");
        let mut status = Status { reduces: vec![job("a", 2, 10_000_000)], ..Status::default() };
        let words = policy.look(1_000_000_000, &status);
        assert_eq!(words, [Word::Resize("a".into(), 4)]);
        status.reduces[0].workers = 4;
        assert_eq!(policy.look(2_000_000_000, &status), []);
        status.reduces.push(job("b", 2, 10_000_000));
        let words = policy.look(3_000_000_000, &status);
        assert!(words.contains(&Word::Resize("a".into(), 2)), "{words:?}");
    }

    #[test]
    fn attained_service_pauses_whoever_had_most() {
        let mut policy = JobPolicy::new(&section("dlas-gpu")).expect("it is built in");
        let jobs = ["a", "b", "c"].map(|name| job(name, 2, 10_000_000));
        let mut status = Status { reduces: jobs.to_vec(), ..Status::default() };
        // Two fit; the one that was served beyond the first limit makes room for the third.
        status.reduces[0].executed_ns = 3_000_000_000;
        status.reduces[0].service_ns = 6_000_000_000;
        status.reduces[2].executed_ns = 40_000_000;
        status.reduces[2].service_ns = 80_000_000;
        let mut paused = Vec::new();
        for step in 1..5u64 {
            for word in policy.look(step * 100_000_000, &status) {
                if let Word::Pause(name) = word {
                    paused.push(name);
                }
            }
        }
        assert_eq!(paused.first().map(String::as_str), Some("a"), "{paused:?}");
    }
}
