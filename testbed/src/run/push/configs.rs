//! The configuration files of a push run's boxes and of its controller. Pure.

use std::path::Path;

use weft_client::push::TlsFiles;
use weft_control::{AckMode, Mode};
use weft_rpc::identity::Identity;

use super::certs::node_identity;
use super::plan::{Layout, initial_path, log_path, model_path};
use crate::lab::tc::Rate;
use crate::run::plan::Io;
use crate::scenario::{CONTROLLER, LinkRates, REPLICA, Replication, SERVER, ScaleExponent};
use crate::workload::digits::{CLASSES, PIXELS};

/// A box's `node.toml`.
pub(super) fn node(layout: &Layout<'_>, name: &str) -> String {
    let mut table = toml::Table::new();
    table.insert(
        "node".into(),
        section(&[
            ("name", name.into()),
            ("stats_format", "json".into()),
            ("events", text(&log_path(layout.directory, name))),
        ]),
    );
    table.insert("port".into(), port(layout, name));
    if layout.io == Io::Dpdk {
        table.insert("dpdk".into(), dpdk(layout, name));
    }
    if layout.io == Io::Udp {
        // A socket wakes its lane at once, and a lane that polls takes the CPU of those it waits
        // for; commands do not wake it.
        table
            .insert("idle".into(), section(&[("breaths", 8.into()), ("pause_max_us", 200.into())]));
    }
    // In a chain only the server knows of the replica.
    let is_planned = name != REPLICA || layout.push.replication != Replication::Chain;
    if let Some(endpoint) = layout.endpoint().filter(|_| is_planned) {
        let mut fields = vec![("endpoint", endpoint.into())];
        fields.extend(layout.tls(&node_identity(name)).map(|files| ("tls", tls(&files))));
        table.insert("controller".into(), section(&fields));
    }
    let job = match name {
        SERVER => ("server", server(layout)),
        REPLICA => ("replica", replica(layout)),
        _ => ("push", aggregator(layout, name)),
    };
    table.insert(job.0.into(), toml::Value::Array(vec![job.1]));
    toml::to_string(&table).expect("a table of plain values")
}

fn port(layout: &Layout<'_>, name: &str) -> toml::Value {
    let addr = layout.box_addr(name);
    let mut fields: Vec<(&str, toml::Value)> = vec![
        ("io", layout.io.name().into()),
        ("ip", format!("{}/24", addr.ip()).into()),
        ("udp_port", i64::from(addr.port()).into()),
        ("mtu", i64::from(layout.scenario.lab.mtu).into()),
    ];
    match layout.io {
        Io::AfPacket => {
            fields.push(("interface", layout.interface(name).into()));
            fields.push(("qdisc_bypass", false.into()));
        }
        Io::Dpdk => fields.push(("device", "net_af_packet0".into())),
        Io::Udp => fields.push(("offload", true.into())),
        Io::Memory => {}
    }
    section(&fields)
}

fn dpdk(layout: &Layout<'_>, name: &str) -> toml::Value {
    let frame = (layout.scenario.lab.mtu + 14 + 66).next_multiple_of(1024);
    let block = frame.next_multiple_of(4096);
    let vdev = format!(
        "net_af_packet0,iface={},qdisc_bypass=0,framesz={frame},blocksz={block},framecnt=2048",
        layout.interface(name)
    );
    section(&[
        ("no_huge", true.into()),
        ("memory_mib", 256.into()),
        ("vdev", toml::Value::Array(vec![vdev.into()])),
    ])
}

/// The model, as server and replica must agree on it.
fn model(layout: &Layout<'_>, name: &str) -> Vec<(&'static str, toml::Value)> {
    let job = &layout.scenario.job;
    let ScaleExponent::Fixed(exponent) = job.scale_exponent else {
        unreachable!("a push has an exponent for the job")
    };
    vec![
        ("job", 0.into()),
        ("dimension", as_i64(dimension(&job.hidden)).into()),
        ("elements", i64::from(layout.elements()).into()),
        ("exponent", i64::from(exponent).into()),
        ("momentum", f64::from(job.momentum).into()),
        ("initial_model", text(&initial_path(layout.directory))),
        ("dump_model", text(&model_path(layout.directory, name))),
    ]
}

