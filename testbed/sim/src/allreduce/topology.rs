//! Who is where: addresses, tables and configurations of a scenario's boxes and members.

use std::net::{Ipv4Addr, SocketAddr};

use weft_engine::role::worker::WorkerConfig;
use weft_engine::table::{BoxConfig, JobConfig, MemberConfig, ParentConfig, RowConfig, Table};
use weft_wire::frame::Endpoint;
use weft_wire::{JobId, MacAddr, Nanos, Rank};

use super::data::Job;
use super::scenario::{Kind, Scenario};
use crate::hash;

/// Port that boxes listen on; all ports are multiples of the lane count, so that a port's low
/// bits name its lane.
const BOX_PORT: u16 = 0x5740;
/// Port that a leaf's lane 0 speaks to the root from.
const UPSTREAM_PORT: u16 = 9_024;
const MEMBER_PORT: u16 = 4_096;

/// Where a box listens.
#[must_use]
pub fn box_endpoint(index: usize) -> Endpoint {
    let host = low_byte(index + 1);
    Endpoint {
        mac: MacAddr([2, 0, 0, 0, 0, host]),
        addr: SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), BOX_PORT)),
    }
}

/// Where a member speaks from.
#[must_use]
pub fn member_endpoint(member: usize) -> Endpoint {
    let host = low_byte(member + 1);
    Endpoint {
        mac: MacAddr([2, 0, 0, 0, 1, host]),
        addr: SocketAddr::from((Ipv4Addr::new(10, 0, 1, host), MEMBER_PORT)),
    }
}

/// Where a member belongs: its job, its worker number there, its box and its rank at the box.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Placement {
    /// The job.
    pub job: usize,
    /// The worker's number in the job.
    pub worker: usize,
    /// Index of the box that it speaks to.
    pub box_index: usize,
    /// Its rank there.
    pub rank: usize,
}

/// The placement of each member: job after job, in the order of the workers.
#[must_use]
pub fn placements(scenario: &Scenario) -> Vec<Placement> {
    let below = scenario.leaf_workers;
    let placement = |job, worker| {
        let (box_index, rank) =
            if scenario.levels == 2 { (1 + worker / below, worker % below) } else { (0, worker) };
        Placement { job, worker, box_index, rank }
    };
    let workers = scenario.workers;
    (0..scenario.jobs)
        .flat_map(|job| (0..workers).map(move |worker| placement(job, worker)))
        .collect()
}

/// What a job sums.
#[must_use]
pub fn job(scenario: &Scenario, index: usize) -> Job {
    let mut tree = vec![Vec::new(); scenario.boxes()];
    for placement in placements(scenario).iter().filter(|placement| placement.job == index) {
        tree[placement.box_index].push(placement.worker);
    }
    tree.retain(|workers| !workers.is_empty());
    Job {
        seed: hash(&[scenario.seed, 77, index as u64]),
        numbers: scenario.numbers,
        elements: scenario.elements,
        exponent_fixed: scenario.exponent_fixed,
        tree,
    }
}

/// The validated table of a box.
#[must_use]
pub fn table(scenario: &Scenario, box_index: usize) -> Table {
    let window = scenario.window * scenario.shards;
    let greedy = scenario.kind == Kind::Greedy;
    let config = BoxConfig {
        local: box_endpoint(box_index),
        shards: scenario.shards,
        mtu: 1500,
        jobs: (0..scenario.jobs)
            .map(|job| JobConfig {
                job: job_id(job),
                slots_max: u32::from(window),
                rate_bytes_per_sec: (greedy && job == 0).then_some(400_000),
                burst_bytes: 8_192,
            })
            .collect(),
        rows: (0..scenario.jobs).map(|job| row(scenario, box_index, job)).collect(),
        pushes: Vec::new(),
    };
    Table::new(config).expect("the scenario gives a valid table")
}

fn row(scenario: &Scenario, box_index: usize, job: usize) -> RowConfig {
    let is_root_of_leaves = scenario.levels == 2 && box_index == 0;
    let members = if is_root_of_leaves {
        (1..scenario.boxes())
            .map(|leaf| {
                let mut addr = box_endpoint(leaf).addr;
                addr.set_port(upstream_port(job));
                let weight = u32::try_from(scenario.leaf_workers).expect("a small number");
                MemberConfig { addr, weight, is_box: true }
            })
            .collect()
    } else {
        (0..)
            .zip(placements(scenario))
            .filter(|(_, placement)| placement.job == job && placement.box_index == box_index)
            .map(|(member, _)| MemberConfig {
                addr: member_endpoint(member).addr,
                weight: 1,
                is_box: false,
            })
            .collect()
    };
    let parent = (scenario.levels == 2 && box_index > 0).then(|| ParentConfig {
        endpoint: box_endpoint(0),
        row: root_row_index(scenario, job),
        rank: rank(box_index - 1),
        source_port: upstream_port(job),
    });
    RowConfig {
        row: if is_root_of_leaves { root_row_index(scenario, job) } else { row_index(job) },
        job: job_id(job),
        members,
        element_type: scenario.numbers.element_type(),
        operation: scenario.numbers.operation(),
        sum_order: scenario.numbers.sum_order(),
        overflow: scenario.numbers.overflow(),
        integrity: scenario.integrity,
        elements: scenario.elements,
        window: scenario.window * scenario.shards,
        chunks_max: 4_096,
        exponent: scenario.exponent_fixed.then_some(0),
        fan_in: u32::try_from(scenario.workers).expect("a small number"),
        parent,
    }
}

/// Configuration of a member's worker.
#[must_use]
pub fn worker_config(scenario: &Scenario, member: usize, placement: Placement) -> WorkerConfig {
    let target = Endpoint { mac: MacAddr::BROADCAST, ..box_endpoint(placement.box_index) };
    let mut config = WorkerConfig::new(
        job_id(placement.job),
        row_index(placement.job),
        rank(placement.rank),
        member_endpoint(member),
        target,
    );
    config.element_type = scenario.numbers.element_type();
    config.operation = scenario.numbers.operation();
    config.member_timeout_ns = MEMBER_TIMEOUT.0;
    config.connect_timeout_ns = MEMBER_TIMEOUT.0;
    config.close_linger_ns = MEMBER_TIMEOUT.0;
    config.probe_len = 200;
    config
}

/// How long members wait for each other.
pub const MEMBER_TIMEOUT: Nanos = Nanos::from_millis(30_000);

/// The row of a job at the boxes that its workers speak to.
#[must_use]
pub fn row_index(job: usize) -> u16 {
    u16::from(low_byte(3 + 4 * job))
}

/// The row of a job at the root of leaves, which need not be the leaves': in odd seeds it is
/// another job's row there, or none at all.
fn root_row_index(scenario: &Scenario, job: usize) -> u16 {
    match (scenario.seed % 2, scenario.jobs) {
        (0, _) => row_index(job),
        (_, 1) => row_index(job) + 2,
        (_, jobs) => row_index(jobs - 1 - job),
    }
}

/// The job on the wire.
#[must_use]
pub fn job_id(job: usize) -> JobId {
    JobId(u16::from(low_byte(1 + job)))
}

fn upstream_port(job: usize) -> u16 {
    UPSTREAM_PORT + 64 * u16::from(low_byte(job))
}

fn rank(rank: usize) -> Rank {
    Rank::new(low_byte(rank)).expect("a rank below 64")
}

fn low_byte(value: usize) -> u8 {
    u8::try_from(value).expect("a small number")
}
