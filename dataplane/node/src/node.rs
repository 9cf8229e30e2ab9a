//! A node's life: open the port, start a lane per shard, wait for the stop flag, add up.
//!
//! Lane 0 runs on the calling thread, each further lane on its own. Whatever can fail fails before
//! the ready line; afterwards a node ends only when it is told to or its port closes.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use crossbeam_queue::ArrayQueue;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::table::Table;
use weft_io::udp::{UdpConfig, UdpError, UdpPort};
use weft_io::{AggregatorLane, Port, PortInfo};
use weft_kernel::Kernels;
use weft_wire::hello::Integrity;

use crate::config::{ConfigError, Format, Io, Settings};
use crate::environment;
use crate::host::Host;
use crate::lane::{self, Shared};
use crate::reporter::{self, MetricsListener};
use crate::stats::{LaneSnapshot, Report};
use crate::steered::{FrontPort, LanePort, RelayPort, SidePort, steer};

/// What a run is given besides the configuration.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// EAL arguments that replace the generated ones.
    pub eal_args: Option<Vec<String>>,
    /// Set to end the node.
    pub stop: Arc<AtomicBool>,
}

/// Why a node did not run. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The configuration was refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A UDP port could not be opened.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// DPDK refused.
    #[cfg(feature = "dpdk")]
    #[error(transparent)]
    Eal(#[from] weft_dpdk::EalError),
    /// A DPDK device could not be opened.
    #[cfg(feature = "dpdk")]
    #[error(transparent)]
    DpdkPort(#[from] weft_dpdk::PortError),
    /// This binary has no DPDK.
    #[error(
        "port.io = \"dpdk\": this weft-node was built without DPDK; install libdpdk-dev and build \
         with `cargo build -p weft-node --features dpdk`, or set port.io = \"udp\""
    )]
    NoDpdk,
    /// EAL arguments without DPDK.
    #[error("EAL arguments came before `--`, but port.io is not \"dpdk\"; remove them")]
    UnusedEalArgs,
    /// Something about this machine.
    #[error("{0}")]
    Environment(String),
    /// Signal handlers.
    #[error("installing signal handlers")]
    Signals(#[source] std::io::Error),
    /// No randomness.
    #[error("reading a seed from /dev/urandom")]
    Seed(#[source] std::io::Error),
    /// A lane's CPU.
    #[error("pinning a lane to CPU {cpu}: {source}; see `taskset -p $$` for the CPUs allowed here")]
    Pin {
        /// The CPU.
        cpu: u32,
        /// The kernel's answer.
        source: nix::Error,
    },
    /// A lane's thread.
    #[error("starting the thread of lane {lane}")]
    Thread {
        /// The lane.
        lane: usize,
        /// The kernel's answer.
        #[source]
        source: std::io::Error,
    },
    /// A bench.
    #[error(transparent)]
    Bench(#[from] crate::bench::BenchError),
    /// The metrics listener.
    #[error("listening on {addr} for /metrics: {source}; choose another node.metrics")]
    Metrics {
        /// The address.
        addr: std::net::SocketAddr,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

impl NodeError {
    /// The process's exit status: 2 for usage and configuration, 3 for what this machine lacks.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Config(_) | Self::UnusedEalArgs => 2,
            Self::Bench(error) => error.exit_status(),
            _ => 3,
        }
    }
}

/// Runs a node until `options.stop` is set; returns its final report.
///
/// # Errors
/// [`NodeError`], before the node has served a frame.
pub fn run(settings: &Settings, options: Options) -> Result<Report, NodeError> {
    let start = Instant::now();
    let config = &settings.config;
    if options.eal_args.is_some() && config.port.io != Io::Dpdk {
        return Err(NodeError::UnusedEalArgs);
    }
    let metrics = config.node.metrics.map(MetricsListener::bind).transpose()?;
    let seed = match config.node.seed {
        Some(seed) => seed,
        None => environment::random_seed().map_err(NodeError::Seed)?,
    };
    let watched = config.node.stats_period_s > 0 || metrics.is_some();
    let period_s = config.node.stats_period_s.max(1);
    let shards = usize::from(config.lcores.shards);
    let shared = Shared {
        stop: options.stop,
        start,
        idle: config.idle,
        snapshot_period_ns: watched.then(|| period_s.saturating_mul(1_000_000_000)),
        snapshots: (0..shards).map(|_| ArrayQueue::new(1)).collect(),
    };
    let node = Node { settings, shared: &shared, seed };
    let lanes = std::thread::scope(|scope| {
        let reporter = watched.then(|| scope.spawn(|| reporter::run(config, &shared, metrics)));
        let lanes = match config.port.io {
            Io::Udp => node.run_udp(),
            Io::Dpdk => node.run_dpdk(options.eal_args),
        };
        shared.stop.store(true, Ordering::Relaxed);
        if let Some(reporter) = reporter {
            reporter.thread().unpark();
        }
        lanes
    })?;
    Ok(Report::new(config, start.elapsed().as_secs_f64(), &lanes))
}

/// What opening a port and starting lanes needs.
pub(crate) struct Node<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) shared: &'a Shared,
    pub(crate) seed: u64,
}

