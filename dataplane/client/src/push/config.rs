//! Who a worker is, where its server and its controller are, and how patient it is.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use weft_engine::role::push::PusherConfig;
use weft_rpc::tls::TlsFiles;
use weft_wire::frame::Endpoint;
use weft_wire::header::ElementType;
use weft_wire::{JobId, MacAddr, Rank};

use super::PushError;
use crate::config::{Config, Io};

/// What travels for each number of an update. Models come back as f32 always.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum PushNumbers {
    /// i32 fixed point: sums are exact whatever the order of arrival. The exponent is the grant's,
    /// or the server's for the job when there is no controller.
    #[default]
    Fixed,
    /// IEEE 754 binary32.
    F32,
}

/// Where the controller is, and when it counts as gone.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ControllerConfig {
    /// Its gRPC endpoint, such as `https://10.0.0.200:22342`; `http://` without `tls`.
    pub endpoint: String,
    /// This worker's certificate (`weft certs issue worker`), read anew whenever the controller is
    /// called. Default none: then the controller does not ask who calls.
    pub tls: Option<TlsFiles>,
    /// How long there may be no connection to it before updates go directly. Default 2 s. An
    /// update that could not be granted meanwhile goes too; one that was granted stays so. A server
    /// that still has a controller refuses them: they are tried again after this time, as often as
    /// [`PushConfig::resends_max`] allows.
    pub silence: Duration,
    /// How long it may leave a request ungranted although it is there, before it is asked anew; the
    /// server is asked first, which may have lost it. Default 60 s.
    pub grant_timeout: Duration,
}

impl ControllerConfig {
    /// The defaults of the fields' documentation.
    #[must_use]
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            tls: None,
            silence: Duration::from_secs(2),
            grant_timeout: Duration::from_secs(60),
        }
    }

    /// Sets the certificate.
    #[must_use]
    pub fn tls(mut self, tls: TlsFiles) -> Self {
        self.tls = Some(tls);
        self
    }
}

/// The example of docs/security.md, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/security.md")]
struct SecurityGuide;

/// A worker's configuration. Build it with [`PushConfig::new`] and the methods named after the
/// fields.
#[derive(Clone, Debug)]
pub struct PushConfig {
    /// This worker's address.
    pub local: SocketAddr,
    /// Where the server listens.
    pub server: SocketAddr,
    /// The server's Ethernet address, for ports without a kernel; learnt when broadcast.
    pub server_mac: MacAddr,
    /// Index of the job at the server. Default 0.
    pub job: u16,
    /// Rank in the job, 0 to 63. Default 0.
    pub rank: u8,
    /// What travels. Default [`PushNumbers::Fixed`].
    pub numbers: PushNumbers,
    /// Aggregators of the job by their index, beyond those that the controller names. Default none.
    pub aggregators: Vec<(u8, SocketAddr)>,
    /// The aggregator through which models are pulled, so that one copy on the server's link serves
    /// all who ask. Default none: from the server. A silent one is left for the server.
    pub pull_via: Option<u8>,
    /// The controller. Default none: updates go directly, in the order of their arrival.
    pub controller: Option<ControllerConfig>,
    /// Largest IP packet on the path in bytes; proved by a probe at the start. Default 1500.
    pub mtu: u16,
    /// Whether runs of frames cross the kernel as one message each: less CPU, but see
    /// [`weft_io::udp::UdpConfig::offload`] for where not. Default true.
    pub offload: bool,
    /// Which port: [`Io::Udp`], which [`Io::Auto`] is here, or [`Io::AfPacket`]; a session with
    /// several boxes shares memory with none.
    pub io: Io,
    /// As [`crate::Config::interface`].
    pub interface: Option<String>,
    /// As [`crate::Config::router`]; by default the kernel's routes, for each box.
    pub router: Option<IpAddr>,
    /// Updates under way at a time; [`crate::push::PushSession::push`] waits beyond. Default 2.
    pub updates_open_max: usize,
    /// How often an update that was void is requested anew. Default 8.
    pub resends_max: u32,
    /// Adds a dropped update to the next one. Default false: a drop loses the update.
    pub error_feedback: bool,
    /// Ceiling of the sending rate, bytes of Ethernet frames per second, whatever a grant says.
    /// Default none.
    pub rate_bytes_per_sec: Option<u64>,
    /// DSCP of this worker's frames, 0 to 63, until a controller gives the job another. Default 0.
    pub dscp: u8,
    /// How long the server may take to answer the first handshake. Default 5 s.
    pub connect_timeout: Duration,
    /// How long the server may be silent while something is under way. Default 30 s.
    pub member_timeout: Duration,
    /// How long [`crate::push::PushSession::close`] waits for updates under way. Default 2 s.
    pub close_linger: Duration,
    /// Least time before a frame is repeated. Default 1 ms.
    pub rto_min: Duration,
    /// Seed of this life's random numbers, for tests. Default: from the operating system.
    pub seed: Option<u64>,
}

