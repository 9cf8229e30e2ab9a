//! Decides what the simulators of jobs say of a scenario, to hold a run against it: of jobs that
//! are alike, whose models leave one host straight to their workers, and of jobs that wait for
//! slots. Pure.
//!
//! Of a scenario that they do not know there is no prediction: jobs of several sizes, starts or
//! hosts of servers without slots to wait for, aggregators, plans, rounds that nobody waits for.
//! Jobs that wait for slots are simulated as if no link were shared.
//! Source: `weft_jobs::lights`, which says what it leaves out.

use std::collections::HashMap;

use weft_control::{ConductMode, Mode};
use weft_jobs::bands::{BandPolicy, ROTATE_NS};
use weft_jobs::cluster::Cluster;
use weft_jobs::job::Job;
use weft_jobs::lights::{Outcome, Setting, Shares};
use weft_jobs::policy::{BUILT_IN, Setting as PolicySetting};
use weft_jobs::sim::setup::Setup;
use weft_jobs::sim::{self, Observer, Row};

use super::gate::gated;
use super::plan::{JobPlan, SeveralPlan};
use crate::report::JobRow;
use crate::scenario::ClusterSection;

/// What is predicted of the jobs together.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Completion times in the order of the plan.
    jct_ns: Vec<u64>,
    /// How long gradients wait for the last of their round, on average.
    wait_mean_ns: Option<f64>,
}

impl Prediction {
    /// Writes what is predicted of each job beside what was measured.
    pub fn note(&self, rows: &mut [JobRow]) {
        for (row, jct_ns) in rows.iter_mut().zip(&self.jct_ns) {
            row.predicted_jct_s = Some(*jct_ns as f64 / 1e9);
            row.predicted_barrier_wait_mean_ms = self.wait_mean_ns.map(|ns| ns / 1e6);
        }
    }
}

/// Simulates a plan, if the simulators know its like: jobs that wait for slots as a trace on a
/// cluster, each as long as it takes alone; others as parameter servers on one host.
/// `interval_ns`: between two rotations.
#[must_use]
pub fn predict(
    plan: &SeveralPlan,
    policy: BandPolicy,
    interval_ns: Option<u64>,
    seed: u64,
) -> Option<Prediction> {
    if let Some(cluster) = &plan.cluster {
        return on_cluster(plan, cluster, seed);
    }
    let [first, others @ ..] = plan.jobs.as_slice() else { return None };
    if others.iter().any(|job| !is_alike(first, job)) {
        return None;
    }
    let rotate_ns = interval_ns.unwrap_or(ROTATE_NS);
    let (setting, step_ns) = setting(first, plan.jobs.len(), rotate_ns, seed)?;
    let Outcome { jct_ns, wait_mean_ns, .. } = setting.run(policy, step_ns);
    Some(Prediction { jct_ns, wait_mean_ns: Some(wait_mean_ns) })
}

impl JobPlan {
    /// What a policy of jobs is told of it.
    pub(super) fn gated(&self) -> Job {
        let submit_ns = u64::try_from(self.start.as_nanos()).unwrap_or(u64::MAX);
        let duration_ns = alone_ns(self, self.seed).unwrap_or(1);
        gated(&self.name, self.scenario.job.workers, submit_ns, duration_ns)
    }
}

/// How long a job takes alone.
fn alone_ns(job: &JobPlan, seed: u64) -> Option<u64> {
    let (setting, step_ns) = setting(job, 1, ROTATE_NS, seed)?;
    setting.run(BandPolicy::Fifo, step_ns).jct_ns.first().copied()
}

fn on_cluster(plan: &SeveralPlan, cluster: &ClusterSection, seed: u64) -> Option<Prediction> {
    /// Completion times by name.
    #[derive(Default)]
    struct Ended(HashMap<String, u64>);
    impl Observer for Ended {
        fn ended(&mut self, row: Row<'_>) {
            self.0.insert(row.job.name.to_string(), row.jct_ns());
        }
    }
    if plan.jobs.iter().any(|job| alone_ns(job, seed).is_none()) {
        return None;
    }
    let mut jobs: Vec<Job> = plan.jobs.iter().map(JobPlan::gated).collect();
    jobs.sort_by_key(|job| job.submit_ns);
    let policy = BUILT_IN.find(&cluster.policy).ok()?;
    let setting = PolicySetting::new(Cluster::of_nodes(1, cluster.slots));
    let mut ended = Ended::default();
    sim::run(Setup::new(policy, setting).parts().ok()?, jobs, &mut ended).ok()?;
    let jct_ns = plan.jobs.iter().map(|job| ended.0.get(&job.name).copied());
    Some(Prediction { jct_ns: jct_ns.collect::<Option<_>>()?, wait_mean_ns: None })
}

