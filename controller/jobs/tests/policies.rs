//! What holds for every policy, of the network and of jobs: one suite over both registries.

use std::collections::BTreeSet;

use weft_jobs::cluster::Cluster;
use weft_jobs::job::{Job, NS_PER_S};
use weft_jobs::place::{self, PLACEMENTS};
use weft_jobs::policy::{
    AnyPolicy, BUILT_IN, Jobs, Knobs, Registry, Setting, Subject, elasticflow_compat,
    tiresias_compat,
};
use weft_jobs::sim::setup::Setup;
use weft_jobs::sim::summary::Figures;
use weft_jobs::sim::{self, Observer, Row, Usage};
use weft_jobs::text::SECONDS_MAX;
use weft_jobs::trace::generate::{self, Recipe, Sizes};
use weft_jobs::trace::tiresias;
use weft_plan::case::Case;
use weft_plan::policy::{self, Network};
use weft_plan::sample::{Numbers, Shape};

/// What the contract promises of any subject. `answer` says what a policy does about its questions,
/// in words that can be compared.
fn check<S: Subject>(
    registry: &Registry<S>,
    members: &[&str],
    answer: impl Fn(&AnyPolicy<S>) -> String,
) {
    let names: Vec<&str> = registry.names().collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    assert_eq!(registry.default().name(), names[0]);
    for name in names.iter().chain(members) {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(name.chars().all(is_plain), "{name}");
        let policy = registry.find(name).unwrap();
        assert_eq!(policy.name(), *name);
        assert!(!policy.may_wait(), "{name} is built in");
        assert_eq!(answer(&policy), answer(&policy), "{name}: the same question twice");
    }
    let error = registry.find("no-such-policy").unwrap_err().to_string();
    assert!(names.iter().all(|name| error.contains(name)), "{error}");
    for family in registry.families {
        assert!(error.contains(family.pattern), "{error}");
        assert!(registry.find(family.pattern).is_err(), "{} is no name", family.pattern);
    }
}

const SHAPE: Shape = Shape {
    updates: 12,
    hosts: 10,
    servers: 1,
    replicas: true,
    aggregators: 2,
    reservations: 3,
    racks: 0,
    equal: false,
    deadlines: true,
};

#[test]
fn policies_of_the_network_keep_the_contract() {
    let cases: Vec<Case> =
        (0..4).map(|seed| Case::new(&SHAPE.spec(seed)).expect("a sample is valid")).collect();
    check::<Network>(&policy::BUILT_IN, &[], |policy| {
        let plans = cases.iter().map(|case| match policy.plan(case) {
            Ok(plan) => serde_json::to_string(&plan.document(case)).unwrap(),
            Err(error) => error.to_string(),
        });
        plans.collect()
    });
}

/// All that a run does, and what is wrong with it.
#[derive(Default)]
struct Seen {
    gpus: u32,
    lines: Vec<String>,
    end_ns: u64,
    /// Jobs change their width, so their work is not their time.
    is_elastic: bool,
}

impl Observer for Seen {
    fn ended(&mut self, row: Row<'_>) {
        let job = row.job;
        assert!(row.start_ns >= job.submit_ns && row.end_ns >= self.end_ns, "{row:?}");
        self.end_ns = row.end_ns;
        assert_eq!(row.executed_ns + row.pending_ns + row.overhead_ns, row.jct_ns(), "{row:?}");
        if !self.is_elastic {
            // Work is conserved: it was served what it needed, and no more.
            assert_eq!(row.executed_ns, job.duration_ns, "{row:?}");
            assert_eq!(row.gpu_ns, job.gpu_ns(), "{row:?}");
            assert_eq!(row.resumes, row.preemptions + u32::from(row.resumes > 0), "{row:?}");
        }
        self.lines.push(row.line(false));
    }

    fn usage(&mut self, _: u64, usage: Usage) {
        assert!(usage.gpus <= self.gpus, "{usage:?}");
    }
}

fn jobs(seed: u64, gpus: u32) -> Vec<Job> {
    let recipe = Recipe { jobs: 120, gpus, load: 1.3, sizes: Sizes::Mixed };
    let mut jobs = recipe.generate(seed);
    tiresias_compat::in_whole_seconds(&mut jobs);
    jobs
}

