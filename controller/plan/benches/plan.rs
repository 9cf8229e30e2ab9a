//! Planning time: `cargo bench -p weft-plan`.
//!
//! The cases have 4 servers with replicas, 16 aggregators, unequal links, updates of 1 to 16 MB,
//! deadlines, and 1,000 transfers under way; see `weft_plan::sample`. The marks are 10 ms for 1,000
//! updates and 200 ms for 10,000; for the order alone 1 ms and 20 ms.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use weft_plan::case::Case;
use weft_plan::net::ledger::Ledger;
use weft_plan::policy::Policy;
use weft_plan::policy::mlfabric::Mlfabric;
use weft_plan::policy::order::order;
use weft_plan::sample::{Shape, TEN_THOUSAND, THOUSAND};

/// 1,000 to 10,000 updates, with hosts in proportion.
const GROWTH: [Shape; 4] = [
    THOUSAND,
    Shape { updates: 2_000, hosts: 256, ..THOUSAND },
    Shape { updates: 5_000, hosts: 512, ..THOUSAND },
    TEN_THOUSAND,
];

fn case(shape: Shape) -> Case {
    Case::new(&shape.spec(1)).expect("a sample is valid")
}

fn order_alone(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("order");
    for shape in GROWTH {
        let case = case(shape);
        let ledger = Ledger::new(&case);
        group.throughput(Throughput::Elements(shape.updates.into()));
        group.bench_function(BenchmarkId::from_parameter(shape.updates), |bencher| {
            // It changes the ledger that it is given; the copy is no part of it.
            let plan = |ledger: &mut Ledger| order(black_box(&case), ledger);
            bencher.iter_batched_ref(|| ledger.clone(), plan, BatchSize::SmallInput);
        });
    }
    group.finish();
}

fn whole_plan(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("order+aggregate+replicate");
    group.sample_size(20).measurement_time(Duration::from_secs(5));
    for shape in GROWTH {
        let case = case(shape);
        group.throughput(Throughput::Elements(shape.updates.into()));
        group.bench_function(BenchmarkId::from_parameter(shape.updates), |bencher| {
            bencher.iter(|| Mlfabric.plan(black_box(&case)).expect("a plan"));
        });
    }
    group.finish();
}

/// What the controller plans at once at most, with all candidates and by the rules alone.
fn candidates(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("candidates");
    let shape = Shape { updates: 128, hosts: 48, reservations: 0, ..THOUSAND };
    for candidates_max in [128, 0] {
        let mut case = case(shape);
        case.options.candidates_max = candidates_max;
        group.bench_function(BenchmarkId::from_parameter(candidates_max), |bencher| {
            bencher.iter(|| Mlfabric.plan(black_box(&case)).expect("a plan"));
        });
    }
    group.finish();
}

criterion_group!(benches, order_alone, whole_plan, candidates);
criterion_main!(benches);