/// The simulator's terms for so many jobs like one, and the work of a step.
fn setting(first: &JobPlan, jobs: usize, rotate_ns: u64, seed: u64) -> Option<(Setting, u64)> {
    first.plan.topology.as_ref()?;
    let jobs = u32::try_from(jobs).ok()?;
    let push = first.scenario.push.as_ref()?;
    let is_shared = push.conduct() == ConductMode::Fair;
    let is_known = push.mode == Mode::Sync && push.aggregators == 0 && is_shared;
    if !is_known {
        return None;
    }
    let workers = u32::from(first.scenario.job.workers);
    let link = first.scenario.lab.rates("server")[0]?;
    // Beside each chunk goes the frame that asks for one of the other direction.
    let chunk_bytes = u64::from(first.plan.elements) * 4 + 2 * FRAME_OVERHEAD_BYTES;
    let dimension = first.plan.boxes.iter().find_map(|planned| planned.config.server.first());
    let chunks = dimension?.dimension.div_ceil(usize::from(first.plan.elements));
    let [from_ms, to_ms] = push.compute_ms;
    let setting = Setting {
        servers_per_host: vec![jobs],
        hosts: workers + 1,
        // Emulated computing takes no core from anybody.
        cores: jobs,
        cores_per_step: 1.0,
        link_bytes_per_sec: link.bytes_per_sec() as f64,
        model_bytes: (chunks as u64 * chunk_bytes) as f64,
        rounds: first.scenario.job.rounds,
        rotate_ns,
        // Of one job the transfers are alike, and begin together.
        shares: if jobs == 1 { Shares::Equal } else { Shares::default() },
        seed,
    };
    Some((setting, (u64::from(from_ms) + u64::from(to_ms)) * 500_000))
}

fn is_alike(one: &JobPlan, other: &JobPlan) -> bool {
    let (a, b) = (&one.scenario, &other.scenario);
    let sizes = |job: &crate::scenario::JobSection| (job.workers, job.rounds, job.hidden.clone());
    sizes(&a.job) == sizes(&b.job)
        && a.push == b.push
        && one.site.host("server") == other.site.host("server")
        && one.start == other.start
}

/// Ethernet, IPv4, UDP and Weft's header.
const FRAME_OVERHEAD_BYTES: u64 = 14 + 20 + 8 + 32;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::run::plan::Place;
    use crate::scenario::JobsScenario;

    fn plan(text: &str, change: impl Fn(&mut JobsScenario)) -> SeveralPlan {
        let mut scenario = JobsScenario::parse("some.toml", text).expect("it makes sense");
        change(&mut scenario);
        SeveralPlan::new(&scenario, &Place::Lab, 1, Path::new("/run"), None).expect("a plan")
    }

    fn direct(scenario: &mut JobsScenario) {
        for push in scenario.jobs.iter_mut().filter_map(|job| job.push.as_mut()) {
            push.aggregators = 0;
            "fair".clone_into(&mut push.policy);
        }
    }

    const LIGHTS: &str = include_str!("../../../scenarios/lights.toml");
    const TRACE: &str = include_str!("../../../scenarios/trace.toml");

    #[test]
    fn bands_are_predicted_to_help_servers_that_share_a_host() {
        let plan = plan(LIGHTS, direct);
        let (first, count) = (&plan.jobs[0], plan.jobs.len());
        let (ours, step_ns) = setting(first, count, 5_000_000_000, 1).expect("it is known");
        let mean = |policy| {
            let jct_ns = ours.run(policy, step_ns).jct_ns;
            jct_ns.iter().sum::<u64>() as f64 / jct_ns.len() as f64
        };
        let part = mean(BandPolicy::One) / mean(BandPolicy::Fifo);
        assert!(part < 0.85, "{part}");
        let found = predict(&plan, BandPolicy::One, Some(5_000_000_000), 1).expect("it is known");
        assert_eq!(found.jct_ns, ours.run(BandPolicy::One, step_ns).jct_ns);
    }

    #[test]
    fn what_the_simulator_does_not_know_has_no_prediction() {
        let predicted = |change: &dyn Fn(&mut JobsScenario)| {
            let plan = plan(LIGHTS, |scenario| {
                direct(scenario);
                change(scenario);
            });
            predict(&plan, BandPolicy::Fifo, None, 1).is_some()
        };
        assert!(predicted(&|_| {}));
        assert!(!predicted(&|scenario| scenario.jobs[1].rounds += 1));
        let planned = |scenario: &mut JobsScenario| {
            for push in scenario.jobs.iter_mut().filter_map(|job| job.push.as_mut()) {
                "mlfabric".clone_into(&mut push.policy);
            }
        };
        assert!(!predicted(&planned), "somebody plans");
        assert!(!predicted(&|scenario| scenario.jobs[1].start_s = 1.0));
        assert!(!predicted(&|scenario| scenario.jobs[1].server = "other".to_owned()));
        assert!(predict(&plan(LIGHTS, |_| {}), BandPolicy::Fifo, None, 1).is_none(), "boxes");
    }

    #[test]
    fn jobs_that_wait_for_slots_are_predicted_to_wait() {
        let found = |slots| {
            let plan = plan(TRACE, |scenario| {
                scenario.cluster.as_mut().expect("it has slots").slots = slots;
            });
            predict(&plan, BandPolicy::Fifo, None, 1).expect("it is known").jct_ns
        };
        let (few, many) = (found(4), found(100));
        // With room for all, each takes what it takes alone: its rounds of 300 ms and a little.
        let first = many[0] as f64 / 1e9;
        assert!((4.8..5.3).contains(&first), "{first}");
        assert_eq!(few[0], many[0], "nobody was before it");
        assert!(few[9] > 2 * many[9], "{few:?} {many:?}");
    }
}
