//! Holds `mlfabric` against every baseline on made-up cases: what it commits, it commits no later
//! in the mean than the best baseline that loses no more updates.

use weft_plan::case::{Case, Options};
use weft_plan::plan::Plan;
use weft_plan::plan::check::check;
use weft_plan::policy::{self, Policy};
use weft_plan::sample::{Numbers, Shape};

/// A small case as somebody would write it down: links and sizes over two orders of magnitude,
/// workers with several updates, bounds that bite, other traffic.
fn case(seed: u64, options: &Options) -> Case {
    let mut numbers = Numbers::new(seed);
    let mut below = |len: u64| numbers.within(0, len);
    let mut small = |len: u64| u32::try_from(below(len)).expect("it is small");
    let updates = [1 + small(7), 1 + small(16), 1 + small(40)][small(3) as usize];
    let (workers, servers, aggregators) = (1 + small(12), 1 + small(5) / 4, small(4));
    let shape = Shape {
        updates,
        hosts: workers + servers + aggregators,
        servers,
        replicas: false,
        aggregators,
        reservations: [0, 0, small(12)][small(3) as usize],
        racks: [0, 0, 0, 2][small(4) as usize],
        equal: small(4) == 0,
        deadlines: false,
    };
    let mut spec = shape.spec(seed);
    if !shape.equal {
        for host in spec.hosts.values_mut() {
            host.up_bytes_per_sec = 1_000_000 * [1, 2, 5, 10, 20, 50, 100, 200][place(below(8))];
            host.down_bytes_per_sec = 1_000_000 * [10, 100, 100, 100, 1000][place(below(5))];
        }
        for update in &mut spec.updates {
            update.size_bytes = 1_000_000 * [1, 1, 2, 5, 10, 40][place(below(6))];
        }
    }
    if below(2) == 0 {
        let tau_max = 1 + below(2 * u64::from(updates) + 2);
        for server in &mut spec.servers {
            server.version = 1_000;
            server.tau_max = Some(tau_max);
        }
        for update in &mut spec.updates {
            update.version = 1_000 - below(tau_max + 1);
        }
    }
    spec.options = options.clone();
    Case::new(&spec).expect("a sample case")
}

fn place(number: u64) -> usize {
    usize::try_from(number).expect("it is small")
}

/// Mean commit time from the start of the plan, in nanoseconds.
fn mean_ns(case: &Case, plan: &Plan) -> f64 {
    plan.mean_commit_ns().map_or(0.0, |mean_ns| (mean_ns - case.now_ns) as f64)
}

/// Baselines that move every update to its server and lose none by choice.
fn baselines() -> impl Iterator<Item = &'static dyn Policy> {
    let others =
        policy::names().filter(|name| !["mlfabric", "ring", "backup-workers"].contains(name));
    others.filter_map(policy::by_name)
}

#[test]
fn no_baseline_that_loses_no_more_commits_sooner() {
    let (mut worse, mut worst, mut firsts) = (0, 1.0_f64, Vec::new());
    for seed in 0..CASES {
        let options = Options { no_drop: seed % 2 == 0, ..Options::default() };
        let case = case(seed, &options);
        let plan = policy::by_name("mlfabric").expect("the default").plan(&case).expect("a plan");
        assert_eq!(check(&case, &plan), Ok(()), "seed {seed}");
        let own_ns = mean_ns(&case, &plan);
        for baseline in baselines() {
            let Ok(other) = baseline.plan(&case) else { continue };
            let other_ns = mean_ns(&case, &other);
            if other.dropped.len() > plan.dropped.len() || other.order.is_empty() {
                continue;
            }
            if own_ns > other_ns * 1.01 {
                worse += 1;
                worst = worst.max(own_ns / other_ns);
                firsts.push((seed, baseline.name(), own_ns / other_ns));
            }
        }
    }
    firsts.truncate(20);
    assert!(worse == 0, "{worse} times, at worst {worst:.2} x, the first: {firsts:?}");
}

/// Made-up cases.
const CASES: u64 = 2_000;
