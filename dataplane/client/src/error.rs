//! Why a session could not be made or go on.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use weft_engine::role::worker::{RoundError, WorkerError};
use weft_io::af_packet::AfPacketError;
use weft_io::shm::ShmError;
use weft_io::udp::UdpError;

/// Why a call failed. After any error but [`Error::Config`] and [`Error::Wrong`] the session is
/// over; a new [`crate::Session::connect`] begins a new life. Its text has its causes, for `{}` and
/// for `{:?}`, which is what `?` in `main` prints.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration cannot work.
    #[error("configuration: `{field}` {problem}")]
    Config {
        /// The field.
        field: &'static str,
        /// What is wrong, and what would be right.
        problem: &'static str,
    },
    /// The local UDP ports could not be opened.
    #[error("could not open this worker's port: {}", Chain(.0))]
    Port(UdpError),
    /// Memory could not be shared with the aggregator.
    #[error("could not share memory with the aggregator: {}", Chain(.0))]
    Shm(ShmError),
    /// Frames could not be sent and received on an interface.
    #[error("could not open this worker's port on an interface: {}", Chain(.0))]
    AfPacket(AfPacketError),
    /// This machine lacks something that DPDK needs.
    #[cfg(feature = "dpdk")]
    #[error("could not start DPDK: {0}")]
    DpdkLacks(String),
    /// EAL refused.
    #[cfg(feature = "dpdk")]
    #[error("could not start DPDK: {}", Chain(.0))]
    Eal(weft_dpdk::EalError),
    /// A DPDK device could not be opened.
    #[cfg(feature = "dpdk")]
    #[error("could not open this worker's DPDK device: {}", Chain(.0))]
    Dpdk(weft_dpdk::PortError),
    /// A memif has no peer.
    #[cfg(feature = "dpdk")]
    #[error(
        "could not open {device} within connect_timeout: nobody serves its socket, or not its id; \
         start the box whose memif has `role=server` there"
    )]
    NoMemif {
        /// The device.
        device: String,
    },
    /// The kernel has the address that a worker on a DPDK device is to have for itself.
    #[cfg(feature = "dpdk")]
    #[error(
        "the kernel has {ip} on {interface} and would answer beside the DPDK device: `ip address \
         flush dev {interface}`, or give the worker another address"
    )]
    KernelAnswers {
        /// The worker's address.
        ip: IpAddr,
        /// Who has it.
        interface: String,
    },
    /// No interface has the worker's address, and none was named.
    #[error(
        "no interface of this network namespace has {ip}: `ip address` lists what they have; for \
         an address that the kernel is not to have, name the interface with `interface`"
    )]
    NoInterface {
        /// The worker's address.
        ip: IpAddr,
    },
    /// The interface carries no packets as large as the session's.
    #[error(
        "interface {interface} has an MTU of {limit}, less than the session's {mtu}: set `mtu` to \
         {limit}, or `ip link set {interface} mtu {mtu}`"
    )]
    LinkMtu {
        /// The interface.
        interface: String,
        /// The session's.
        mtu: u16,
        /// The interface's.
        limit: usize,
    },
    /// Another socket of this machine has a UDP port of the worker's.
    #[error(
        "could not take UDP port {addr} from the kernel, so that it answers nobody there: {cause}"
    )]
    Reserve {
        /// The port.
        addr: SocketAddr,
        /// The kernel's answer.
        cause: std::io::Error,
    },
    /// The operating system gave no random seed.
    #[error("could not get a random seed from the operating system: {0}")]
    Random(getrandom::Error),
    /// The aggregator has another number of lanes than the configuration.
    #[error("the aggregator has {actual} lanes, not {configured}: set `lanes` to {actual}")]
    Lanes {
        /// What the configuration says.
        configured: u16,
        /// What the aggregator says.
        actual: u16,
    },
    /// The session ended: the message names the aggregator or the members that are missing.
    #[error("the session ended: {0}")]
    Session(WorkerError),
    /// As [`Error::Session`], where the port knows what may have kept frames from passing.
    #[error("the session ended: {error}; {complaint}")]
    Link {
        /// How it ended.
        error: WorkerError,
        /// What the port knows.
        complaint: String,
    },
    /// As [`Error::Session`], and the path of full datagrams to the aggregator is gone.
    #[error("the session ended: {error}; its path has become narrower since it began: {found}")]
    Narrower {
        /// How it ended.
        error: WorkerError,
        /// What a probe has found: [`WorkerError::MtuTooSmall`].
        found: WorkerError,
    },
    /// A round could not begin.
    #[error("could not begin a round: {0}")]
    Round(RoundError),
    /// The lease had run out of steps and the group could not be formed anew.
    #[error(
        "the lease has run out of steps and not every worker has come to its end within \
         member_timeout: connect again, or raise chunks_max in the aggregator's row"
    )]
    Renewal,
    /// The call does not fit the session's numbers.
    #[error("{0}")]
    Wrong(&'static str),
    /// An earlier sum of a session in the background has failed.
    #[error("the session is over: the ticket of an earlier sum says why; connect again")]
    Over,
    /// There is no thread for a session in the background.
    #[error("could not start a thread for the session: {0}")]
    Thread(Arc<std::io::Error>),
    /// The port will deliver nothing any more.
    #[error("the port is closed: no frame can arrive any more")]
    PortClosed,
}

/// An error and its causes in one line, each once.
pub(crate) struct Chain<'a>(pub(crate) &'a dyn std::error::Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let more = error.to_string();
            if !text.contains(&more) {
                text = format!("{text}: {more}");
            }
            cause = error.source();
        }
        f.write_str(&text)
    }
}

/// Gives the library's errors one text for `{:?}` and `{}`.
macro_rules! debug_as_text {
    ($($error:ty),+ $(,)?) => {$(
        impl fmt::Debug for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&Chain(self), f)
            }
        }
    )+};
}
debug_as_text!(
    Error,
    crate::checkpoint::file::FileError,
    crate::keys::KeyError,
    crate::keys::TableFileError,
    crate::leaf::LeafError,
    crate::push::PushError,
    crate::rounds::RoundError,
);

/// Why a session with several hosts has no port: a field of its configuration, which has the same
/// names, or else [`Error`] itself.
macro_rules! from_port_error {
    ($session:ty) => {
        impl From<$crate::Error> for $session {
            fn from(error: $crate::Error) -> Self {
                match error {
                    $crate::Error::Config { field, problem } => Self::Config { field, problem },
                    error => Self::Open(::std::sync::Arc::new(error)),
                }
            }
        }
    };
}
pub(crate) use from_port_error;
