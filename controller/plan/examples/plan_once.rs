//! Plans the bench's cases once, so that two builds can be compared: by instructions, by time, and
//! by a digest of everything that was decided.
//!
//! ```text
//! cargo build --release -p weft-plan --example plan_once
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*timed_order*' \
//!     target/release/examples/plan_once order 1000 128
//! target/release/examples/plan_once plan 10000 1024 20    # times of 20, least and median
//! target/release/examples/plan_once candidates 128 48 20  # without other traffic
//! target/release/examples/plan_once cases 2000            # a digest over 2,000 varied cases
//! ```
//!
//! `timed_order` and `timed_plan` are what callgrind is to count.

use std::hint::black_box;
use std::time::Instant;

use weft_plan::case::{AggregatorChoice, Case, Objective, Options};
use weft_plan::net::ledger::Ledger;
use weft_plan::plan::Plan;
use weft_plan::policy::Policy;
use weft_plan::policy::mlfabric::Mlfabric;
use weft_plan::policy::order::{Ordered, order};
use weft_plan::sample::{Numbers, Shape, THOUSAND};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_default();
    let numbers: Vec<u32> = arguments.map(|n| n.parse().expect("a number")).collect();
    match (kind.as_str(), numbers.as_slice()) {
        ("order", [updates, hosts, times @ ..]) => {
            let case = bench_case(*updates, *hosts);
            let ledger = Ledger::new(&case);
            measure(times.first().copied().unwrap_or(1), || timed_order(&case, &ledger));
        }
        ("plan", [updates, hosts, times @ ..]) => {
            let case = bench_case(*updates, *hosts);
            measure(times.first().copied().unwrap_or(1), || timed_plan(&case));
        }
        ("candidates", [updates, hosts, times @ ..]) => {
            let shape = Shape { updates: *updates, hosts: *hosts, reservations: 0, ..THOUSAND };
            let case = Case::new(&shape.spec(1)).expect("a sample is valid");
            measure(times.first().copied().unwrap_or(1), || timed_plan(&case));
        }
        ("cases", [count]) => {
            let digest = (0..*count).fold(0, |digest, seed| {
                let plan = timed_plan(&varied_case(seed.into()));
                digest_of(digest, &format!("{plan:?}"))
            });
            println!("{count} cases, digest {digest:016x}");
        }
        _ => {
            eprintln!("usage: plan_once order|plan|candidates UPDATES HOSTS [TIMES] | cases COUNT");
            std::process::exit(2);
        }
    }
}

#[inline(never)]
fn timed_order(case: &Case, ledger: &Ledger) -> Ordered {
    order(case, &mut ledger.clone())
}

#[inline(never)]
fn timed_plan(case: &Case) -> Plan {
    Mlfabric.plan(case).expect("a plan")
}

fn measure<T: std::fmt::Debug>(times: u32, plan: impl Fn() -> T) {
    let mut digest = 0;
    let mut spans_ns = Vec::new();
    for round in 0..times {
        let start = Instant::now();
        let planned = black_box(plan());
        spans_ns.push(start.elapsed().as_nanos());
        if round == 0 {
            digest = digest_of(0, &format!("{planned:?}"));
        }
    }
    spans_ns.sort_unstable();
    let (least, median) = (spans_ns[0] / 1_000, spans_ns[spans_ns.len() / 2] / 1_000);
    println!("least {least} us, median {median} us, digest {digest:016x}");
}

fn bench_case(updates: u32, hosts: u32) -> Case {
    Case::new(&Shape { updates, hosts, ..THOUSAND }.spec(1)).expect("a sample is valid")
}

/// Small cases of every shape, under every kind of switch.
fn varied_case(seed: u64) -> Case {
    let mut numbers = Numbers::new(seed);
    let mut below = |len: u32| u32::try_from(numbers.within(0, len.into())).expect("it is below");
    let shape = Shape {
        updates: 1 + below(120),
        hosts: 16 + below(30),
        servers: 1 + below(4),
        replicas: below(3) > 0,
        aggregators: below(7),
        reservations: below(60),
        racks: below(4),
        equal: below(4) == 0,
        deadlines: below(2) == 0,
    };
    let mut spec = shape.spec(seed);
    let options = &mut spec.options;
    options.objective = [Objective::Mean, Objective::Mean, Objective::Last][below(3) as usize];
    options.theta = [0.0, 0.3, 1.0][below(3) as usize];
    options.drop_limit = [0.1, 0.5][below(2) as usize];
    options.thin_flow_share = [0.0, 0.0, 0.3][below(3) as usize];
    options.direct_search = [4, 64][below(2) as usize];
    options.best_of = (below(6) == 0).then_some(10);
    options.aggregator_choice =
        [AggregatorChoice::RoundRobin, AggregatorChoice::FirstFree, AggregatorChoice::Earliest]
            [below(3) as usize];
    if below(3) == 0 {
        spec.options = Options::closed_loop(spec.options);
    }
    if below(3) == 0 {
        for server in &mut spec.servers {
            server.tau_max = server.tau_max.map(|tau_max| tau_max / 2);
        }
    }
    Case::new(&spec).expect("a sample is valid")
}

fn digest_of(before: u64, text: &str) -> u64 {
    let byte = |digest: u64, byte: u8| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(before ^ 0xcbf2_9ce4_8422_2325, byte)
}
