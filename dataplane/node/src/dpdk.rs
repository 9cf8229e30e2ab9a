//! A node on a DPDK device: EAL from the configuration or the command line, one queue per lane.

use std::path::PathBuf;
use std::sync::Arc;

use weft_config::node::{DpdkSection, NodeConfig, PortSection};
use weft_dpdk::{
    DpdkPort, EalArgs, Lcore, Mbuf, Memory, Mempool, PortConfig, PortError, PortId, preflight,
};
pub use weft_dpdk::{DpdkQueue, Eal};
use weft_io::shm::ShmHost;
use weft_io::{Port, PortInfo};
use weft_lane::{FramePool, Relay, RelayPort};

use crate::environment;
use crate::error::NodeError;
use crate::host::Host;
use crate::node::Node;
use crate::stats::LaneSnapshot;

impl Node<'_> {
    pub(crate) fn run_dpdk(
        &self,
        eal_args: Option<Vec<String>>,
    ) -> Result<Vec<LaneSnapshot>, NodeError> {
        let config = &self.settings.config;
        let (eal, port) = start(config, eal_args)?;
        let mut queues = open(&eal, &port, config.lcores.shards)?;
        let first = queues.remove(0);
        let info = first.info();
        let mac = config.port.mac.unwrap_or(info.mac);
        let host = Host::answering(config.port.ip, mac, config.port.mtu, self.seed);
        let handle = (*eal).clone();
        let lcore = |cpu| -> Result<Lcore, NodeError> { Ok(handle.register_lcore(cpu)?) };
        if queues.is_empty() {
            // One queue for all lanes: lane 0 sends for the others.
            let relay = self.settings.relay();
            let sender = |_| relay_port(&eal, &port, &relay, info.clone());
            let senders = (1..config.lcores.shards).map(sender).collect::<Result<_, _>>()?;
            let first = self.wrap(self.share(first)?)?;
            let (front, sides) = self.settings.steer_relayed(first, senders, relay);
            return self.run_lanes(front, sides, host, lcore);
        }
        let others_receive = queues[0].receives();
        let queues = queues.into_iter().map(ShmHost::closed).collect();
        let first = self.wrap(self.share(first)?)?;
        let (front, sides) = self.settings.steer_receiving(first, queues, others_receive);
        self.run_lanes(front, sides, host, lcore)
    }
}

/// Starts EAL and finds out how the configured device is to be opened.
///
/// # Errors
/// [`NodeError`]: what this machine lacks, or what EAL refused.
pub fn start(
    config: &NodeConfig,
    eal_args: Option<Vec<String>>,
) -> Result<(Eal, PortConfig), NodeError> {
    let args = match &eal_args {
        Some(raw) => raw.clone(),
        None => generated(&config.dpdk).to_args(0),
    };
    preflight(&args, &config.port)?;
    let args = eal_args.map_or_else(|| generated(&config.dpdk), EalArgs::from_raw);
    let eal = Eal::init(&args)?;
    let port = PortConfig {
        port: device(&eal, &config.port)?,
        mtu: config.port.mtu,
        rxd: config.dpdk.rx_descriptors,
        txd: config.dpdk.tx_descriptors,
        mbuf_count: config.dpdk.mbuf_count,
        mbuf_data_room_bytes: config.port.mtu.saturating_add(FRAME_OVERHEAD).max(ROOM_MIN),
        copy_break_bytes: config.dpdk.copy_break_bytes,
        // The device filters for its own address.
        promiscuous: config.dpdk.promiscuous || config.port.mac.is_some(),
        ..PortConfig::named("")
    };
    Ok((eal, port))
}

/// Opens a device for `lanes` lanes with as many queues as it has: a pair for each lane; else
/// one receive queue and a transmit queue for each; else one of each.
///
/// Who spreads frames over several receive queues is the device's affair: the lanes hand each other
/// what came in at the wrong one.
///
/// # Errors
/// [`NodeError::DpdkPort`].
pub fn open(eal: &Eal, port: &PortConfig, lanes: u16) -> Result<Vec<DpdkQueue>, NodeError> {
    let shapes = [(lanes, lanes), (1, lanes), (1, 1)];
    let attempt = |(rx_queues, tx_queues)| {
        DpdkPort::open(eal, &PortConfig { rx_queues, tx_queues, ..port.clone() })
    };
    let mut outcome = attempt(shapes[0]);
    for shape in &shapes[1..] {
        // Nothing was opened yet where the configuration was refused.
        if matches!(outcome, Err(PortError::Config { .. })) {
            outcome = attempt(*shape);
        }
    }
    Ok(outcome?)
}

/// A port of a lane that sends through lane 0, with a pool like the device's.
///
/// # Errors
/// [`NodeError`] when there is no memory for the pool.
pub fn relay_port(
    eal: &Eal,
    port: &PortConfig,
    relay: &Relay<Mbuf>,
    info: PortInfo,
) -> Result<RelayPort<MbufPool>, NodeError> {
    let pool = Mempool::new(eal, port.mbuf_count, port.mbuf_data_room_bytes, ANY_SOCKET)?;
    Ok(RelayPort::new(MbufPool(pool), Arc::clone(relay), info))
}

/// Buffers of a lane that sends through lane 0.
#[derive(Debug)]
pub struct MbufPool(Mempool);

impl FramePool for MbufPool {
    type Frame = Mbuf;

    fn alloc(&self) -> Option<Mbuf> {
        self.0.alloc()
    }
}