fn run(setup: &Setup, jobs: &[Job]) -> Vec<String> {
    let gpus = setup.setting.cluster.gpus();
    let mut seen = Seen { gpus, ..Seen::default() };
    seen.is_elastic = ["doubling", "doubling-explore", "optimus"].contains(&setup.policy.name())
        || setup.policy.name().starts_with("fixed-");
    sim::run(setup.parts().unwrap(), jobs.to_vec(), &mut seen)
        .unwrap_or_else(|error| panic!("{:?}: {error}", setup.policy));
    assert_eq!(seen.lines.len(), jobs.len(), "{:?}: every job ends", setup.policy);
    seen.lines
}

/// Rows of some traces under a policy, with knobs at their defaults and turned.
fn rows(policy: &AnyPolicy<Jobs>) -> String {
    let cluster = Cluster::of_nodes(6, 8);
    let mut lines = Vec::new();
    for seed in 0..3 {
        let jobs = jobs(seed, cluster.gpus());
        let mut setting = Setting::new(cluster);
        lines.extend(run(&Setup::new(policy.clone(), setting.clone()), &jobs));
        setting.knobs = Knobs {
            queue_limits_ns: [500, 2_000, 9_000].map(|limit_s| limit_s * NS_PER_S).to_vec(),
            promote_knob: Some(2.0),
            starvation_limit_ns: Some(5_000 * NS_PER_S),
            quantum_ns: 300 * NS_PER_S,
            ..Knobs::default()
        };
        let mut setup = Setup::new(policy.clone(), setting);
        setup.costs.preemption_ns = 7 * NS_PER_S;
        setup.costs.restart_ns = 10 * NS_PER_S;
        lines.extend(run(&setup, &jobs));
    }
    lines.join("\n")
}

#[test]
fn policies_of_jobs_keep_the_contract_and_end_every_job() {
    check(&BUILT_IN, &["dlas-gpu-05", "dlas-gpu-8", "dlas-gpu-gittins-2", "fixed-4"], rows);
}

#[test]
fn policies_of_other_simulators_keep_the_contract() {
    let rows = |policy: &AnyPolicy<Jobs>| {
        let cluster = Cluster::of_nodes(6, 8);
        let setup = Setup::new(policy.clone(), Setting::new(cluster));
        let mut seen = Rows::default();
        sim::run(setup.parts().unwrap(), jobs(1, cluster.gpus()), &mut seen).unwrap();
        assert_eq!(seen.0.len(), 120);
        seen.0.join("\n")
    };
    check(&tiresias_compat::REGISTRY, &["dlas-gpu-05", "dlas-gpu-gittins-8"], rows);
    check(&elasticflow_compat::REGISTRY, &[], rows);
}

#[derive(Default)]
struct Rows(Vec<String>);

impl Observer for Rows {
    fn ended(&mut self, row: Row<'_>) {
        self.0.push(row.line(true));
    }
}

/// Under every placement too, those that refuse places included.
#[test]
fn every_policy_ends_every_job_under_every_placement() {
    let cluster = Cluster::of_nodes(6, 8);
    let jobs = jobs(5, cluster.gpus());
    for name in BUILT_IN.names() {
        for placement in PLACEMENTS {
            let mut setup = Setup::new(BUILT_IN.find(name).unwrap(), Setting::new(cluster));
            setup.placement = place::by_name(placement.name).unwrap();
            run(&setup, &jobs);
        }
    }
}

/// Traces under which jobs were stopped for one that then found no place, which was asked for again
/// at the same time without end.
#[test]
fn jobs_that_find_no_place_do_not_stop_others_for_ever() {
    let cluster = Cluster::of_nodes(15, 4);
    for (text, names) in [
        (include_str!("yarn/shortest.csv"), &["shortest", "shortest-gpu"][..]),
        (include_str!("yarn/dlas-gpu-05.csv"), &["dlas-gpu-05", "dlas-gpu-8"]),
    ] {
        let jobs = tiresias::read("jobs.csv", text, Some(&cluster)).unwrap().jobs;
        for name in names {
            for preemption_s in [0, 30] {
                let policy = BUILT_IN.find(name).unwrap();
                let mut setup = Setup::new(policy, Setting::new(cluster));
                setup.placement = place::by_name("yarn").unwrap();
                setup.costs.preemption_ns = preemption_s * NS_PER_S;
                run(&setup, &jobs);
            }
        }
    }
}