impl PushConfig {
    /// The defaults of the fields' documentation.
    #[must_use]
    pub fn new(local: SocketAddr, server: SocketAddr) -> Self {
        Self {
            local,
            server,
            server_mac: MacAddr::BROADCAST,
            job: 0,
            rank: 0,
            numbers: PushNumbers::Fixed,
            aggregators: Vec::new(),
            pull_via: None,
            controller: None,
            mtu: 1500,
            offload: true,
            io: Io::Auto,
            interface: None,
            router: None,
            updates_open_max: 2,
            resends_max: 8,
            error_feedback: false,
            rate_bytes_per_sec: None,
            dscp: 0,
            connect_timeout: Duration::from_secs(5),
            member_timeout: Duration::from_secs(30),
            close_linger: Duration::from_secs(2),
            rto_min: Duration::from_millis(1),
            seed: None,
        }
    }

    /// Sets the job.
    #[must_use]
    pub fn job(mut self, job: u16) -> Self {
        self.job = job;
        self
    }

    /// Sets the rank.
    #[must_use]
    pub fn rank(mut self, rank: u8) -> Self {
        self.rank = rank;
        self
    }

    /// Sets what travels.
    #[must_use]
    pub fn numbers(mut self, numbers: PushNumbers) -> Self {
        self.numbers = numbers;
        self
    }

    /// Sets the controller.
    #[must_use]
    pub fn controller(mut self, controller: ControllerConfig) -> Self {
        self.controller = Some(controller);
        self
    }

    /// Sets the port.
    #[must_use]
    pub fn io(mut self, io: Io) -> Self {
        self.io = io;
        self
    }

    /// Sets the MTU.
    #[must_use]
    pub fn mtu(mut self, mtu: u16) -> Self {
        self.mtu = mtu;
        self
    }
}

impl PushNumbers {
    pub(super) fn element_type(self) -> ElementType {
        match self {
            Self::Fixed => ElementType::I32,
            Self::F32 => ElementType::F32,
        }
    }
}

impl PushConfig {
    /// What its port is opened with.
    pub(super) fn of_port(&self) -> Config {
        Config {
            io: self.io,
            interface: self.interface.clone(),
            router: self.router,
            mtu: self.mtu,
            offload: self.offload,
            frame_count: FRAMES,
            ..Config::new(self.local, self.server)
        }
    }

    /// The engine's configuration for a port with this Ethernet address.
    ///
    /// # Errors
    /// [`PushError::Config`] names the field that makes no sense.
    pub fn pusher(&self, mac: MacAddr) -> Result<PusherConfig, PushError> {
        let rank = Rank::new(self.rank)
            .ok_or(PushError::Config { field: "rank", problem: "must be 0 to 63" })?;
        if self.updates_open_max == 0 {
            let problem = "must be at least 1";
            return Err(PushError::Config { field: "updates_open_max", problem });
        }
        let local = Endpoint { mac, addr: self.local };
        let server = Endpoint { mac: self.server_mac, addr: self.server };
        if self.dscp > 63 {
            return Err(PushError::Config { field: "dscp", problem: "is above 63" });
        }
        let overhead: u16 = if self.local.is_ipv4() { 28 } else { 48 };
        let mut pusher = PusherConfig::new(JobId(self.job), rank, local, server);
        pusher.element_type = self.numbers.element_type();
        pusher.updates_max = self.updates_open_max;
        pusher.connect_timeout_ns = nanos(self.connect_timeout);
        pusher.member_timeout_ns = nanos(self.member_timeout);
        pusher.rto_min_ns = nanos(self.rto_min);
        pusher.rate_bytes_per_sec = self.rate_bytes_per_sec;
        pusher.probe_len = self
            .mtu
            .checked_sub(overhead)
            .ok_or(PushError::Config { field: "mtu", problem: "is smaller than the headers" })?;
        Ok(pusher)
    }
}

/// Buffers of its port.
const FRAMES: usize = 1024;

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
