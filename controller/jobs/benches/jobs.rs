//! Simulating a contended cluster on one core: `cargo bench -p weft-jobs`.
//!
//! Jobs come at 1.2 times what the cluster can do, so most wait; 2D-LAS in three queues, placement
//! by skew. The marks are 3 s for 100,000 jobs on 10,000 GPUs and 60 s for 1,000,000 on 100,000.
//! Memory is linear in the jobs that wait or run.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use weft_jobs::cluster::Cluster;
use weft_jobs::job::Job;
use weft_jobs::place;
use weft_jobs::policy::{BUILT_IN, Setting};
use weft_jobs::sim::setup::Setup;
use weft_jobs::sim::summary::Figures;
use weft_jobs::sim::{self, Observer, Row};
use weft_jobs::trace::generate::{Recipe, Sizes};

/// Jobs, and nodes of 8 GPUs.
const SIZES: [(u32, u32); 3] = [(10_000, 125), (100_000, 1_250), (1_000_000, 12_500)];

#[derive(Default)]
struct Seen(Figures);

impl Observer for Seen {
    fn ended(&mut self, row: Row<'_>) {
        self.0.add(&row);
    }
}

fn trace(jobs: u32, cluster: Cluster) -> Vec<Job> {
    Recipe { jobs, gpus: cluster.gpus(), load: 1.2, sizes: Sizes::Mixed }.generate(1)
}

fn setup(policy: &str, cluster: Cluster) -> Setup {
    let policy = BUILT_IN.find(policy).expect("it is built in");
    let placement = place::by_name("skew").expect("it is built in");
    Setup { placement, ..Setup::new(policy, Setting::new(cluster)) }
}

fn simulate(setup: &Setup, jobs: &[Job]) -> u64 {
    let mut seen = Seen::default();
    let parts = setup.parts().expect("parts");
    sim::run(parts, jobs.iter().cloned(), &mut seen).expect("a run");
    let summary = seen.0.summary(&setup.setting.cluster);
    assert_eq!(summary.jobs, jobs.len());
    summary.preemptions
}

fn growth(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("dlas-gpu, skew");
    // The largest takes many seconds.
    group.sample_size(10).warm_up_time(Duration::from_millis(1));
    for (jobs, nodes) in SIZES {
        let cluster = Cluster::of_nodes(nodes, 8);
        let (trace, setup) = (trace(jobs, cluster), setup("dlas-gpu", cluster));
        group.throughput(Throughput::Elements(jobs.into()));
        group.bench_function(BenchmarkId::from_parameter(jobs), |bencher| {
            bencher.iter(|| assert!(simulate(&setup, &trace) > 0, "it is contended"));
        });
    }
    group.finish();
}

fn policies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("10000 jobs, skew");
    group.sample_size(10).warm_up_time(Duration::from_millis(1));
    let (jobs, nodes) = SIZES[0];
    let cluster = Cluster::of_nodes(nodes, 8);
    let trace = trace(jobs, cluster);
    group.throughput(Throughput::Elements(jobs.into()));
    for policy in POLICIES {
        let setup = setup(policy, cluster);
        group.bench_function(BenchmarkId::from_parameter(policy), |bencher| {
            bencher.iter(|| simulate(&setup, &trace));
        });
    }
    group.finish();
}

/// Those that run every job at the width that it asks for.
const POLICIES: [&str; 9] = [
    "dlas-gpu",
    "dlas-gpu-8",
    "dlas-gpu-gittins",
    "fifo",
    "fjf",
    "sjf",
    "shortest",
    "shortest-gpu",
    "2d-las",
];

criterion_group!(benches, policies, growth);
criterion_main!(benches);