fn text(path: &Path) -> toml::Value {
    path.to_string_lossy().into_owned().into()
}

/// The workers by rank.
fn workers(layout: &Layout<'_>) -> toml::Value {
    let address = |rank| layout.worker_addr(rank).to_string().into();
    toml::Value::Array((0..layout.scenario.job.workers).map(address).collect())
}

fn server(layout: &Layout<'_>) -> toml::Value {
    let job = &layout.scenario.job;
    let mut fields = model(layout, SERVER);
    let boxes = boxes(layout).map(|name| layout.box_addr(&name).to_string().into()).collect();
    fields.push(("workers", workers(layout)));
    fields.push(("boxes", toml::Value::Array(boxes)));
    fields.push(("tau_max", i64::from(layout.push.tau_max(job)).into()));
    fields.push(("lateness_ms", i64::from(layout.push.lateness_ms).into()));
    // Fair sharing is what a server without a plan does: it calls all senders in turn, and commits
    // what is there.
    if layout.push.policy == "fair" {
        fields.push(("conduct", "fair".into()));
        fields.push(("commit", "arrival".into()));
    }
    if layout.push.durable {
        fields.push(("state_dir", text(&layout.directory.join("server.state"))));
    }
    if layout.push.has_replica() {
        fields.push(("replica", i64::from(layout.push.aggregators).into()));
    }
    if let Some(div_max) = layout.push.div_max {
        fields.push(("div_max", div_max.into()));
    }
    if layout.push.ack == AckMode::Replica {
        fields.push(("ack", layout.push.ack.to_string().into()));
    }
    section(&fields)
}

fn replica(layout: &Layout<'_>) -> toml::Value {
    let mut fields = model(layout, REPLICA);
    let names = layout.aggregators();
    let boxes = names.iter().map(|name| layout.box_addr(name).to_string().into()).collect();
    fields.push(("server", layout.box_addr(SERVER).to_string().into()));
    fields.push(("box_index", i64::from(layout.push.aggregators).into()));
    fields.push(("workers", workers(layout)));
    fields.push(("boxes", toml::Value::Array(boxes)));
    // It may come in the server's place.
    fields.push(("tau_max", i64::from(layout.push.tau_max(&layout.scenario.job)).into()));
    fields.push(("lateness_ms", i64::from(layout.push.lateness_ms).into()));
    section(&fields)
}

fn aggregator(layout: &Layout<'_>, name: &str) -> toml::Value {
    let job = &layout.scenario.job;
    let index = layout.aggregators().iter().position(|other| other == name).unwrap_or(0);
    let elements = usize::from(layout.elements());
    let chunks = dimension(&job.hidden).div_ceil(elements);
    let mut fields: Vec<(&str, toml::Value)> = vec![
        ("job", 0.into()),
        ("name", "train".into()),
        ("box_index", as_i64(index).into()),
        ("server", layout.box_addr(SERVER).to_string().into()),
        ("workers", workers(layout)),
        ("chunks", as_i64(chunks).into()),
        ("elements", as_i64(elements).into()),
        ("quota_bytes", as_i64(chunks * (elements * 4 + 64) * GROUPS_GATHERED).into()),
        // A version of the model is pulled by all workers at about the same time.
        ("pull_cache_bytes", as_i64(chunks * (elements * 4 + 64) * 2).into()),
    ];
    if layout.push.replication == Replication::Network {
        fields.push(("replica", layout.box_addr(REPLICA).to_string().into()));
    }
    section(&fields)
}