/// A net_pcap device.
#[derive(Clone, Debug)]
pub struct CaptureDevice {
    /// The capture that it receives.
    pub rx: PathBuf,
    /// The capture that it makes of what is sent.
    pub tx: PathBuf,
    /// Largest IP packet in bytes.
    pub mtu: usize,
    /// Longest frame in bytes.
    pub frame_len_max: usize,
    /// Longest frame that is copied whole, in bytes; a longer one shares its payload.
    pub copied_len_max: usize,
}

/// Starts EAL, without a NIC or hugepages, with a net_pcap device for each of these, and opens
/// them. A capture is whole once its device, and EAL, are gone.
///
/// # Errors
/// [`NodeError`]: what EAL refused; a second EAL in a process.
pub fn open_captures(devices: &[CaptureDevice]) -> Result<(Eal, Vec<DpdkQueue>), NodeError> {
    let args = devices.iter().enumerate().fold(
        EalArgs::new()
            .memory_mib(CAPTURE_MEMORY_MIB * u32::try_from(devices.len()).unwrap_or(u32::MAX))
            .file_prefix(format!("weft{}", std::process::id()))
            .log_level("error"),
        |args, (index, device)| {
            let (rx, tx) = (device.rx.display(), device.tx.display());
            args.vdev(format!("net_pcap{index},rx_pcap={rx},tx_pcap={tx}"))
        },
    );
    let eal = Eal::init(&args)?;
    let open = |(index, device): (usize, &CaptureDevice)| {
        let mtu = u16::try_from(device.mtu).unwrap_or(u16::MAX);
        let room = u16::try_from(device.frame_len_max).unwrap_or(u16::MAX).max(mtu);
        let config = PortConfig {
            mtu,
            mbuf_count: CAPTURE_MBUFS,
            mbuf_data_room_bytes: room.saturating_add(FRAME_OVERHEAD).max(ROOM_MIN),
            copy_break_bytes: device.copied_len_max,
            ..PortConfig::named(format!("net_pcap{index}"))
        };
        Ok(DpdkPort::open(&eal, &config)?.remove(0))
    };
    let queues = devices.iter().enumerate().map(open).collect::<Result<_, NodeError>>()?;
    Ok((eal, queues))
}

/// EAL arguments of a configuration.
fn generated(section: &DpdkSection) -> EalArgs {
    let memory = match (section.no_huge, section.in_memory) {
        (true, _) => Memory::NoHuge,
        (false, true) => Memory::InMemory,
        (false, false) => Memory::Hugetlbfs(None),
    };
    let prefix = section.file_prefix.clone();
    let mut args = EalArgs::new()
        .memory(memory)
        .memory_mib(section.memory_mib)
        .file_prefix(prefix.unwrap_or_else(|| format!("weft{}", std::process::id())))
        .pci(!section.no_pci.unwrap_or(section.allow.is_empty()))
        .log_level(&section.log_level);
    if let Some(lcores) = &section.lcores {
        args = args.lcores(lcores);
    }
    for vdev in &section.vdev {
        args = args.vdev(vdev);
    }
    if section.no_pci != Some(true) {
        for device in &section.allow {
            args = args.allow(device);
        }
    }
    section.extra.iter().fold(args, EalArgs::arg)
}

/// What EAL would report in many lines, or not at all.
fn preflight(args: &[String], port: &PortSection) -> Result<(), NodeError> {
    let refuse = |line: String| Err(NodeError::Environment(line));
    if let Some(line) = preflight::lacks(args) {
        return refuse(line);
    }
    for interface in preflight::packet_interfaces(args) {
        if let Some(line) = environment::mtu_problem(interface, port.mtu) {
            return refuse(line);
        }
    }
    if let Some(line) = environment::kernel_answers(port.ip.ip) {
        return refuse(line);
    }
    Ok(())
}

fn device(eal: &Eal, section: &PortSection) -> Result<PortId, NodeError> {
    if let Some(name) = &section.device {
        return Ok(PortId::Name(name.clone()));
    }
    let names: Vec<String> = eal.ports().into_iter().map(|port| port.name).collect();
    match names.as_slice() {
        [only] => Ok(PortId::Name(only.clone())),
        [] => Err(NodeError::Environment(
            "EAL knows no device: add one to dpdk.vdev, or bind a NIC and name it in dpdk.allow"
                .to_owned(),
        )),
        several => Err(NodeError::Environment(format!(
            "EAL knows several devices: set port.device to one of {}",
            several.join(", ")
        ))),
    }
}

/// What a breath can receive, hold in runs and send, several times over.
const CAPTURE_MBUFS: u32 = 8192;
/// Memory of a device's buffers, in MiB.
const CAPTURE_MEMORY_MIB: u32 = 96;
/// Lets DPDK choose the NUMA socket.
const ANY_SOCKET: i32 = -1;
/// Ethernet header and DPDK's headroom.
const FRAME_OVERHEAD: u16 = 14 + 128;
/// DPDK's usual buffer: 2048 bytes and the headroom.
const ROOM_MIN: u16 = 2048 + 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_arguments_follow_the_section() {
        let section = DpdkSection {
            vdev: vec!["net_null0".into()],
            file_prefix: Some("x".into()),
            extra: vec!["--no-telemetry".into()],
            ..DpdkSection::default()
        };
        let args = generated(&section).to_args(0);
        for expected in ["--no-huge", "--no-pci", "--file-prefix=x", "--vdev=net_null0"] {
            assert!(args.iter().any(|arg| arg == expected), "{expected} in {args:?}");
        }
        let nic = DpdkSection { allow: vec!["0000:01:00.0".into()], no_huge: false, ..section };
        let args = generated(&nic).to_args(0);
        assert!(args.iter().any(|arg| arg == "--in-memory"));
        assert!(!args.iter().any(|arg| arg == "--no-pci"));
    }
}
