//! The port of a worker: which one, and opening it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use weft_io::af_packet::{AfPacketConfig, AfPacketPort, Listens};
use weft_io::nic::interface_with;
use weft_io::pool::PoolFrame;
use weft_io::route::router_to;
use weft_io::shm::{ShmConfig, ShmError, ShmLanes, ShmPort};
use weft_io::udp::{Hears, ReservedPorts, UdpConfig, UdpPort};
use weft_io::{Burst, Port, PortInfo, PortStats, Waker};
use weft_wire::Nanos;

use crate::config::{Config, Io};
use crate::error::Error;
use crate::hosted::{HostConfig, HostedPort};

/// The port of a session that was connected by address.
#[derive(Debug)]
pub struct WorkerPort {
    kind: Kind,
    /// Why it is not the faster one.
    fallback: Option<ShmError>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one a session; a frame's way has no pointer more")]
enum Kind {
    Udp(UdpPort),
    Shm(ShmLanes),
    AfPacket(HostedPort<AfPacketPort>),
}

impl WorkerPort {
    /// Opens the port that `config.io` names; by default memory shared with the aggregator if it
    /// is on this host and offers that, else UDP sockets.
    ///
    /// # Errors
    /// [`Error::Port`], [`Error::Shm`] and those of an interface, one line that says what to do.
    pub fn open(config: &Config) -> Result<Self, Error> {
        let open_shm = || ShmLanes::open(&shm_config(config));
        let open_udp = || UdpPort::open(&udp_config(config)).map_err(Error::Port).map(Kind::Udp);
        let (kind, fallback) = match config.io {
            Io::Shm => (Kind::Shm(await_shm(config).map_err(Error::Shm)?), None),
            Io::Udp => (open_udp()?, None),
            Io::AfPacket => (open_af_packet(config, false).map(Kind::AfPacket)?, None),
            Io::Auto if !ShmPort::is_offered(config.aggregator) => (open_udp()?, None),
            Io::Auto => match open_shm() {
                Ok(port) => (Kind::Shm(port), None),
                Err(error) => (open_udp()?, Some(error)),
            },
        };
        Ok(Self { kind, fallback })
    }

    /// Opens the port of a session that sends to several hosts, as pushes and keys do: UDP sockets
    /// or an interface. `config.aggregator` is one of them.
    ///
    /// # Errors
    /// As [`WorkerPort::open`]; [`Error::Config`] of memory, which one box shares.
    pub fn open_to_many(config: &Config) -> Result<Self, Error> {
        let kind = match config.io {
            Io::Auto | Io::Udp => {
                UdpPort::open(&udp_config(config)).map_err(Error::Port).map(Kind::Udp)?
            }
            Io::AfPacket => open_af_packet(config, true).map(Kind::AfPacket)?,
            Io::Shm => {
                let problem = "is Shm, which reaches one box, and this session has several";
                return Err(Error::Config { field: "io", problem });
            }
        };
        Ok(Self { kind, fallback: None })
    }

    /// Why the session does without the shared memory that the aggregator offers; `None` where it
    /// offers none, or where that is what the session uses.
    #[must_use]
    pub fn fallback(&self) -> Option<&ShmError> {
        self.fallback.as_ref()
    }

    /// Least time before a contribution is sent again, where the port loses nothing: what is late
    /// then waits for a CPU, and repeats would only take it from others.
    #[must_use]
    pub fn rto_min(&self) -> Option<Duration> {
        matches!(self.kind, Kind::Shm(_)).then_some(SHM_RTO_MIN)
    }

