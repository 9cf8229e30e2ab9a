//! The configurations of a push run's boxes and of its controller. Pure.

use std::path::Path;

use weft_client::push::TlsFiles;
use weft_config::controller::{ControllerConfig, HostConfig, JobConfig, RackConfig, Tuning};
use weft_config::node::{
    ControllerSection, IdleSection, NodeConfig, PushSection, ReplicaSection, ServerSection,
};
use weft_config::{FilePath, StatsFormat, TlsSection};
use weft_control::{CommitMode, ConductMode, Mode};
use weft_rpc::identity::Identity;

use super::certs::node_identity;
use crate::lab::tc::Rate;
use crate::run::plan::{Io, Layout, box_config, initial_path, log_path, model_path};
use crate::scenario::{
    CONTROLLER, LabSection, LinkRates, REPLICA, Replication, SERVER, ScaleExponent,
};
use crate::workload::digits::{CLASSES, PIXELS};

/// A box's `node.toml`.
pub(in crate::run) fn node(layout: &Layout<'_>, name: &str) -> NodeConfig {
    let (addr, mtu) = (layout.box_addr(name), layout.scenario.lab.mtu);
    let io = layout.io.of_box(layout.scenario, name);
    let mut config = box_config(name, io, addr, mtu, layout.interface(name));
    if io == Io::Bmv2 {
        config.switch = Some(layout.switch());
    }
    config.node.events = Some(text(&log_path(layout.directory, name)));
    if io == Io::Udp {
        // A switch sees what leaves a host.
        config.port.offload = layout.io.takes_runs();
        // A socket wakes its lane at once, and a lane that polls takes the CPU of those it waits
        // for; commands do not wake it.
        config.idle = IdleSection { breaths: Some(8), pause_max_us: 200, ..IdleSection::default() };
    }
    // In a chain only the server knows of the replica.
    let is_planned = name != REPLICA || layout.push().replication != Replication::Chain;
    config.controller = commands(layout, name).filter(|_| is_planned);
    match name {
        SERVER => config.server.push(server(layout)),
        REPLICA => config.replica.push(replica(layout)),
        _ => config.push.push(aggregator(layout, name)),
    }
    config
}

/// Who commands a box.
pub(in crate::run) fn commands(layout: &Layout<'_>, name: &str) -> Option<ControllerSection> {
    layout.endpoint().map(|endpoint| {
        let tls = layout.tls(&node_identity(layout.site.host(name))).as_ref().map(tls);
        ControllerSection { endpoint, name: None, tls }
    })
}

fn text(path: &Path) -> FilePath {
    path.to_string_lossy().into_owned()
}

fn exponent(layout: &Layout<'_>) -> i8 {
    match layout.scenario.job.scale_exponent {
        ScaleExponent::Fixed(exponent) => exponent,
        ScaleExponent::Auto => unreachable!("a push has an exponent for the job"),
    }
}

fn server(layout: &Layout<'_>) -> ServerSection {
    let (job, push) = (&layout.scenario.job, layout.push());
    let mut section = ServerSection {
        elements: layout.elements(),
        exponent: exponent(layout),
        integrity: layout.integrity(),
        momentum: job.momentum,
        initial_model: Some(text(&initial_path(layout.directory))),
        dump_model: Some(text(&model_path(layout.directory, SERVER))),
        boxes: boxes(layout).map(|name| layout.box_addr(&name)).collect(),
        tau_max: Some(push.tau_max(job).into()),
        lateness_ms: push.lateness_ms.into(),
        state_dir: push.durable.then(|| text(&layout.directory.join("server.state"))),
        replica: push.has_replica().then_some(push.aggregators),
        div_max: push.div_max,
        ack: push.ack,
        ..ServerSection::new(layout.site.job, layout.worker_addrs(), dimension(&job.hidden))
    };
    // Fair sharing is what a server without a plan does: it calls all senders in turn, and commits
    // what is there.
    if push.conduct() == ConductMode::Fair {
        section.conduct = ConductMode::Fair;
        section.commit = CommitMode::Arrival;
    }
    section
}

fn replica(layout: &Layout<'_>) -> ReplicaSection {
    let (job, push) = (&layout.scenario.job, layout.push());
    let (server, workers) = (layout.box_addr(SERVER), layout.worker_addrs());
    ReplicaSection {
        elements: layout.elements(),
        exponent: exponent(layout),
        integrity: layout.integrity(),
        momentum: job.momentum,
        initial_model: Some(text(&initial_path(layout.directory))),
        dump_model: Some(text(&model_path(layout.directory, REPLICA))),
        boxes: aggregators(layout).iter().map(|name| layout.box_addr(name)).collect(),
        // It may come in the server's place.
        tau_max: Some(push.tau_max(job).into()),
        lateness_ms: push.lateness_ms.into(),
        ..ReplicaSection::new(
            layout.site.job,
            push.aggregators,
            server,
            workers,
            dimension(&job.hidden),
        )
    }
}

