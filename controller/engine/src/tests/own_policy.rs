//! A policy of one file and one line plans cases and runs jobs, and no rule asks for its name.

use alloc::boxed::Box;
use alloc::vec::Vec;
use std::hash::Hasher;

use weft_control::{DropReason, Mode};
use weft_plan::case::Case;
use weft_plan::net::ledger::Ledger;
use weft_plan::plan::check::check;
use weft_plan::plan::{Group, Plan, Transfer};
use weft_plan::policy::mlfabric::Mlfabric;
use weft_plan::policy::{Manner, Policy, PolicyError, baseline};
use weft_plan::sample::Shape;

use super::closed_loop;
use super::world::{Training, World};
use super::*;

/// The largest update first, each as soon as its links are free.
struct LargestFirst;

impl Policy for LargestFirst {
    fn name(&self) -> &str {
        "largest-first"
    }

    fn plan(&self, case: &Case) -> Result<Plan, PolicyError> {
        let mut plan = Plan::empty(self.name(), case);
        let mut ledger = Ledger::new(case);
        let mut next: Vec<_> =
            case.servers.iter().map(|server| (0, server.commit_from_ns.max(case.now_ns))).collect();
        let mut updates: Vec<_> = case.update_ids().collect();
        updates.sort_by_key(|id| core::cmp::Reverse(case.update(*id).size_bytes));
        for id in updates {
            let update = case.update(id);
            let (position, last_ns) = &mut next[update.server.index()];
            if case.deadline(id) < *position {
                plan.dropped.push((id, DropReason::TooOld));
                continue;
            }
            let path = ledger.path(update.host, case.server(update.server).host);
            let mut segments = Vec::new();
            let arrival =
                ledger.probe_segments(&path, case.now_ns, update.size_bytes, &mut segments);
            let Some(arrival_ns) = arrival else {
                plan.dropped.push((id, DropReason::NoBandwidth));
                continue;
            };
            ledger.reserve(&path, &segments);
            *position += 1;
            *last_ns = arrival_ns.max(*last_ns);
            let (server, commit_ns) = (update.server, *last_ns);
            plan.transfers[id.index()] =
                Some(Transfer { arrival_ns, commit_ns, via: None, segments });
            plan.groups.push(Group {
                server,
                members: vec![id],
                via: None,
                forward: None,
                commit_ns,
            });
        }
        plan.settle();
        Ok(plan)
    }
}

/// The same, as another program would be.
struct Outside;

impl Policy for Outside {
    fn name(&self) -> &str {
        "outside"
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn plan(&self, case: &Case) -> Result<Plan, PolicyError> {
        LargestFirst.plan(case)
    }
}

/// A policy of the list, under another name.
struct Renamed<P>(&'static str, P);

impl<P: Policy> Policy for Renamed<P> {
    fn name(&self) -> &str {
        self.0
    }

    fn manner(&self) -> Manner {
        self.1.manner()
    }

    fn plan(&self, case: &Case) -> Result<Plan, PolicyError> {
        self.1.plan(case)
    }
}

/// The policies of these tests.
const OWN: &[&dyn Policy] = &[
    &LargestFirst,
    &Outside,
    &Renamed("mlfabric, renamed", Mlfabric),
    &Renamed("fair, renamed", baseline::Fair),
    &Renamed("fifo, renamed", baseline::Fifo),
];

/// Those and the built-in ones.
pub(super) fn policies() -> PolicySource {
    let built_in = built_in_policies();
    Box::new(move |name| match OWN.iter().find(|policy| policy.name() == name) {
        Some(policy) => Ok(AnyPolicy::BuiltIn(*policy)),
        None => built_in(name),
    })
}

fn trained(policy: &str, mode: Mode, seed: u64) -> World {
    answered(policy, mode, seed, 0)
}

fn answered(policy: &str, mode: Mode, seed: u64, answer_ns: u64) -> World {
    let mut world = closed_loop::world(policy, mode, &Tuning::default());
    world.answer_ns = answer_ns;
    world.train(0, Training { seed, compute_ms: [50, 250], target: COMMITS });
    while world.version(0).0 < COMMITS {
        assert!(world.now_ns < 120_000_000_000, "{policy}, seed {seed}: it comes to no end");
        world.run_for(1_000_000);
    }
    world
}

#[test]
fn a_policy_of_ones_own_plans_cases() {
    let shape =
        Shape { updates: 40, hosts: 20, servers: 2, replicas: false, aggregators: 2, ..SHAPE };
    for seed in 0..100 {
        let case = Case::new(&shape.spec(seed)).unwrap();
        let plan = policies()("largest-first").unwrap().plan(&case).unwrap();
        check(&case, &plan).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        assert!(!plan.groups.is_empty());
    }
}

#[test]
fn a_policy_of_ones_own_runs_a_job() {
    for mode in [Mode::Async, Mode::Sync] {
        let world = trained("largest-first", mode, 1);
        let status = &world.controller.status(world.now_ns).jobs[0];
        assert_eq!(status.policy, "largest-first");
        assert_eq!((status.counters.policy_failures, status.counters.aggregated), (0, 0));
        assert!(world.load_max <= 1.02, "a link carried {} of its rate", world.load_max);
    }
}

#[test]
fn a_program_that_takes_its_time_plans_and_one_that_hangs_is_stood_in_for() {
    for mode in [Mode::Async, Mode::Sync, Mode::Partial] {
        for (answer_ns, hangs) in [(20_000_000, false), (u64::MAX, true)] {
            let world = answered("outside", mode, 1, answer_ns);
            let counters = &world.controller.status(world.now_ns).jobs[0].counters;
            assert_eq!(counters.policy_failures > 0, hangs, "{mode:?}, {answer_ns} ns");
            assert!(world.load_max <= 1.02, "a link carried {} of its rate", world.load_max);
        }
    }
}

#[test]
fn a_name_decides_nothing() {
    for name in ["mlfabric", "fair", "fifo"] {
        for (mode, seed) in [(Mode::Async, 1), (Mode::Sync, 2), (Mode::Partial, 3)] {
            let events = |name: &str| trained(name, mode, seed).transcript.finish();
            let renamed = format!("{name}, renamed");
            assert_eq!(events(name), events(&renamed), "{name}, {mode:?}");
        }
    }
}

const COMMITS: u64 = 24;
const SHAPE: Shape = weft_plan::sample::THOUSAND;
