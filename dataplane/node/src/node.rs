//! A node's life: open the port, start a lane per shard, wait for the stop flag, add up.
//!
//! Lane 0 runs on the calling thread, each further lane on its own. Whatever can fail fails before
//! the ready line; afterwards a node ends only when it is told to or its port closes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, mpsc};
use std::time::{Instant, SystemTime};

use crossbeam_queue::ArrayQueue;
use weft_config::StatsFormat;
use weft_config::node::Io;
use weft_engine::role::replica::Replica;
use weft_engine::role::server::Server;
use weft_engine::table::Table;
use weft_io::af_packet::{AfPacketConfig, AfPacketPort, Steering};
use weft_io::nic::interface_with;
use weft_io::pool::Pool;
use weft_io::udp::{UdpConfig, UdpPort};
use weft_io::{Port, PortInfo};
use weft_kernel::Kernels;
use weft_lane::{AggregatorLane, Keyed, LanePort, RelayPort, RoleLane, Settings, buffers};
use weft_wire::frame::{ETHERNET_LEN, Endpoint};
use weft_wire::{JobId, Nanos};

use crate::control::NodeControl;
use crate::durable::{JournalLink, Stored};
use crate::environment;
use crate::error::NodeError;
use crate::host::Host;
use crate::lane::{self, Shared};
use crate::model;
use crate::record::{self, Beginning, Notes};
use crate::reporter::{self, MetricsListener};
use crate::stats::{LaneSnapshot, Report};

/// What a run is given besides the configuration.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// EAL arguments that replace the generated ones.
    pub eal_args: Option<Vec<String>>,
    /// Set to end the node.
    pub stop: Arc<AtomicBool>,
    /// Where commands come from and events go to; without it the node serves what its file says.
    pub control: Option<Arc<NodeControl>>,
    /// How often the node has begun anew in this process, because its switch was lost.
    pub lives: u64,
}

/// Runs a node until `options.stop` is set; returns its final report. Its servers go on from what
/// is `stored`.
///
/// # Errors
/// [`NodeError`], before the node has served a frame, or because its state cannot be kept any more.
pub fn run(settings: &Settings, options: Options, stored: Stored) -> Result<Report, NodeError> {
    let start = Instant::now();
    let config = &settings.config;
    if options.eal_args.is_some() && config.port.io != Io::Dpdk {
        return Err(NodeError::UnusedEalArgs);
    }
    let metrics = config.node.metrics.map(MetricsListener::bind).transpose()?;
    let seed = match config.node.seed {
        // A switch that comes again must not find its former box.
        Some(seed) => seed ^ options.lives << 32,
        None => environment::random_seed().map_err(NodeError::Seed)?,
    };
    let stats_ms = Some(config.node.stats_period_s.saturating_mul(1000)).filter(|ms| *ms > 0);
    let metrics_ms = metrics.as_ref().map(|_| config.node.metrics_period_ms.max(10));
    // The reporter warns of frames that an interface refuses.
    let watch_ms = matches!(config.port.io, Io::AfPacket | Io::Dpdk).then_some(WATCH_MS);
    let period_ms = stats_ms.into_iter().chain(metrics_ms).chain(watch_ms).min();
    let shards = usize::from(config.lcores.shards);
    let shared = Shared {
        stop: options.stop,
        is_over: AtomicBool::new(false),
        start,
        idle: config.idle.on(config.port.is_socket()),
        shm: OnceLock::new(),
        control: options.control,
        snapshot_period_ns: period_ms.map(|ms| ms.saturating_mul(1_000_000)),
        snapshots: (0..shards).map(|_| ArrayQueue::new(1)).collect(),
    };
    let node = Node { settings, shared: &shared, seed, stored: Mutex::new(stored) };
    let mut lost = None;
    let (lanes, is_over) = std::thread::scope(|scope| {
        if period_ms.is_some() {
            let report = || reporter::run(config, &shared, metrics);
            let started = std::thread::Builder::new().spawn_scoped(scope, report);
            started.map_err(NodeError::Reporter)?;
        }
        let lanes = match config.port.io {
            Io::Udp => node.run_udp(),
            Io::AfPacket => node.run_af_packet(),
            Io::Dpdk => node.run_dpdk(options.eal_args),
            Io::Switch => {
                let section = config.switch.as_ref().expect("it was found with its port");
                node.run_switch(section, options.lives > 0).map(|(lanes, reason)| {
                    lost = reason;
                    lanes
                })
            }
        };
        let is_over = lost.is_none() || shared.stop.load(Ordering::Relaxed);
        shared.is_over.store(true, Ordering::Relaxed);
        if is_over {
            shared.stop.store(true, Ordering::Relaxed);
        }
        lanes.map(|lanes| (lanes, is_over))
    })?;
    let report = Report::new(config, start.elapsed().as_secs_f64(), &lanes);
    match lost.filter(|_| !is_over) {
        Some(reason) => Err(NodeError::SwitchLost { reason, report: Box::new(report) }),
        None => Ok(report),
    }
}