impl Node<'_> {
    fn run_udp(&self) -> Result<Vec<LaneSnapshot>, NodeError> {
        let section = &self.settings.config.port;
        let ip = section.ip.ip;
        check_udp_mtu(ip, section.mtu)?;
        let rows = &self.settings.table.rows;
        let inner = UdpPort::open(&UdpConfig {
            mtu: usize::from(section.mtu),
            frame_count: section.frame_count,
            socket_buffer_bytes: section.socket_buffer_bytes,
            ipv4_checksum: rows.iter().any(|row| row.integrity == Integrity::Checksum16),
            ..UdpConfig::new(self.settings.table.local.addr)
        })?;
        let lanes = &self.settings.config.lcores;
        let relay = Arc::new(ArrayQueue::new(lanes.ring_frames));
        let senders = (1..lanes.shards)
            .map(|_| RelayPort::new(section.frame_count, Arc::clone(&relay), inner.info()))
            .collect();
        let relay = (lanes.shards > 1).then_some(relay);
        let map = self.settings.lanes.clone();
        let (front, sides) = steer(inner, senders, map, lanes.ring_frames, relay);
        self.run_lanes(front, sides, Host::silent(), |cpu| cpu.map_or(Ok(()), pin))
    }

    #[cfg(not(feature = "dpdk"))]
    fn run_dpdk(&self, _eal_args: Option<Vec<String>>) -> Result<Vec<LaneSnapshot>, NodeError> {
        Err(NodeError::NoDpdk)
    }

    /// Runs every lane to its end. `prepare` is called on each lane's thread with its CPU; what it
    /// returns is dropped there after the lane's port.
    pub(crate) fn run_lanes<P, S, G>(
        &self,
        front: FrontPort<P>,
        sides: Vec<SidePort<S>>,
        host: Host,
        prepare: impl Fn(Option<u32>) -> Result<G, NodeError> + Sync,
    ) -> Result<Vec<LaneSnapshot>, NodeError>
    where
        P: Port,
        S: Port<Frame: Send> + Send,
    {
        let info = front.info();
        let table = self.table(&info);
        let cpu = |lane: usize| self.settings.config.lcores.cpus.get(lane).copied();
        let (prepared, outcomes) = mpsc::channel();
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (port, lane) in sides.into_iter().zip(1..) {
                let (prepared, prepare, table) = (prepared.clone(), &prepare, &table);
                let work = move || {
                    let guard = match prepare(cpu(lane)) {
                        Ok(guard) => guard,
                        Err(error) => {
                            let _ = prepared.send(Err(error));
                            return None;
                        }
                    };
                    let lanes = self.lane(port, table, lane);
                    let _ = prepared.send(Ok(()));
                    let snapshot = lane::run(lanes, lane, Host::silent(), self.shared);
                    drop(guard);
                    Some(snapshot)
                };
                let name = format!("weft-lane-{lane}");
                let thread = std::thread::Builder::new().name(name).spawn_scoped(scope, work);
                threads
                    .push(thread.map_err(|source| self.stop(NodeError::Thread { lane, source }))?);
            }
            let guard = prepare(cpu(0)).map_err(|error| self.stop(error))?;
            let lane = self.lane(front, &table, 0);
            for outcome in outcomes.iter().take(threads.len()) {
                outcome.map_err(|error| self.stop(error))?;
            }
            self.announce(&info, &table);
            let mut snapshots = vec![lane::run(lane, 0, host, self.shared)];
            drop(guard);
            self.shared.stop.store(true, Ordering::Relaxed);
            snapshots.extend(threads.into_iter().filter_map(|thread| thread.join().ok().flatten()));
            Ok(snapshots)
        })
    }

    /// The table with the address that the port turned out to have.
    fn table(&self, info: &PortInfo) -> Table {
        let mut config = self.settings.table.clone();
        config.local.mac = self.settings.config.port.mac.unwrap_or(info.mac);
        Table::new(config).expect("it was judged when the configuration was read")
    }

    fn lane<P: LanePort>(&self, port: P, table: &Table, lane: usize) -> AggregatorLane<P> {
        let number = u16::try_from(lane).expect("the table bounds the shards");
        let engine = Aggregator::new(table, number, self.seed, Kernels::detect());
        AggregatorLane::new(port, engine)
    }

    fn stop(&self, error: NodeError) -> NodeError {
        self.shared.stop.store(true, Ordering::Relaxed);
        error
    }

    fn announce(&self, info: &PortInfo, table: &Table) {
        let local = table.config().local;
        let shards = table.config().shards;
        let (name, driver, mtu) = (&info.name, &info.driver, info.mtu);
        let pid = std::process::id();
        match self.settings.config.node.stats_format {
            Format::Text => eprintln!(
                "weft-node ready: port={name} driver={driver} addr={} mac={} mtu={mtu} \
                 shards={shards} pid={pid}",
                local.addr, local.mac
            ),
            Format::Json => {
                let line = serde_json::json!({
                    "ready": true,
                    "node": self.settings.config.node.name,
                    "port": name,
                    "driver": driver,
                    "addr": local.addr.to_string(),
                    "mac": local.mac.to_string(),
                    "mtu": mtu,
                    "shards": shards,
                    "pid": pid,
                });
                eprintln!("{line}");
            }
        }
    }
}

/// A datagram that is longer than the interface's MTU would be lost without a word.
fn check_udp_mtu(ip: IpAddr, mtu: u16) -> Result<(), NodeError> {
    let Some(interface) = environment::interface_with(ip) else { return Ok(()) };
    match environment::interface_mtu(&interface) {
        Some(limit) if limit < usize::from(mtu) => Err(NodeError::Environment(format!(
            "port.mtu = {mtu}: interface {interface} has an MTU of {limit}; set port.mtu = {limit} \
             or less, or `ip link set {interface} mtu {mtu}`"
        ))),
        _ => Ok(()),
    }
}

/// Pins the calling thread.
fn pin(cpu: u32) -> Result<(), NodeError> {
    use nix::sched::{CpuSet, sched_setaffinity};
    let index = usize::try_from(cpu).expect("usize has at least 32 bits here");
    let mut set = CpuSet::new();
    set.set(index)
        .and_then(|()| sched_setaffinity(nix::unistd::Pid::from_raw(0), &set))
        .map_err(|source| NodeError::Pin { cpu, source })
}
