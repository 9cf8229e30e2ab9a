//! What every agent of the controller, in a worker and in a box, does about its host's link: it
//! tells what the link has carried, sends a probe train when it is told to, and tells how those of
//! others arrived (`weft/v1/common.proto`: Telemetry, Probe, ProbePort, ProbeTrain). A box's agent
//! also keeps a [`NodeState`], of what it says when it attaches; a worker of an allreduce keeps
//! [`rounds::Rounds`].
//!
//! Decides nothing: which host probes whom, and what the counters mean, is `weft-plan`'s business.
//! Nothing here waits for a controller that does not listen; the queue of trains is bounded, and
//! one that finds it full is a sample less.
#![forbid(unsafe_code)]

pub mod rounds;
mod state;

pub use state::NodeState;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use weft_io::nic::{Carried, NicCounters, kernel_address};
use weft_io::probe::{ArrivedTrain, ProbeStation};
use weft_rpc::v1;

/// A host's link, as the process that reports it knows it.
#[derive(Clone, Debug)]
pub struct Link {
    /// Address of the data port.
    pub address: IpAddr,
    /// The interface that the port is on, where the kernel does not have the address.
    pub device: Option<String>,
    /// Largest IP packet.
    pub mtu: u16,
}

/// What the controller is to be told.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The counters are due.
    Telemetry(v1::Telemetry),
    /// A train has come.
    Train(v1::ProbeTrain),
}

/// The counters, and the socket for trains.
#[derive(Debug)]
pub struct LinkAgent {
    link: Link,
    origin: Instant,
    /// By the data port, and by trains.
    carried: Arc<Carried>,
    probed: Arc<Carried>,
    nic: Option<NicCounters>,
    period: Option<Duration>,
    due: Instant,
    station: Option<(u64, ProbeStation)>,
    tell: mpsc::Sender<v1::ProbeTrain>,
    arrived: mpsc::Receiver<v1::ProbeTrain>,
}

impl LinkAgent {
    /// Of a port that notes in `carried` what it carries. Nothing is due before
    /// [`LinkAgent::begin`].
    #[must_use]
    pub fn new(link: Link, carried: Arc<Carried>) -> Self {
        let origin = Instant::now();
        let nic = NicCounters::of_link(link.address, link.device.as_deref());
        let (tell, arrived) = mpsc::channel(TRAINS_MAX);
        Self {
            link,
            origin,
            carried,
            probed: Arc::default(),
            nic,
            period: None,
            due: origin,
            station: None,
            tell,
            arrived,
        }
    }

    /// A controller wants to hear the counters every `period_ns` (0: never), and probes with this
    /// nonce (0: it does not). What it is to be told first: where trains are received, unless
    /// this host's link has no address of the kernel's.
    pub fn begin(&mut self, period_ns: u64, nonce: u64) -> Option<v1::ProbePort> {
        let period = Duration::from_nanos(period_ns);
        self.period = (period_ns > 0).then(|| period.clamp(PERIOD_MIN, PERIOD_MAX));
        self.due = Instant::now();
        self.station.take_if(|(known, _)| *known != nonce);
        if self.station.is_none() && nonce != 0 {
            self.station = self.open(nonce).map(|station| (nonce, station));
        }
        let (_, station) = self.station.as_ref()?;
        Some(v1::ProbePort { address: station.local().to_string() })
    }

    /// Nobody wants to know any more.
    pub fn end(&mut self) {
        self.period = None;
    }

    fn open(&self, nonce: u64) -> Option<ProbeStation> {
        let Link { address, device, mtu } = &self.link;
        let local = kernel_address(*address, device.as_deref())?;
        let nic = NicCounters::of_link(*address, device.as_deref());
        let tell = self.tell.clone();
        let tell = move |train: ArrivedTrain| {
            let (reading_at_ns, reading_bytes) = train.readings.into_iter().unzip();
            // A controller that is behind misses a sample.
            let _ = tell.try_send(v1::ProbeTrain {
                train: train.train,
                frame_bytes: train.frame_len,
                at_ns: train.at_ns,
                reading_at_ns,
                reading_bytes,
            });
        };
        let at = (SocketAddr::new(local, 0), usize::from((*mtu).min(MTU_MAX)), nonce);
        ProbeStation::open(at, nic, Arc::clone(&self.probed), tell).ok()
    }

    /// Sends a train. One that cannot be sent is one that does not arrive.
    pub fn obey(&mut self, probe: &v1::Probe) {
        let Some((_, station)) = &mut self.station else { return };
        let (Ok(target), Ok(packets)) = (probe.target.parse(), u16::try_from(probe.packets)) else {
            return;
        };
        let _ = station.send(target, probe.train, packets);
    }

    /// Waits until there is something to tell. Dropping the future loses nothing.
    pub async fn report(&mut self) -> Report {
        let due = self.period.map(|_| self.due);
        let is_due = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(train) = self.arrived.recv() => Report::Train(train),
            () = is_due => {
                let now = Instant::now();
                self.due = (self.due + self.period.unwrap_or_default()).max(now);
                Report::Telemetry(self.telemetry())
            }
        }
    }

    fn telemetry(&self) -> v1::Telemetry {
        let (port, probes) = (self.carried.read(), self.probed.read());
        let (nic_rx_bytes, nic_tx_bytes) =
            self.nic.as_ref().map_or((None, None), NicCounters::read);
        v1::Telemetry {
            at_ns: u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX),
            rx_bytes: port.0 + probes.0,
            tx_bytes: port.1 + probes.1,
            nic_rx_bytes,
            nic_tx_bytes,
            // What a box counts besides, the box fills in.
            ..v1::Telemetry::default()
        }
    }
}

/// Least and greatest time between two reports of the counters.
const PERIOD_MIN: Duration = Duration::from_millis(10);
const PERIOD_MAX: Duration = Duration::from_secs(60);
/// Trains that wait for the stream.
const TRAINS_MAX: usize = 16;
/// Largest IP packet of a train: longer ones would make trains of few packets, and the controller's
/// account of what probes take assumes this.
const MTU_MAX: u16 = 1500;