/// The controller's configuration.
pub(super) fn controller(layout: &Layout<'_>) -> String {
    let job = &layout.scenario.job;
    let push = layout.push;
    let workers: Vec<String> = (0..job.workers).map(|rank| format!("w{rank}")).collect();
    let hosts = workers.iter().cloned().chain(boxes(layout)).chain([SERVER.to_owned()]);
    let lab = &layout.scenario.lab;
    let is_told = layout.topology.is_some() && push.link_rates == LinkRates::Configured;
    let rated = |name: &str, rates: [Option<Rate>; 2], rack: Option<String>| {
        let mut fields: Vec<(&str, toml::Value)> = vec![("name", name.into())];
        for (key, rate) in ["up_bytes_per_sec", "down_bytes_per_sec"].into_iter().zip(rates) {
            if let Some(rate) = rate.filter(|_| is_told) {
                fields.push((key, as_i64(rate.bits_per_sec() / 8).into()));
            }
        }
        fields.extend(rack.map(|rack| ("rack", rack.into())));
        section(&fields)
    };
    let rack_of = |host: &String| {
        let rack = lab.racks.iter().position(|rack| rack.hosts.contains(host));
        rack.filter(|_| layout.topology.is_some()).map(rack_name)
    };
    let hosts: Vec<toml::Value> =
        hosts.map(|host| rated(&host, lab.rates(&host), rack_of(&host))).collect();
    let racks = lab.racks.iter().enumerate().filter(|_| layout.topology.is_some());
    let racks: Vec<toml::Value> =
        racks.map(|(index, rack)| rated(&rack_name(index), rack.rates(), None)).collect();
    let mut fields: Vec<(&str, toml::Value)> = vec![
        ("name", "train".into()),
        ("index", 0.into()),
        ("dimension", as_i64(dimension(&job.hidden)).into()),
        ("elements_per_chunk", i64::from(layout.elements()).into()),
        ("workers", strings(&workers)),
        ("server", SERVER.into()),
        ("aggregators", strings(&layout.aggregators())),
        ("tau_max", i64::from(push.tau_max(job)).into()),
        ("momentum", f64::from(job.momentum).into()),
        ("policy", push.policy.as_str().into()),
        ("mode", push.mode.to_string().into()),
    ];
    if push.mode == Mode::Partial {
        fields.push(("partial_count", i64::from(push.updates_per_round(job)).into()));
    }
    let has_copies = matches!(push.replication, Replication::Network | Replication::Worker);
    if has_copies {
        fields.push(("replica", REPLICA.into()));
    }
    if let Some(div_max) = push.div_max.filter(|_| has_copies) {
        fields.push(("div_max", div_max.into()));
    }
    if push.ack == AckMode::Replica {
        fields.push(("ack", push.ack.to_string().into()));
    }
    let mut table = toml::Table::new();
    table.insert("listen".into(), layout.controller_addr().to_string().into());
    if let Some(files) = layout.tls(&Identity::Controller) {
        table.insert("tls".into(), tls(&files));
    }
    table.insert("stats_format".into(), "json".into());
    // What it believes of its links, second by second, in its log.
    table.insert("stats_period_s".into(), 1.into());
    table.insert("state_file".into(), text(&layout.directory.join("controller.state")));
    table.insert("events".into(), text(&log_path(layout.directory, CONTROLLER)));
    let lateness = ("void_ms_min", i64::from(push.lateness_ms).into());
    table.insert("tuning".into(), section(&[lateness]));
    if !racks.is_empty() {
        table.insert("rack".into(), toml::Value::Array(racks));
    }
    table.insert("host".into(), toml::Value::Array(hosts));
    table.insert("job".into(), toml::Value::Array(vec![section(&fields)]));
    toml::to_string(&table).expect("a table of plain values")
}

fn tls(files: &TlsFiles) -> toml::Value {
    let TlsFiles { ca, cert, key } = files;
    section(&[("ca", text(ca)), ("cert", text(cert)), ("key", text(key))])
}

/// The switch of a rack of the lab.
fn rack_name(index: usize) -> String {
    format!("r{index}")
}

/// Boxes besides the server, by index.
fn boxes(layout: &Layout<'_>) -> impl Iterator<Item = String> {
    let replica = layout.push.has_replica().then(|| REPLICA.to_owned());
    layout.aggregators().into_iter().chain(replica)
}

/// Parameters of the perceptron.
fn dimension(hidden: &[usize]) -> usize {
    let mut sizes = vec![PIXELS];
    sizes.extend(hidden);
    sizes.push(CLASSES);
    sizes.windows(2).map(|pair| (pair[0] + 1) * pair[1]).sum()
}

fn section(fields: &[(&str, toml::Value)]) -> toml::Value {
    let table: toml::Table =
        fields.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    toml::Value::Table(table)
}

fn strings(values: &[String]) -> toml::Value {
    toml::Value::Array(values.iter().map(|value| value.as_str().into()).collect())
}

fn as_i64(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

/// Groups that an aggregator may gather at a time.
const GROUPS_GATHERED: usize = 16;