/// Many small traces on clusters where places are scarce.
#[test]
fn every_policy_finishes_under_every_placement_on_any_trace() {
    let members = ["dlas-gpu-05", "dlas-gpu-8", "dlas-gpu-gittins-2", "fixed-4"];
    for seed in 0..12 {
        let (nodes, sizes) = [(2, Sizes::Mixed), (5, Sizes::HeavyTailed)][(seed % 2) as usize];
        let cluster = Cluster { switches: 2, ..Cluster::of_nodes(nodes, 4) };
        let recipe = Recipe { jobs: 60, gpus: nodes * 4, load: 2.0, sizes };
        let mut jobs = recipe.generate(seed);
        tiresias_compat::in_whole_seconds(&mut jobs);
        for name in BUILT_IN.names().chain(members) {
            for placement in PLACEMENTS {
                let mut setup = Setup::new(BUILT_IN.find(name).unwrap(), Setting::new(cluster));
                setup.placement = place::by_name(placement.name).unwrap();
                setup.setting.knobs.promote_knob = (seed % 3 == 0).then_some(0.5);
                setup.costs.preemption_ns = (seed % 4) * 5 * NS_PER_S;
                run(&setup, &jobs);
            }
        }
    }
}

/// Numbers that a command line may have: every run ends, or is refused by one line. Sums are
/// checked for overflow here, as in every test.
#[test]
#[expect(clippy::cast_possible_truncation, reason = "indices of short lists")]
fn extreme_knobs_end_in_a_schedule_or_in_one_line() {
    let cluster = Cluster::of_nodes(2, 4);
    let times_ns = [1, NS_PER_S, 3_250 * NS_PER_S, 1 << 61, 1 << 62, 1 << 63, u64::MAX];
    let century_ns = SECONDS_MAX * NS_PER_S;
    let mut finished = 0;
    for seed in 0..200_u64 {
        let mut numbers = Numbers::new(seed);
        let mut pick = |times_ns: &[u64]| times_ns[numbers.index(times_ns.len())];
        let members = ["dlas-gpu-05", "dlas-gpu-1000000000", "dlas-gpu-gittins-2", "fixed-4"];
        let names: Vec<&str> = BUILT_IN.names().chain(members).collect();
        let name = names[(seed % names.len() as u64) as usize];
        let mut setting = Setting::new(cluster);
        // No limit so low that a test would take minutes.
        let mut queue_limits_ns = vec![pick(&times_ns[2..]), pick(&times_ns[2..])];
        queue_limits_ns.sort_unstable();
        setting.knobs = Knobs {
            queue_limits_ns,
            promote_knob: [None, Some(1e-300), Some(1e9), Some(1e300)]
                [pick(&[0, 1, 2, 3]) as usize],
            starvation_limit_ns: Some(pick(&times_ns)),
            // Not so short that a test would take minutes.
            quantum_ns: pick(&[1, 1 << 50, 1 << 62, u64::MAX]),
            restart_ns: pick(&[0, NS_PER_S, century_ns, u64::MAX]),
            ..Knobs::default()
        };
        let mut setup = Setup::new(BUILT_IN.find(name).unwrap(), setting);
        setup.costs.preemption_ns = pick(&[0, NS_PER_S, 10 * NS_PER_S, century_ns, u64::MAX]);
        setup.costs.restart_ns = setup.setting.knobs.restart_ns;
        setup.spread_slowdown = [1.0, 2.0, 1e6, 1e30][pick(&[0, 1, 2, 3]) as usize];
        setup.placement = &PLACEMENTS[pick(&[0, 1, 2, 3, 4, 5, 6, 7]) as usize];
        let mut jobs = jobs(seed, cluster.gpus());
        jobs.truncate(8);
        if seed % 5 == 0 {
            jobs[1].duration_ns = century_ns;
            jobs[7].submit_ns = century_ns;
        }
        let mut figures = Figures::default();
        let mut seen = Summed { rows: 0, figures: &mut figures };
        let ended = setup.parts().map_err(|error| error.to_string()).and_then(|parts| {
            let jobs = jobs.clone();
            sim::run(parts, jobs, &mut seen).map_err(|error| error.to_string())
        });
        match ended {
            Ok(()) => {
                assert_eq!(seen.rows, jobs.len());
                finished += 1;
            }
            Err(error) => assert_eq!(error.lines().count(), 1, "{error}"),
        }
        let _ = figures.summary(&cluster);
    }
    assert!(finished > 40, "{finished}");
}