    /// Has received frames carry a UDP checksum from now on, or not, where the kernel took it off.
    pub fn set_ipv4_checksum(&mut self, has_one: bool) {
        match &mut self.kind {
            Kind::Udp(port) => port.set_ipv4_checksum(has_one),
            Kind::AfPacket(port) => port.port_mut().set_ipv4_checksum(has_one),
            Kind::Shm(_) => {}
        }
    }
}

/// Long enough for a worker that waits for its core, short enough for a box that has begun anew.
const SHM_RTO_MIN: Duration = Duration::from_millis(100);

/// Between two calls at a rendezvous where nobody is yet.
const CALL_AGAIN: Duration = Duration::from_millis(10);

fn udp_config(config: &Config) -> UdpConfig {
    let hears = |group| {
        let group = SocketAddr::new(group, config.aggregator.port());
        Hears { group, source: config.aggregator }
    };
    UdpConfig {
        hears: config.rows().filter_map(|row| config.group_of(row)).map(hears).collect(),
        socket_count: usize::from(config.lanes),
        mtu: usize::from(config.mtu),
        offload: config.offload,
        frame_count: config.frame_count,
        // What protects the group's chunks it says when it has formed.
        ipv4_checksum: true,
        ..UdpConfig::new(config.local)
    }
}

fn shm_config(config: &Config) -> ShmConfig {
    let own = ShmConfig::new(config.local, config.aggregator);
    ShmConfig {
        timeout: own.timeout.min(config.connect_timeout),
        lanes: usize::from(config.lanes),
        mtu: usize::from(config.mtu),
        frame_count: config.frame_count,
        rows: config.rows().collect(),
        ..own
    }
}

/// Opens the memory that a box of this host shares, once it does: it may start after the worker.
fn await_shm(config: &Config) -> Result<ShmLanes, ShmError> {
    let begun = Instant::now();
    loop {
        match ShmLanes::open(&shm_config(config)) {
            Err(ShmError::NoBox { .. }) if begun.elapsed() < config.connect_timeout => {
                thread::sleep(CALL_AGAIN);
            }
            outcome => return outcome,
        }
    }
}

/// Opens the interface, beside the kernel where that has the worker's address.
fn open_af_packet(config: &Config, many: bool) -> Result<HostedPort<AfPacketPort>, Error> {
    let ip = config.local.ip();
    let kernels = interface_with(ip);
    let interface = config.interface.clone().or_else(|| kernels.clone());
    let interface = interface.ok_or(Error::NoInterface { ip })?;
    if kernels.as_ref().is_some_and(|kernels| *kernels != interface) {
        let problem = "is not the one that has `local`'s address: leave it out";
        return Err(Error::Config { field: "interface", problem });
    }
    if ip.is_loopback() || ip.is_unspecified() {
        let problem = "must be an address on a link, with packet sockets: use Io::Udp";
        return Err(Error::Config { field: "local", problem });
    }
    let port = AfPacketPort::open(&AfPacketConfig {
        mtu: Some(usize::from(config.mtu)),
        frame_count: config.frame_count,
        // What `tc` says of the interface is said of a worker, too.
        qdisc_bypass: false,
        listens: Some(Listens { first_port: config.local.port(), count: config.lanes }),
        offload: config.offload,
        ..AfPacketConfig::new(&interface)
    });
    let port = port.map_err(Error::AfPacket)?;
    let limit = port.info().mtu;
    if limit < usize::from(config.mtu) {
        return Err(Error::LinkMtu { interface, mtu: config.mtu, limit });
    }
    let has_kernel = kernels.is_some();
    let (own_router, device) = (config.router, interface.clone());
    let next_hop = move |to: IpAddr| {
        let router = || router_to(to, &device).filter(|_| has_kernel);
        own_router.or_else(router).unwrap_or(to)
    };
    let host = HostConfig {
        ip,
        next_hop: next_hop(config.aggregator.ip()),
        mtu: config.mtu,
        answers: !has_kernel,
    };
    let port = match many {
        true => HostedPort::to_many(port, &host, Box::new(next_hop)),
        false => HostedPort::new(port, &host)?,
    };
    if !has_kernel {
        return Ok(port);
    }
    let reserved = ReservedPorts::open(config.local, config.lanes);
    let reserved = reserved.map_err(|(addr, source)| Error::Reserve { addr, source })?;
    Ok(port.beside(reserved))
}

impl fmt::Display for WorkerPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.kind, &self.fallback) {
            (Kind::Shm(_), _) => f.write_str("shm"),
            (Kind::AfPacket(port), _) => write!(f, "af_packet on {}", port.info().name),
            (Kind::Udp(_), None) => f.write_str("udp"),
            (Kind::Udp(_), Some(error)) => write!(f, "udp ({error})"),
        }
    }
}

/// Calls the same on whichever port it is.
macro_rules! each {
    ($self:expr, $port:ident => $call:expr) => {
        match $self {
            Kind::Udp($port) => $call,
            Kind::Shm($port) => $call,
            Kind::AfPacket($port) => $call,
        }
    };
}

impl Port for WorkerPort {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        each!(&mut self.kind, port => port.rx_burst(now, rx))
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        each!(&mut self.kind, port => port.tx_burst(now, tx))
    }

    fn alloc(&mut self) -> Option<PoolFrame> {
        each!(&mut self.kind, port => port.alloc())
    }

    fn merges(&self) -> bool {
        each!(&self.kind, port => port.merges())
    }

    fn join_runs(&mut self, is_on: bool) -> bool {
        each!(&mut self.kind, port => port.join_runs(is_on))
    }

    fn alloc_run(&mut self) -> Option<PoolFrame> {
        each!(&mut self.kind, port => port.alloc_run())
    }

    fn free(&mut self, frames: &mut Burst<PoolFrame>) {
        each!(&mut self.kind, port => port.free(frames));
    }

    fn multicast_base(&self) -> Option<IpAddr> {
        each!(&self.kind, port => port.multicast_base())
    }

    fn hears(&self, group: IpAddr) -> bool {
        each!(&self.kind, port => port.hears(group))
    }

    fn info(&self) -> PortInfo {
        each!(&self.kind, port => port.info())
    }

    fn stats(&self) -> PortStats {
        each!(&self.kind, port => port.stats())
    }

    fn carried(&self) -> (u64, u64) {
        each!(&self.kind, port => port.carried())
    }

    fn is_open(&self) -> bool {
        each!(&self.kind, port => port.is_open())
    }

    fn complaint(&self) -> Option<String> {
        each!(&self.kind, port => port.complaint())
    }

    fn wait(&mut self, timeout_ns: u64) {
        each!(&mut self.kind, port => port.wait(timeout_ns));
    }

    fn waker(&mut self) -> Option<Waker> {
        each!(&mut self.kind, port => port.waker())
    }
}
