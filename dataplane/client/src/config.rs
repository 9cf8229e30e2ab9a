//! Who a worker is, where its aggregator is, and what its numbers are.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use weft_engine::role::worker::WorkerConfig;
use weft_wire::frame::Endpoint;
use weft_wire::frame::multicast::group_of;
use weft_wire::header::{ElementType, Operation};
use weft_wire::{JobId, MacAddr, Rank};

use crate::Error;

/// What travels for each number, and so how a sum is rounded (PROTOCOL section 9).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Numbers {
    /// i32 fixed point with the job's exponent, as the aggregator's row says: exact and
    /// independent of the order of arrival. `allreduce` quantises; `allreduce_i32` does not.
    #[default]
    Fixed,
    /// i32 fixed point with an exponent per block, agreed by a MAX round first. The row of the
    /// exponents is `exponent_row`; one more round trip per call, 0.4 % more traffic.
    Block {
        /// The row whose operation is MAX.
        exponent_row: u16,
    },
    /// IEEE 754 binary32. Reproducible bits only if the row sums in rank order.
    F32,
    /// bfloat16 on the wire, summed in f32: half the bytes.
    Bf16,
}

impl Numbers {
    pub(crate) fn element_type(self) -> ElementType {
        match self {
            Self::Fixed | Self::Block { .. } => ElementType::I32,
            Self::F32 => ElementType::F32,
            Self::Bf16 => ElementType::Bf16,
        }
    }
}

/// Which port a session is connected over.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Io {
    /// Memory shared with the aggregator if it is on this host and offers that, else UDP.
    #[default]
    Auto,
    /// The kernel's UDP sockets.
    Udp,
    /// Memory shared with the aggregator, or an error that says why not. Waits for the aggregator
    /// to start, for [`Config::connect_timeout`].
    Shm,
    /// Packet sockets on the interface that has the worker's address, or on [`Config::interface`].
    /// Needs CAP_NET_RAW. Past the kernel's UDP, but through its packet filters: less CPU a frame.
    AfPacket,
}

/// A worker's configuration. Build it with [`Config::new`] and the methods named after the fields.
#[derive(Clone, Debug)]
pub struct Config {
    /// This worker's address; lane `i` uses its port + `i`.
    pub local: SocketAddr,
    /// Where the aggregator listens.
    pub aggregator: SocketAddr,
    /// The aggregator's Ethernet address, for ports without a kernel; learnt when broadcast.
    pub aggregator_mac: MacAddr,
    /// Index of the job at the aggregator. Default 0.
    pub job: u16,
    /// Row of the group at the aggregator. Default 0.
    pub row: u16,
    /// Position in the group, from 0. Default 0.
    pub rank: u8,
    /// What travels. Default [`Numbers::Fixed`].
    pub numbers: Numbers,
    /// Which port. Default [`Io::Auto`]: by the aggregator's address.
    pub io: Io,
    /// The interface, with [`Io::AfPacket`]; by default the one that has `local`'s address. One
    /// that does not have it makes the worker a host of its own there, which answers ARP, neighbour
    /// discovery and ping for the address itself.
    pub interface: Option<String>,
    /// The router to the aggregator, for ports that find their next hop themselves. Default: what
    /// the kernel's routes say where the kernel has `local`'s address, else none.
    pub router: Option<IpAddr>,
    /// Lanes of the aggregator, so UDP ports to bind. Default 1.
    pub lanes: u16,
    /// Largest IP packet on the path in bytes; proved by a probe at the start. Default 1500.
    pub mtu: u16,
    /// Whether runs of frames cross the kernel as one message each: less CPU, but see
    /// [`weft_io::udp::UdpConfig::offload`] for where not; over an interface
    /// [`weft_io::af_packet::AfPacketConfig::offload`]. Default true.
    pub offload: bool,
    /// Frame buffers of the port, of `mtu + 14` bytes each. Default 1024.
    pub frame_count: usize,
    /// DSCP of this worker's frames, 0 to 63, as the box's file has it for the job. Default 0.
    pub dscp: u8,
    /// How long the aggregator may take to answer the first handshake. Default 5 s.
    pub connect_timeout: Duration,
    /// How long a round, or the wait for the other workers, may go without progress. Default 30 s.
    pub member_timeout: Duration,
    /// How long [`crate::Session::close`] waits for the others. Default 2 s.
    pub close_linger: Duration,
    /// Least time before a contribution is sent again. Default 1 ms: lost frames are what a round
    /// waits for. Where nothing is lost but workers share CPUs, a late worker makes the others
    /// repeat; a larger value then spares repeats, and makes recovery from loss slower. A session
    /// that [connects](crate::Session::connect) over shared memory takes at least 100 ms.
    pub rto_min: Duration,
    /// Where the aggregator's multicast addresses begin, as its file has it in `port.multicast`:
    /// with [`Io::Udp`] the worker hears the address of its row, and a sum comes once for all. A
    /// network that does not carry it is found out, and sums come to `local` then. Default none.
    pub multicast: Option<IpAddr>,
    /// Ceiling of the sending rate in bytes of Ethernet frames per second. Default none.
    pub rate_bytes_per_sec: Option<u64>,
    /// Seed of this life's random numbers, for tests. Default: from the operating system.
    pub seed: Option<u64>,
}