/// How often an interface's counters are looked at.
const WATCH_MS: u64 = 1000;

/// What opening a port and starting lanes needs.
pub(crate) struct Node<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) shared: &'a Shared,
    pub(crate) seed: u64,
    /// Until the one lane of a server takes it.
    pub(crate) stored: Mutex<Stored>,
}

impl Node<'_> {
    fn run_udp(&self) -> Result<Vec<LaneSnapshot>, NodeError> {
        let section = &self.settings.config.port;
        let interface = interface_with(section.ip.ip);
        if let Some(line) = interface.and_then(|name| environment::mtu_problem(&name, section.mtu))
        {
            return Err(NodeError::Environment(line));
        }
        let asked = buffers::asked(&self.settings.table, section.socket_buffer_bytes);
        let udp = UdpConfig {
            socket_count: self.settings.udp_sockets,
            mtu: usize::from(section.mtu),
            frame_count: section.frame_count,
            socket_buffer_bytes: asked,
            offload: section.offload,
            ipv4_checksum: self.settings.has_checksums(),
            ..UdpConfig::new(self.settings.table.local.addr)
        };
        let warn = |port: &UdpPort| {
            if let Some(line) = buffers::shortfall(port.granted(), asked) {
                weft_process::say!("weft-node: warning: {line}");
            }
        };
        if self.settings.has_udp_lanes() {
            let ports = UdpPort::open_lanes(&udp)?;
            warn(&ports[0]);
            let mut ports = self.share_each(ports)?;
            let first = self.wrap(ports.remove(0))?;
            let (front, sides) = self.settings.steer_receiving(first, ports, true);
            return self.run_lanes(front, sides, Host::silent(), |cpu| cpu.map_or(Ok(()), pin));
        }
        let port = UdpPort::open(&udp)?;
        warn(&port);
        let relay = self.settings.relay();
        let sender = |_| {
            let pool = Pool::new(section.frame_count, usize::from(section.mtu) + ETHERNET_LEN);
            RelayPort::new(pool, Arc::clone(&relay), port.info())
        };
        let senders = (1..self.settings.table.shards).map(sender).collect();
        let (front, sides) =
            self.settings.steer_relayed(self.wrap(self.share(port)?)?, senders, relay);
        self.run_lanes(front, sides, Host::silent(), |cpu| cpu.map_or(Ok(()), pin))
    }

    fn run_af_packet(&self) -> Result<Vec<LaneSnapshot>, NodeError> {
        let config = &self.settings.config;
        let section = &config.port;
        let interface = section.device.as_deref().unwrap_or_default();
        if let Some(line) = environment::kernel_answers(section.ip.ip) {
            return Err(NodeError::Environment(line));
        }
        if let Some(line) = environment::mtu_problem(interface, section.mtu) {
            return Err(NodeError::Environment(line));
        }
        let _held = environment::hold_address(interface, self.settings.table.local.addr)
            .map_err(NodeError::Environment)?;
        let shards = config.lcores.shards;
        // A number that no other node of this network namespace uses, most likely.
        let group = u16::try_from(std::process::id() & 0xffff).expect("it was cut to fit");
        // A ring holds what it has; a socket counts the room that packets take besides.
        let ring_bytes = match section.offload {
            true => buffers::asked(&self.settings.table, section.ring_bytes),
            false => section.ring_bytes,
        };
        let open = |_| {
            let steering = Steering { group, shard_count: shards, first_port: 0 };
            AfPacketPort::open(&AfPacketConfig {
                mtu: Some(usize::from(section.mtu)),
                frame_count: section.frame_count,
                ring_bytes,
                qdisc_bypass: section.qdisc_bypass,
                // The interface filters for its own address.
                promiscuous: section.mac.is_some(),
                steering: (shards > 1).then_some(steering),
                offload: section.offload,
                ipv4_checksum: !section.offload || self.settings.has_checksums(),
                ..AfPacketConfig::new(interface)
            })
        };
        let ports = (0..shards).map(open).collect::<Result<Vec<_>, _>>()?;
        let mac = section.mac.unwrap_or_else(|| ports[0].info().mac);
        let host = Host::answering(section.ip, mac, section.mtu, self.seed);
        let mut ports = self.share_each(ports)?;
        let first = self.wrap(ports.remove(0))?;
        let (front, sides) = self.settings.steer_receiving(first, ports, true);
        self.run_lanes(front, sides, host, |cpu| cpu.map_or(Ok(()), pin))
    }

    #[cfg(not(feature = "dpdk"))]
    fn run_dpdk(&self, _eal_args: Option<Vec<String>>) -> Result<Vec<LaneSnapshot>, NodeError> {
        Err(NodeError::NoDpdk)
    }

    /// Runs every lane to its end, and records what it meets if that is asked for. `prepare` is
    /// called on each lane's thread with its CPU; what it returns is dropped there after the lane's
    /// port.
    pub(crate) fn run_lanes<P, S, G>(
        &self,
        mut front: LanePort<P>,
        mut sides: Vec<LanePort<S>>,
        host: Host,
        prepare: impl Fn(Option<u32>) -> Result<G, NodeError> + Sync,
    ) -> Result<Vec<LaneSnapshot>, NodeError>
    where
        P: Port,
        S: Port<Frame: Send> + Send,
    {
        let recording = match &self.settings.config.record {
            None => None,
            Some(section) => {
                let stored = self.stored.lock().expect("no thread that held it has panicked");
                let beginning = Beginning {
                    settings: self.settings,
                    stored: &stored,
                    clock_origin: self.clock_origin(),
                    host_seed: host.is_answering().then_some(self.seed),
                    has_controller: self.shared.control.is_some(),
                };
                Some(record::start(section, &beginning, &mut front, &mut sides)?)
            }
        };
        let mut snapshots = self.run_each_lane(front, sides, host, prepare)?;
        if let Some(recording) = recording {
            snapshots[0].record = Some(recording.finish());
        }
        Ok(snapshots)
    }

    fn run_each_lane<P, S, G>(
        &self,
        front: LanePort<P>,
        sides: Vec<LanePort<S>>,
        host: Host,
        prepare: impl Fn(Option<u32>) -> Result<G, NodeError> + Sync,
    ) -> Result<Vec<LaneSnapshot>, NodeError>
    where
        P: Port,
        S: Port<Frame: Send> + Send,
    {
        let info = front.info();
        let table = self.settings.table_at(info.mac);
        if !(self.settings.servers.is_empty() && self.settings.replicas.is_empty()) {
            let cpu = self.settings.config.lcores.cpus.first().copied();
            let guard = prepare(cpu).map_err(|error| self.stop(error))?;
            let snapshot = self.run_model(front, &info, &table, host);
            drop(guard);
            return snapshot.map(|snapshot| vec![snapshot]);
        }
        if !self.settings.tables.is_empty() {
            let cpu = self.settings.config.lcores.cpus.first().copied();
            let guard = prepare(cpu).map_err(|error| self.stop(error))?;
            let snapshot = self.run_home(front, &info, &table, host);
            drop(guard);
            return Ok(vec![snapshot]);
        }
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
                    let mut lanes = self.lane(port, table, lane);
                    let _ = prepared.send(Ok(()));
                    let snapshot =
                        lane::run(&mut lanes, lane, Host::silent(), self.shared, &mut ());
                    drop(guard);
                    Some(snapshot)
                };
                let name = format!("weft-lane-{lane}");
                let thread = std::thread::Builder::new().name(name).spawn_scoped(scope, work);
                threads
                    .push(thread.map_err(|source| self.stop(NodeError::Thread { lane, source }))?);
            }
            let guard = prepare(cpu(0)).map_err(|error| self.stop(error))?;
            let mut lane = self.lane(front, &table, 0);
            for outcome in outcomes.iter().take(threads.len()) {
                outcome.map_err(|error| self.stop(error))?;
            }
            self.announce(&info, &table);
            let mut snapshots = vec![lane::run(&mut lane, 0, host, self.shared, &mut ())];
            drop(guard);
            self.shared.stop.store(true, Ordering::Relaxed);
            snapshots.extend(threads.into_iter().filter_map(|thread| thread.join().ok().flatten()));
            Ok(snapshots)
        })
    }

    /// Runs the one lane of a server or a replica, and leaves its models where they should be.
    fn run_model<P: Port>(
        &self,
        mut port: LanePort<P>,
        info: &PortInfo,
        table: &Table,
        host: Host,
    ) -> Result<LaneSnapshot, NodeError> {
        let (local, mtu): (Endpoint, u16) = (table.config().local, table.config().mtu);
        let kernels = Kernels::detect();
        let config = &self.settings.config;
        if self.settings.servers.is_empty() {
            let jobs = model::replica_jobs(self.settings)?;
            let seed = record::seed(self.seed, &mut port);
            let replica = Replica::of_seed(local, mtu, &jobs, seed, kernels);
            let replica = replica.expect("it was judged when the configuration was read");
            let mut lane = RoleLane::new(port, replica);
            self.announce(info, table);
            let snapshot = lane::run(&mut lane, 0, host, self.shared, &mut ());
            for section in &config.replica {
                let view = lane.engine().model(JobId(section.job));
                model::dump(section.dump_model.as_deref(), view)?;
            }
            return Ok(snapshot);
        }
        let jobs = model::server_jobs(self.settings)?;
        let seed = record::seed(self.seed, &mut port);
        let server = Server::of_seed(local, mtu, &jobs, seed, kernels);
        let mut server = server.expect("it was judged when the configuration was read");
        let stored = self.stored.lock().map(|mut stored| core::mem::take(&mut *stored));
        let stored = stored.expect("no thread that held it has panicked");
        for (job, state) in stored.states() {
            server.restore(job, state).expect("it was judged when the state was read");
        }
        let mut link = JournalLink::start(stored, Arc::clone(&self.shared.stop))?;
        let mut lane = RoleLane::new(port, server);
        self.announce(info, table);
        let snapshot = lane::run(&mut lane, 0, host, self.shared, &mut link);
        if let Some(link) = link {
            link.finish(lane.engine_mut())?;
            // What became durable last is told to whoever listens still.
            let control = self.shared.control.as_deref();
            lane::exchange(Nanos::MAX, lane.engine_mut(), control, &mut Notes::none());
        }
        for section in &config.server {
            let view = lane.engine().model(JobId(section.job));
            model::dump(section.dump_model.as_deref(), view)?;
        }
        Ok(snapshot)
    }

    /// Runs the one lane of an aggregator that is the home of tables of rows, too.
    fn run_home<P: Port>(
        &self,
        mut port: LanePort<P>,
        info: &PortInfo,
        table: &Table,
        host: Host,
    ) -> LaneSnapshot {
        let seed = record::seed(self.seed, &mut port);
        let homes = self.settings.homes(table, &seed);
        let engine = self.settings.aggregator(table, 0, seed, Kernels::detect());
        let mut lane = RoleLane::new(port, Keyed::new(engine, homes));
        self.announce(info, table);
        lane::run(&mut lane, 0, host, self.shared, &mut ())
    }

    /// The Unix time of the origin of the node's clock.
    pub(crate) fn clock_origin(&self) -> Nanos {
        #[expect(clippy::disallowed_methods, reason = "captures carry the time of day")]
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let origin = unix.saturating_sub(self.shared.start.elapsed()).as_nanos();
        Nanos(u64::try_from(origin).unwrap_or(0))
    }

    fn lane<P: Port>(
        &self,
        mut port: LanePort<P>,
        table: &Table,
        lane: usize,
    ) -> AggregatorLane<LanePort<P>> {
        let lane = u16::try_from(lane).expect("the table bounds the shards");
        let seed = record::seed(self.seed, &mut port);
        let engine = self.settings.aggregator(table, lane, seed, Kernels::detect());
        AggregatorLane::new(port, engine)
    }

    fn stop(&self, error: NodeError) -> NodeError {
        self.shared.stop.store(true, Ordering::Relaxed);
        error
    }

    pub(crate) fn announce(&self, info: &PortInfo, table: &Table) {
        let local = table.config().local;
        let shards = table.config().shards;
        let (name, driver, mtu) = (&info.name, &info.driver, info.mtu);
        let pid = std::process::id();
        match self.settings.config.node.stats_format {
            // Scripts wait for a line that begins so.
            StatsFormat::Text => weft_process::say::bare(format_args!(
                "weft-node ready: port={name} driver={driver} addr={} mac={} mtu={mtu} \
                 shards={shards} pid={pid}",
                local.addr, local.mac
            )),
            StatsFormat::Json => {
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
                weft_process::say!("{line}");
            }
        }
        weft_process::notify::ready();
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
