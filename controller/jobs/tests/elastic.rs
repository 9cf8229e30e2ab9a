//! Elastic jobs on real throughput curves, beside other people's results (`elastic/README.md`).

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_jobs::cluster::Cluster;
use weft_jobs::job::{Job, NS_PER_S};
use weft_jobs::model::speed::Speed;
use weft_jobs::model::throughputs::{Throughputs, narrow};
use weft_jobs::place::{self, Options};
use weft_jobs::policy::elastic::{Doubling, DoublingExplore, FIXED, Optimus};
use weft_jobs::policy::{Jobs, Policy, Setting, Widths, elasticflow_compat};
use weft_jobs::sim::speed::{ByWidth, Costs, Overheads};
use weft_jobs::sim::{self, Observer, Parts, Row, Usage};
use weft_jobs::trace::{self, elasticflow};

const TRACE: &str = include_str!("elastic/trace_100.csv");
const CLUSTER: &str = include_str!("elastic/n16g8.csv");
const A100: &str = include_str!("elastic/throughputs/a100.csv");
const PUBLISHED: &str = include_str!("elastic/expected/dlas-gpu.csv");

/// What ElasticFlow publishes for its own policy on 128 GPUs.
const ELASTICFLOW_MEAN_JCT_S: f64 = 24_306.0;

/// Each job alone at its best width, computed apart from this code.
const BOUND_MEAN_JCT_S: f64 = 21_225.780_826;

#[derive(Default)]
struct Seen {
    /// Completion time in seconds, by name.
    jct_s: BTreeMap<String, f64>,
    gpus_max: u32,
    resizes: u32,
    overhead_s: f64,
}

impl Observer for Seen {
    fn ended(&mut self, row: Row<'_>) {
        self.jct_s.insert(row.job.name.to_string(), row.jct_ns() as f64 / NS_PER_S as f64);
        self.resizes += row.resizes;
        self.overhead_s += row.overhead_ns as f64 / NS_PER_S as f64;
    }

    fn usage(&mut self, _: u64, usage: Usage) {
        self.gpus_max = self.gpus_max.max(usage.gpus);
    }
}

impl Seen {
    fn mean_s(&self) -> f64 {
        self.jct_s.values().sum::<f64>() / self.jct_s.len() as f64
    }
}

fn jobs(cluster: Cluster) -> Vec<Job> {
    let mut jobs = elasticflow::read("trace_100.csv", TRACE, None).expect("the trace").jobs;
    for job in &mut jobs {
        narrow(job, cluster.gpus(), &throughputs()).expect("every width has a speed");
    }
    jobs
}

fn throughputs() -> Throughputs {
    Throughputs::read("a100.csv", A100).expect("the table")
}

fn simulate(cluster: Cluster, policy: &dyn Policy<Jobs>, overheads: Box<dyn Overheads>) -> Seen {
    let widths: Arc<dyn Widths> = Arc::new(throughputs());
    let mut setting = Setting::new(cluster);
    setting.widths = Arc::clone(&widths);
    setting.knobs.restart_ns = RESTART_NS;
    let parts = Parts {
        cluster,
        policy: policy.name().to_owned(),
        manner: policy.manner(),
        scheduler: policy.plan(&setting).expect("a scheduler"),
        placer: (place::by_name("count").expect("counts").placer)(&cluster, &Options::default()),
        speeds: Box::new(ByWidth(widths)),
        overheads,
    };
    let mut seen = Seen::default();
    sim::run(parts, jobs(cluster), &mut seen).expect("a run");
    assert_eq!(seen.jct_s.len(), 100, "{} ends all jobs", policy.name());
    assert!(seen.gpus_max <= cluster.gpus());
    seen
}

fn elastic(cluster: Cluster, policy: &dyn Policy<Jobs>) -> Seen {
    let costs = Costs { preemption_ns: RESTART_NS, restart_ns: RESTART_NS };
    simulate(cluster, policy, Box::new(costs))
}

