//! The node's configuration for a bench: a row for each job, no hugepages.

use std::net::{IpAddr, SocketAddr};

use weft_config::StatsFormat;
use weft_config::node::{
    BenchSection, DpdkSection, HostAddr, Io, JobSection, LcoresSection, LeaseName, NodeConfig,
    PortSection, RowSection,
};
use weft_wire::MacAddr;
use weft_wire::hello::Integrity;

use super::case::{Case, Frames, Lease};

/// What is special about one node of a bench.
#[derive(Clone, Debug)]
pub(super) struct NodeSpec {
    /// EAL's virtual device.
    pub(super) vdev: String,
    /// The lanes' CPUs.
    pub(super) cpus: Vec<u32>,
    /// `[bench]`, as far as the case does not say it; nothing for a node that serves.
    pub(super) bench: Option<BenchSection>,
}

/// The node's configuration.
pub(super) fn config(case: &Case, spec: &NodeSpec) -> NodeConfig {
    // Hosts of the bench by job and rank; the node is rank 100 of none.
    let host = |net: u8, rank: u8| match case.frames {
        Frames::Ipv6 => IpAddr::from([0xfd77, 0, 0, 0, 0, 0, net.into(), rank.into()]),
        _ => IpAddr::from([10, 77, net, rank]),
    };
    let prefix_len = if case.frames == Frames::Ipv6 { 64 } else { 16 };
    let row = |job: u8| {
        let members = (1..=case.workers).map(|rank| SocketAddr::new(host(job + 1, rank), 7000));
        RowSection {
            exponent: Some(0),
            integrity: if case.crc { Integrity::Crc32c } else { Integrity::None },
            elements: case.elements.into(),
            window: case.window,
            ..RowSection::new(job.into(), job.into(), members.map(Into::into).collect())
        }
    };
    let job = |job: u8| match JobSection::new(job.into()) {
        job if case.quota => {
            JobSection { rate_bytes_per_sec: Some(QUOTA), burst_bytes: QUOTA, ..job }
        }
        job => job,
    };
    let mut config = NodeConfig {
        dpdk: DpdkSection {
            vdev: vec![spec.vdev.clone()],
            memory_mib: 128,
            log_level: "error".to_owned(),
            ..DpdkSection::default()
        },
        lcores: LcoresSection {
            shards: case.lcores.into(),
            cpus: spec.cpus.clone(),
            ..LcoresSection::default()
        },
        bench: spec.bench.clone().map(|bench| BenchSection {
            lease: match case.lease {
                Lease::Whole => LeaseName::Whole,
                Lease::Windowed => LeaseName::Windowed,
            },
            order: case.order.steps(),
            vlan: case.frames == Frames::Vlan,
            ..bench
        }),
        job: (0..case.jobs).map(job).collect(),
        row: (0..case.jobs).map(row).collect(),
        ..NodeConfig::new(PortSection {
            mac: Some(MacAddr([2, 0x57, 0x45, 0, 0, 0x64])),
            ..PortSection::new(Io::Dpdk, HostAddr { ip: host(0, 100), prefix_len })
        })
    };
    config.node.stats_format = StatsFormat::Json;
    config.idle.breaths = Some(0);
    config
}

/// Bytes per second that no row reaches: what the account costs is measured, not what it refuses.
const QUOTA: u64 = 1 << 40;
