//! The controller's configuration: hosts, rates, planners, times.

use weft_control::{AckMode, Mode};
use weft_controller_engine::{Config, HostConfig, JobConfig, Tuning, WorkerConfig};
use weft_engine::random::SplitMix64;
use weft_wire::header::ElementType;

use crate::hash;
use crate::push::scenario::Scenario;
use crate::push::topology;

/// The name of a box.
#[must_use]
pub fn box_name(scenario: &Scenario, node: usize) -> String {
    if let Some(site) = &scenario.site {
        return site.place(node).0.to_owned();
    }
    match node {
        node if node == scenario.server() => "s0".to_owned(),
        node if Some(node) == scenario.replica() => "r0".to_owned(),
        node => format!("a{node}"),
    }
}

/// Rates up and down of every host: the boxes, then a host for each rank, which the workers of all
/// jobs share. None where nobody plans by rates.
#[must_use]
pub fn host_rates(scenario: &Scenario) -> Vec<[u64; 2]> {
    let mut random = SplitMix64::new(hash(&[scenario.seed, 62]));
    let mut rate = || RATE_MIN + random.next_u64() % RATE_SPAN;
    let hosts = scenario.boxes() + scenario.workers;
    let mut rates: Vec<[u64; 2]> = (0..hosts).map(|_| [rate(), rate()]).collect();
    if scenario.seed.is_multiple_of(2) {
        // A server's link that gains by sums.
        rates[scenario.server()][1] = RATE_MIN;
    }
    rates
}

pub(crate) fn config(scenario: &Scenario) -> Config {
    if let Some(site) = &scenario.site {
        return site.controller.clone();
    }
    let mut random = SplitMix64::new(hash(&[scenario.seed, 63]));
    let mut below = |count: u64| random.next_u64() % count;
    let knows_rates = below(3) > 0;
    let names = (0..scenario.boxes()).map(|node| box_name(scenario, node));
    let names = names.chain((0..scenario.workers).map(|rank| format!("w{rank}")));
    let hosts = names.zip(host_rates(scenario)).map(|(name, [up, down])| HostConfig {
        name,
        up_bytes_per_sec: knows_rates.then_some(up),
        down_bytes_per_sec: knows_rates.then_some(down),
        rack: None,
        slots: None,
    });
    let policy = POLICIES[usize::try_from(below(POLICIES.len() as u64)).expect("small")];
    let tuning = Tuning {
        policy: policy.to_owned(),
        gather_window_us: 1_000 + below(4_000),
        batch_max: [2, 128][usize::try_from(below(2)).expect("small")],
        grant_lead_us: below(6_000),
        node_timeout_ms: 10 + below(100),
        install_timeout_ms: 10 + below(60),
        age_limit_ms: 20 + below(100),
        turn_updates: [1, 16][usize::try_from(below(2)).expect("small")],
        updates_per_worker_max: [2, 8][usize::try_from(below(2)).expect("small")],
        void_ms_min: 100 + below(1_000),
        // Longer than most breaks.
        server_lease_ms: 300 + hash(&[scenario.seed, 64]) % 300,
        initial_bytes_per_sec: 1_000_000,
        ..Tuning::default()
    };
    let weight = [1.0, 3.0][usize::try_from(below(2)).expect("small")];
    let jobs = (0..scenario.jobs).map(|job| JobConfig {
        name: format!("j{job}"),
        index: topology::job_id(job).0,
        dimension: scenario.dimension() as u64,
        element: if scenario.is_fixed { ElementType::I32 } else { ElementType::F32 },
        elements_per_chunk: Some(scenario.elements),
        workers: (0..scenario.workers).map(|rank| WorkerConfig::Host(format!("w{rank}"))).collect(),
        server: "s0".to_owned(),
        aggregators: (0..scenario.aggregators).map(|node| format!("a{node}")).collect(),
        ack: if scenario.has_heir() { AckMode::Replica } else { AckMode::Commit },
        replica: scenario.replica().map(|_| "r0".to_owned()),
        tau_max: Some(scenario.tau_max),
        momentum: scenario.momentum.into(),
        div_max: scenario.div_max,
        mode: Mode::Async,
        partial_count: None,
        policy: None,
        weight: if job == 0 { weight } else { 1.0 },
        options: weft_plan::case::Options::default(),
    });
    Config { tuning, hosts: hosts.collect(), jobs: jobs.collect(), ..Config::default() }
}

/// Planners whose plans any job can follow; the default more often.
const POLICIES: &[&str] =
    &["mlfabric", "mlfabric", "mlfabric", "fifo", "fair", "newest-first", "tree"];
/// Least rate of a link, and how much more it may have: an update takes a fraction of a millisecond
/// to a few.
const RATE_MIN: u64 = 200_000;
const RATE_SPAN: u64 = 3_000_000;