/// 10 s, as the doubling paper.
const RESTART_NS: u64 = 10 * NS_PER_S;

#[test]
fn dlas_gpu_with_elasticflows_overhead_is_within_a_minute_of_the_published_results() {
    let cluster = trace::cluster("n16g8.csv", CLUSTER).expect("the cluster");
    let seen = simulate(
        cluster,
        &elasticflow_compat::DlasGpu,
        Box::new(elasticflow_compat::StartOverhead),
    );
    let mut apart = Vec::new();
    for line in PUBLISHED.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let published_s: f64 = fields[6].parse().expect("a number");
        let apart_s = (seen.jct_s[fields[0]] - published_s).abs();
        assert!(apart_s <= 60.0, "job {}: {apart_s} s apart", fields[0]);
        apart.push(apart_s);
    }
    let exact = apart.iter().filter(|apart_s| **apart_s == 0.0).count();
    println!(
        "mean {:.1} s, {exact} of {} equal, worst {:?}",
        seen.mean_s(),
        apart.len(),
        apart.iter().copied().fold(0.0, f64::max)
    );
    assert!((seen.mean_s() / 51_045.99 - 1.0).abs() < 0.001);
}

#[test]
fn doubling_is_between_the_bound_and_elasticflow() {
    let cluster = trace::cluster("n16g8.csv", CLUSTER).expect("the cluster");
    let table = throughputs();
    let alone_s = jobs(cluster).into_iter().map(|job| {
        let curve = table.curve(&job.model, job.global_batch).expect("a curve");
        let (width, _) = curve.fastest(cluster.gpus()).expect("a width");
        curve.seconds(job.iterations as f64, width)
    });
    let bound_s = alone_s.sum::<f64>() / 100.0;
    assert!((bound_s - BOUND_MEAN_JCT_S).abs() < 0.01, "{bound_s}");
    let mean_s = elastic(cluster, &Doubling).mean_s();
    println!("doubling on 128 GPUs: {mean_s:.0} s");
    assert!(mean_s >= bound_s && mean_s <= ELASTICFLOW_MEAN_JCT_S, "{mean_s}");
}

/// Where GPUs are scarce, widths and order matter: no fixed width comes near the doubling rule.
#[test]
fn doubling_beats_every_fixed_width_where_gpus_are_scarce() {
    for nodes in [16, 4, 2] {
        let cluster = Cluster::of_nodes(nodes, 8);
        let doubling = elastic(cluster, &Doubling);
        println!(
            "{} GPUs: doubling {:.0} s, {} resizes",
            cluster.gpus(),
            doubling.mean_s(),
            doubling.resizes
        );
        for (name, policy) in
            [("doubling-explore", &DoublingExplore as &dyn Policy<Jobs>), ("optimus", &Optimus)]
        {
            let seen = elastic(cluster, policy);
            println!("  {name} {:.0} s, {} resizes", seen.mean_s(), seen.resizes);
            assert!(seen.mean_s() >= BOUND_MEAN_JCT_S);
        }
        for name in ["fixed-1", "fixed-2", "fixed-4", "fixed-8", "fixed-16"] {
            let policy = (FIXED.member)(name).expect("of the family");
            let fixed = elastic(cluster, &*policy);
            println!("  {name} {:.0} s", fixed.mean_s());
            assert!(doubling.mean_s() < fixed.mean_s(), "{name} on {}", cluster.gpus());
        }
    }
}

/// The same run twice: nothing depends on anything but its arguments.
#[test]
fn a_run_repeats() {
    let cluster = Cluster::of_nodes(2, 8);
    for policy in [&Doubling as &dyn Policy<Jobs>, &DoublingExplore, &Optimus] {
        assert_eq!(elastic(cluster, policy).jct_s, elastic(cluster, policy).jct_s);
    }
}