fn aggregator(layout: &Layout<'_>, name: &str) -> PushSection {
    let index = aggregators(layout).iter().position(|other| other == name).unwrap_or(0);
    let elements = layout.elements();
    let chunks = dimension(&layout.scenario.job.hidden).div_ceil(elements.into());
    let group_bytes = chunks as u64 * (u64::from(elements) * 4 + 64);
    let chunks = u32::try_from(chunks).expect("the planner bounds a model");
    let has_copies = layout.push().replication == Replication::Network;
    let job = layout.site.job;
    PushSection {
        name: Some(layout.job_name().to_owned()),
        box_index: u8::try_from(index).expect("few boxes"),
        replica: has_copies.then(|| layout.box_addr(REPLICA)),
        elements,
        integrity: layout.integrity(),
        quota_bytes: group_bytes * GROUPS_GATHERED,
        // A version of the model is pulled by all workers at about the same time.
        pull_cache_bytes: group_bytes * 2,
        ..PushSection::new(job, layout.worker_addrs(), layout.box_addr(SERVER), chunks)
    }
}

/// The configuration of a controller of one job.
pub(in crate::run) fn controller(layout: &Layout<'_>) -> ControllerConfig {
    let workers = (0..layout.scenario.job.workers).map(|rank| format!("w{rank}"));
    let names = workers.chain(boxes(layout)).chain([SERVER.to_owned()]).collect();
    let push = layout.push();
    let is_told = push.link_rates == LinkRates::Configured;
    ControllerConfig {
        tuning: Tuning { void_ms_min: push.lateness_ms.into(), ..Tuning::default() },
        jobs: vec![job(layout)],
        ..controller_of(layout, &layout.scenario.lab, names, is_told)
    }
}

/// The configuration of a controller without jobs: of these hosts, and whether it is told the links
/// that a lab gives them.
pub(in crate::run) fn controller_of(
    layout: &Layout<'_>,
    lab: &LabSection,
    names: Vec<String>,
    is_told: bool,
) -> ControllerConfig {
    let is_told = is_told && layout.topology.is_some();
    let bytes_per_sec =
        |rate: Option<Rate>| rate.filter(|_| is_told).map(|rate| rate.bits_per_sec() / 8);
    let shared: &[_] = if layout.topology.is_some() { &lab.racks } else { &[] };
    let hosts = names.into_iter().map(|name| {
        let [up, down] = lab.rates(&name).map(bytes_per_sec);
        let rack = shared.iter().position(|rack| rack.hosts.contains(&name)).map(rack_name);
        HostConfig { name, up_bytes_per_sec: up, down_bytes_per_sec: down, rack, slots: None }
    });
    let racks = shared.iter().enumerate().map(|(index, rack)| {
        let [up, down] = rack.rates().map(bytes_per_sec);
        RackConfig { name: rack_name(index), up_bytes_per_sec: up, down_bytes_per_sec: down }
    });
    ControllerConfig {
        tls: controller_tls(layout),
        stats_format: StatsFormat::Json,
        // What it believes of its links, second by second, in its log.
        stats_period_s: 1,
        state_file: Some(text(&layout.directory.join("controller.state"))),
        events: Some(text(&log_path(layout.directory, CONTROLLER))),
        racks: racks.collect(),
        hosts: hosts.collect(),
        ..ControllerConfig::new(layout.controller_addr())
    }
}

/// What a controller is told of a job.
pub(in crate::run) fn job(layout: &Layout<'_>) -> JobConfig {
    let (job, push) = (&layout.scenario.job, layout.push());
    let dimension = dimension(&job.hidden) as u64;
    let has_copies = matches!(push.replication, Replication::Network | Replication::Worker);
    let host = |name: &str| layout.site.host(name).to_owned();
    let workers: Vec<String> = (0..job.workers).map(|rank| host(&format!("w{rank}"))).collect();
    JobConfig {
        elements_per_chunk: Some(layout.elements()),
        aggregators: aggregators(layout),
        ack: push.ack,
        replica: has_copies.then(|| REPLICA.to_owned()),
        tau_max: Some(push.tau_max(job).into()),
        momentum: job.momentum.into(),
        div_max: push.div_max.filter(|_| has_copies),
        mode: push.mode,
        partial_count: (push.mode == Mode::Partial).then(|| push.updates_per_round(job)),
        policy: Some(push.policy.clone()),
        ..JobConfig::new(layout.job_name(), layout.site.job, dimension, workers, &host(SERVER))
    }
}

/// A controller's own certificate.
pub(in crate::run) fn controller_tls(layout: &Layout<'_>) -> Option<TlsSection> {
    layout.tls(&Identity::Controller).as_ref().map(tls)
}

fn tls(files: &TlsFiles) -> TlsSection {
    let TlsFiles { ca, cert, key } = files;
    TlsSection { ca: text(ca), cert: text(cert), key: text(key) }
}

/// Names of the aggregators, by box index.
fn aggregators(layout: &Layout<'_>) -> Vec<String> {
    (0..layout.push().aggregators).map(|index| format!("a{index}")).collect()
}

/// The switch of a rack of the lab.
fn rack_name(index: usize) -> String {
    format!("r{index}")
}

/// Boxes besides the server, by index.
fn boxes(layout: &Layout<'_>) -> impl Iterator<Item = String> {
    let replica = layout.push().has_replica().then(|| REPLICA.to_owned());
    aggregators(layout).into_iter().chain(replica)
}

/// Parameters of the perceptron.
fn dimension(hidden: &[usize]) -> usize {
    let mut sizes = vec![PIXELS];
    sizes.extend(hidden);
    sizes.push(CLASSES);
    sizes.windows(2).map(|pair| (pair[0] + 1) * pair[1]).sum()
}

/// Groups that an aggregator may gather at a time.
const GROUPS_GATHERED: u64 = 16;