impl Config {
    /// The defaults of the fields' documentation.
    #[must_use]
    pub fn new(local: SocketAddr, aggregator: SocketAddr) -> Self {
        Self {
            local,
            aggregator,
            aggregator_mac: MacAddr::BROADCAST,
            job: 0,
            row: 0,
            rank: 0,
            numbers: Numbers::Fixed,
            io: Io::Auto,
            interface: None,
            router: None,
            lanes: 1,
            mtu: 1500,
            offload: true,
            frame_count: 1024,
            dscp: 0,
            connect_timeout: Duration::from_secs(5),
            member_timeout: Duration::from_secs(30),
            close_linger: Duration::from_secs(2),
            rto_min: Duration::from_millis(1),
            multicast: None,
            rate_bytes_per_sec: None,
            seed: None,
        }
    }

    /// Sets the job.
    #[must_use]
    pub fn job(mut self, job: u16) -> Self {
        self.job = job;
        self
    }

    /// Sets the row.
    #[must_use]
    pub fn row(mut self, row: u16) -> Self {
        self.row = row;
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
    pub fn numbers(mut self, numbers: Numbers) -> Self {
        self.numbers = numbers;
        self
    }

    /// Sets the port.
    #[must_use]
    pub fn io(mut self, io: Io) -> Self {
        self.io = io;
        self
    }

    /// Sets the interface.
    #[must_use]
    pub fn interface(mut self, name: &str) -> Self {
        self.interface = Some(name.to_owned());
        self
    }

    /// Sets the lanes.
    #[must_use]
    pub fn lanes(mut self, lanes: u16) -> Self {
        self.lanes = lanes;
        self
    }

    /// Sets the MTU.
    #[must_use]
    pub fn mtu(mut self, mtu: u16) -> Self {
        self.mtu = mtu;
        self
    }

    /// Sets whether runs of frames cross the kernel as one message each.
    #[must_use]
    pub fn offload(mut self, offload: bool) -> Self {
        self.offload = offload;
        self
    }

    /// Sets where the aggregator's multicast addresses begin.
    #[must_use]
    pub fn multicast(mut self, base: IpAddr) -> Self {
        self.multicast = Some(base);
        self
    }

    /// The rows that the worker is a member of.
    pub(crate) fn rows(&self) -> impl Iterator<Item = u16> {
        let exponents = match self.numbers {
            Numbers::Block { exponent_row } => Some(exponent_row),
            _ => None,
        };
        [Some(self.row), exponents].into_iter().flatten()
    }

    /// The multicast address of a row's sums.
    pub(crate) fn group_of(&self, row: u16) -> Option<IpAddr> {
        group_of(self.multicast?, row)
    }

    /// The engine's configuration for one row of this worker.
    ///
    /// # Errors
    /// [`Error::Config`] names the field that makes no sense.
    pub fn worker(
        &self,
        row: u16,
        operation: Operation,
        mac: MacAddr,
    ) -> Result<WorkerConfig, Error> {
        let rank = Rank::new(self.rank)
            .ok_or(Error::Config { field: "rank", problem: "must be 0 to 63" })?;
        let local = Endpoint { mac, addr: self.local };
        let target = Endpoint { mac: self.aggregator_mac, addr: self.aggregator };
        if self.multicast.is_some() && self.group_of(row).is_none() {
            let problem = "must be a multicast address that nobody has assigned, with room for 1024 rows above it";
            return Err(Error::Config { field: "multicast", problem });
        }
        if self.dscp > 63 {
            return Err(Error::Config { field: "dscp", problem: "is above 63" });
        }
        let overhead: u16 = if self.local.is_ipv4() { 28 } else { 48 };
        let mut worker = WorkerConfig::new(JobId(self.job), row, rank, local, target);
        worker.element_type = self.numbers.element_type();
        worker.operation = operation;
        worker.connect_timeout_ns = nanos(self.connect_timeout);
        worker.member_timeout_ns = nanos(self.member_timeout);
        // The session itself lets go after its linger; between two leases nobody may.
        worker.close_linger_ns = nanos(self.close_linger.max(self.member_timeout));
        worker.rto_min_ns = nanos(self.rto_min);
        worker.rate_bytes_per_sec = self.rate_bytes_per_sec;
        worker.probe_len = self
            .mtu
            .checked_sub(overhead)
            .ok_or(Error::Config { field: "mtu", problem: "is smaller than the headers" })?;
        Ok(worker)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