struct Summed<'a> {
    rows: usize,
    figures: &'a mut Figures,
}

impl Observer for Summed<'_> {
    fn ended(&mut self, row: Row<'_>) {
        self.rows += 1;
        self.figures.add(&row);
        let _ = (row.line(false), row.line(true));
    }
}

#[test]
fn knobs_that_no_run_can_have_are_refused_by_one_line() {
    let refused = |edit: fn(&mut Setup)| {
        let setting = Setting::new(Cluster::of_nodes(2, 4));
        let mut setup = Setup::new(BUILT_IN.find("2d-las").unwrap(), setting);
        edit(&mut setup);
        setup.parts().map(|_| ()).expect_err("refused").to_string()
    };
    for (edit, words) in [
        ((|setup| setup.setting.knobs.quantum_ns = 1) as fn(&mut Setup), "quantum of 1 ns"),
        (|setup| setup.setting.knobs.queue_limits_ns = vec![1], "queue with a limit below 1 ms"),
        (|setup| setup.costs.preemption_ns = u64::MAX, "after a stop takes more than a century"),
        (|setup| setup.costs.restart_ns = 1 << 62, "another width takes more than a century"),
        (|setup| setup.spread_slowdown = 1e30, "slowdown of 1"),
    ] {
        let error = refused(edit);
        assert!(error.starts_with("policy 2d-las cannot") && error.contains(words), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn other_simulators_rules_take_extreme_knobs_too() {
    let cluster = Cluster::of_nodes(2, 4);
    for limit_ns in [4 * NS_PER_S, 1 << 62, u64::MAX] {
        for registry in [tiresias_compat::REGISTRY, elasticflow_compat::REGISTRY] {
            for name in registry.names() {
                let mut setting = Setting::new(cluster);
                setting.knobs.queue_limits_ns = vec![limit_ns / 2, limit_ns];
                setting.knobs.promote_knob = Some(1e300);
                let setup = Setup::new(registry.find(name).unwrap(), setting);
                let mut rows = Rows::default();
                sim::run(setup.parts().unwrap(), jobs(1, cluster.gpus()), &mut rows).unwrap();
                assert_eq!(rows.0.len(), 120, "{name}");
            }
        }
    }
}

#[test]
fn made_up_traces_end_within_a_century() {
    let century_ns = SECONDS_MAX * NS_PER_S;
    assert!(generate::mixed(50, 1e18, 1).iter().all(|job| job.submit_ns <= century_ns));
    for sizes in [Sizes::Mixed, Sizes::HeavyTailed] {
        let recipe = Recipe { jobs: 50, gpus: 8, load: 1e-300, sizes };
        assert!(recipe.generate(1).iter().all(|job| job.submit_ns <= century_ns));
    }
}

/// Knowing what is left helps on average: the order of the papers' figures.
#[test]
fn srsf_beats_2d_las_and_2d_las_beats_fifo() {
    let cluster = Cluster::of_nodes(6, 8);
    let mean = |name: &str| {
        let setup = Setup::new(BUILT_IN.find(name).unwrap(), Setting::new(cluster));
        let jct = |line: &str| line.split(',').nth(6).unwrap().parse::<f64>().unwrap();
        (0..5)
            .flat_map(|seed| run(&setup, &jobs(seed, cluster.gpus())))
            .map(|line| jct(&line))
            .sum::<f64>()
    };
    let [srsf, las, fifo] = ["shortest-gpu", "dlas-gpu", "fifo"].map(mean);
    assert!(srsf < las && las < fifo, "{srsf} {las} {fifo}");
}
