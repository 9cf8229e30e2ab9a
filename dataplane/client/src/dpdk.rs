//! Sessions over DPDK devices: a NIC, `net_af_packet` on the worker's interface, `net_memif` to a
//! box of the same host. EAL starts once per process: the program gives its own, or [`start`] does.
//!
//! Does I/O: opens devices. The worker is a host of its own on the device, for no kernel has its
//! address there: it finds its next hop and answers for itself ([`crate::hosted`]).
//!
//! ```no_run
//! use weft_client::dpdk::{self, EalArgs};
//! use weft_client::{Config, Session};
//!
//! # fn main() -> Result<(), weft_client::Error> {
//! let eal = dpdk::start(&EalArgs::new().memory_mib(128).vdev("net_af_packet0,iface=eth1"))?;
//! let [local, aggregator] = ["10.0.0.1:22500", "10.0.0.100:22341"].map(|it| it.parse().unwrap());
//! let config = Config::new(local, aggregator);
//! let mut session = Session::connect_dpdk(&config, &eal, "net_af_packet0")?;
//! let mut gradient = vec![0.5_f32; 100_000];
//! session.allreduce(&mut gradient)?;
//! session.close()?; // before `eal` ends
//! # Ok(())
//! # }
//! ```

use std::thread;
use std::time::{Duration, Instant};

use weft_dpdk::preflight;
pub use weft_dpdk::{DpdkPort, DpdkQueue, Eal, EalArgs, EalHandle, Memory, PortConfig, PortError};
use weft_io::nic::interface_with;
use weft_io::{Burst, Port, forward_port};
use weft_wire::Nanos;

use crate::config::Config;
use crate::error::Error;
use crate::hosted::{HostConfig, HostedPort};
use crate::session::Session;

/// A worker's port on a DPDK device.
pub type DpdkWorkerPort = HostedPort<LinkedQueue>;

/// A device's queue whose link is looked at while nothing comes, so that a session that ends can
/// say that there is none.
#[derive(Debug)]
pub struct LinkedQueue {
    queue: DpdkQueue,
    is_up: bool,
    looked_at: Option<Nanos>,
}

impl LinkedQueue {
    fn new(queue: DpdkQueue) -> Self {
        Self { queue, is_up: false, looked_at: None }
    }
}

impl Port for LinkedQueue {
    type Frame = <DpdkQueue as Port>::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<Self::Frame>) -> usize {
        let received = self.queue.rx_burst(now, rx);
        if received > 0 {
            (self.is_up, self.looked_at) = (true, Some(now));
        } else if self.looked_at.is_none_or(|at| now.since(at) >= LOOK_AGAIN) {
            (self.is_up, self.looked_at) = (self.queue.is_link_up(), Some(now));
        }
        received
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<Self::Frame>) -> usize {
        self.queue.tx_burst(now, tx)
    }

    fn complaint(&self) -> Option<String> {
        let name = self.queue.info().name;
        (!self.is_up).then(|| format!("{name} has no link: does its peer run, is its cable in?"))
    }

    forward_port!(queue: alloc, copy, recycles, merges, free, info, stats, carried);
    forward_port!(queue: is_open, wait, waker);
}

/// Starts EAL in this process, once what it would not say itself is found to be there.
///
/// # Errors
/// [`Error::DpdkLacks`] names an interface, a right or memory that is missing; [`Error::Eal`] what
/// EAL refused, a second start in a process among others.
pub fn start(args: &EalArgs) -> Result<Eal, Error> {
    if let Some(line) = preflight::lacks(&args.to_args(0)) {
        return Err(Error::DpdkLacks(line));
    }
    Eal::init(args).map_err(Error::Eal)
}

/// Opens `device` as the port of `config`'s worker. [`Session::over`] takes it, in port adapters
/// of the program's perhaps.
///
/// # Errors
/// [`Error::Dpdk`] names a device that EAL does not know, and those that it does;
/// [`Error::NoMemif`] when its peer does not come within `connect_timeout`;
/// [`Error::KernelAnswers`]; [`Error::Config`].
pub fn open(config: &Config, eal: &EalHandle, device: &str) -> Result<DpdkWorkerPort, Error> {
    let ip = config.local.ip();
    if ip.is_unspecified() {
        let problem = "must be the address that this worker has on the device";
        return Err(Error::Config { field: "local", problem });
    }
    if let Some(interface) = interface_with(ip).filter(|_| !ip.is_loopback()) {
        return Err(Error::KernelAnswers { ip, interface });
    }
    let defaults = PortConfig::named(device);
    // The device's rings hold frames, too.
    let frames = u32::try_from(config.frame_count).unwrap_or(u32::MAX);
    let ring_frames = u32::from(defaults.rxd) + u32::from(defaults.txd);
    let asked = PortConfig {
        mtu: config.mtu,
        mbuf_count: frames.saturating_add(ring_frames).max(defaults.mbuf_count),
        mbuf_data_room_bytes: config
            .mtu
            .saturating_add(FRAME_OVERHEAD)
            .max(defaults.mbuf_data_room_bytes),
        ..defaults
    };
    let queue = open_with_peer(config, eal, &asked, device)?;
    let next_hop = config.router.unwrap_or_else(|| config.aggregator.ip());
    HostedPort::new(
        LinkedQueue::new(queue),
        &HostConfig { ip, next_hop, mtu: config.mtu, answers: true },
    )
}

/// Opens a device. A memif calls its server once, when it starts, and is opened anew until it has a
/// link: the box may begin later.
fn open_with_peer(
    config: &Config,
    eal: &EalHandle,
    asked: &PortConfig,
    device: &str,
) -> Result<DpdkQueue, Error> {
    let mut ports = eal.ports().into_iter();
    let is_memif = ports.any(|port| port.name == device && port.driver == "net_memif");
    let begun = Instant::now();
    while begun.elapsed() < config.connect_timeout || !is_memif {
        match DpdkPort::open(eal, asked).map(|mut queues| queues.remove(0)) {
            Ok(queue) if !is_memif || has_link(&queue) => return Ok(queue),
            Ok(_) => {}
            Err(PortError::Refused { .. }) if is_memif => {}
            Err(error) => return Err(Error::Dpdk(error)),
        }
        thread::sleep(OPEN_AGAIN);
    }
    Err(Error::NoMemif { device: device.to_owned() })
}

/// Whether a device has a link soon.
fn has_link(queue: &DpdkQueue) -> bool {
    let begun = Instant::now();
    while !queue.is_link_up() {
        if begun.elapsed() >= LINK_MAX {
            return false;
        }
        thread::sleep(LINK_LOOK);
    }
    true
}

impl Session<DpdkWorkerPort> {
    /// Joins the group over a DPDK device of an EAL that runs. The session is to end before EAL.
    ///
    /// # Errors
    /// Those of [`open`], then as [`Session::connect`].
    pub fn connect_dpdk(config: &Config, eal: &EalHandle, device: &str) -> Result<Self, Error> {
        Self::over(open(config, eal, device)?, config)
    }
}

/// Ethernet header and DPDK's headroom.
const FRAME_OVERHEAD: u16 = 14 + 128;
/// Between two looks at the link of a device from which nothing comes.
const LOOK_AGAIN: Nanos = Nanos(20_000_000);
/// Between two attempts to open a memif.
const OPEN_AGAIN: Duration = Duration::from_millis(50);
/// How long two ends of a memif take to agree, many times over.
const LINK_MAX: Duration = Duration::from_millis(500);
/// Between two looks whether they have.
const LINK_LOOK: Duration = Duration::from_millis(5);
