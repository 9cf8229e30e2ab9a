//! What a worker's process is told.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_client::push::{ControllerConfig, PushConfig, TlsFiles};
use weft_client::{Config, Numbers};

use crate::run::plan::{Io, PlanError};
use crate::run::reduce::configs::rows_of;
use crate::scenario::{FaultSection, PushSection, ScaleExponent, Scenario};

/// Which port a worker has.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerIo {
    /// The kernel's UDP sockets.
    #[default]
    Udp,
    /// The same, with the box's multicast address: sums come once for all.
    UdpMulticast,
    /// Memory shared with its box.
    Shm,
    /// Packet sockets on its interface.
    AfPacket,
}

impl WorkerIo {
    /// What a worker has where the boxes have this, unless somebody says otherwise.
    #[must_use]
    pub const fn beside(io: Io) -> Self {
        if matches!(io, Io::Shm) { Self::Shm } else { Self::Udp }
    }

    /// Its name in options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::UdpMulticast => "udp_multicast",
            Self::Shm => "shm",
            Self::AfPacket => "af_packet",
        }
    }

    /// Where the multicast addresses of its box begin, if it hears them.
    #[must_use]
    pub const fn multicast(self) -> Option<IpAddr> {
        // Of the addresses that are an organisation's own (RFC 2365).
        const BASE: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 87, 69, 0));
        if matches!(self, Self::UdpMulticast) { Some(BASE) } else { None }
    }

    /// Whether workers can have it whose boxes are on UDP.
    ///
    /// # Errors
    /// [`PlanError::WorkerIo`].
    pub(in crate::run) fn check_beside_udp(
        self,
        has_lab: bool,
        is_push: bool,
    ) -> Result<(), PlanError> {
        let may = self != Self::Shm && has_lab && !(self.multicast().is_some() && is_push);
        if may { Ok(()) } else { Err(PlanError::WorkerIo { io: self.name() }) }
    }

    /// The client's word for it.
    #[must_use]
    pub const fn of_client(self) -> weft_client::Io {
        match self {
            Self::Udp | Self::UdpMulticast => weft_client::Io::Udp,
            Self::Shm => weft_client::Io::Shm,
            Self::AfPacket => weft_client::Io::AfPacket,
        }
    }
}

/// A worker: everything that its process is told.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct WorkerPlan {
    /// The job's number.
    pub job: u16,
    /// The host that it is on.
    pub host: String,
    /// Its rank in the whole job.
    pub rank: u8,
    /// Its rank at its box.
    pub box_rank: u8,
    /// 0, and one more after each restart.
    pub life: u32,
    /// Where it sends from.
    pub local: SocketAddr,
    /// The box that it sends to: its aggregator, or the server.
    pub target: SocketAddr,
    /// The controller's endpoint.
    pub controller: Option<String>,
    /// This worker's certificate, for a controller that wants one.
    pub tls: Option<TlsFiles>,
    /// Largest IP packet.
    pub mtu: u16,
    /// Its port.
    #[serde(default)]
    pub io: WorkerIo,
    /// Whether runs of frames cross the kernel as one message each: not beside a box that takes
    /// frames from an interface.
    pub offload: bool,
    /// What protects the group's chunks is UDP's checksum.
    pub checksums: bool,
    /// How long its fault port delays each frame in each direction, in microseconds.
    pub link_delay_us: u64,
    /// The cohort that it belongs to, where the number of workers changes.
    #[serde(default)]
    pub cohort: Option<CohortPlan>,
    /// Seed of data, model and faults.
    pub seed: u64,
    /// The scenario.
    pub scenario: Scenario,
}

/// The workers between two resizes, as each of them is told.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CohortPlan {
    /// Its number.
    pub cohort: u32,
    /// Workers.
    pub workers: u8,
    /// Where the checkpoint is kept.
    pub checkpoint: PathBuf,
}

impl WorkerPlan {
    /// The worker in a line, as `--dry-run` prints it.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { host, box_rank, local, target, .. } = self;
        match &self.scenario.push {
            None => format!("{host}: rank {box_rank} of {target}, from {local} to {target}"),
            Some(_) => format!("{host}: from {local} to {target}"),
        }
    }

    /// True when exponents are agreed per chunk.
    #[must_use]
    pub fn has_block_exponents(&self) -> bool {
        self.scenario.job.scale_exponent == ScaleExponent::Auto
    }

    /// The configuration of an allreduce's client.
    #[must_use]
    pub fn client(&self) -> Config {
        let [row, exponent_row] = rows_of(self.job);
        let numbers = if self.has_block_exponents() {
            Numbers::Block { exponent_row }
        } else {
            Numbers::Fixed
        };
        let mut config = Config::new(self.local, self.target)
            .job(self.job)
            .rank(self.box_rank)
            .row(row)
            .lanes(self.scenario.aggregation.lanes)
            .mtu(self.mtu)
            .numbers(numbers);
        config.multicast = self.io.multicast();
        config.member_timeout = self.scenario.job.member_timeout();
        if self.is_lossless() {
            config.rto_min = RTO_MIN_LOSSLESS;
        }
        config
    }

    /// The configuration of a client that pushes.
    #[must_use]
    pub fn push_client(&self) -> PushConfig {
        let mut config =
            PushConfig::new(self.local, self.target).job(self.job).rank(self.rank).mtu(self.mtu);
        config.controller = self.controller.as_ref().map(|endpoint| ControllerConfig {
            tls: self.tls.clone(),
            ..ControllerConfig::new(endpoint.clone())
        });
        config.updates_open_max = 1;
        config.member_timeout = self.scenario.job.member_timeout();
        if self.is_lossless() {
            config.rto_min = RTO_MIN_LOSSLESS;
        }
        config
    }

    /// Nothing gets lost on purpose: what is late waits for a CPU, and a repeat takes one.
    fn is_lossless(&self) -> bool {
        self.scenario.faults == FaultSection::default()
    }

    /// The scenario's `[push]`.
    ///
    /// # Panics
    /// Without one.
    #[must_use]
    pub fn push(&self) -> &PushSection {
        self.scenario.push.as_ref().expect("a scenario with [push]")
    }

    /// The model's version at which the job has taken in all its updates: rounds without `[push]`.
    #[must_use]
    pub fn last_version(&self) -> u64 {
        u64::from(self.scenario.job.rounds) * self.scenario.updates_per_round()
    }
}

/// Least retransmission timeout of workers that share CPUs and lose nothing on purpose.
const RTO_MIN_LOSSLESS: Duration = Duration::from_millis(5);
