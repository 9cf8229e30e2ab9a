//! What opens a channel is told, and why it may not open.

use core::fmt;

use weft_wire::frame::Endpoint;
use weft_wire::{JobId, Nanos};

use super::Peer;

/// One end of one channel.
#[derive(Clone, Copy, Debug)]
pub struct ChannelClientConfig {
    /// The job, by its index at the host.
    pub job: JobId,
    /// Who opens.
    pub peer: Peer,
    /// Where frames come from.
    pub local: Endpoint,
    /// The host. An Ethernet address of [`weft_wire::MacAddr::BROADCAST`] is learnt from its
    /// replies.
    pub target: Endpoint,
    /// Interval of handshake datagrams; it backs off to four times this. Default 20 ms.
    pub hello_interval_ns: u64,
    /// How long the host may leave a handshake unanswered before it counts as silent. Default 5 s.
    pub silent_timeout_ns: u64,
    /// UDP payload bytes of the probe that shows the path carries full datagrams; 0 for no probe.
    /// Default: a header and 1024 bytes.
    pub probe_len: u16,
}

impl ChannelClientConfig {
    /// A configuration with the defaults of the fields' documentation.
    #[must_use]
    pub fn new(job: JobId, peer: Peer, local: Endpoint, target: Endpoint) -> Self {
        Self {
            job,
            peer,
            local,
            target,
            hello_interval_ns: Nanos::from_millis(20).0,
            silent_timeout_ns: Nanos::from_millis(5_000).0,
            probe_len: 32 + 1024,
        }
    }
}

/// Why a channel is not open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ChannelError {
    /// The host did not answer within the timeout.
    Silent,
    /// Short datagrams come back, long ones do not.
    MtuTooSmall {
        /// UDP payload bytes of the probe.
        probe_len: u16,
    },
    /// The host does not serve the job.
    UnknownJob {
        /// The job that was asked for.
        job: JobId,
    },
    /// The two ends have addresses of different families.
    Family,
    /// WELCOME offers a job that cannot be: no elements, or chunks above the MTU.
    BadTerms,
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => f.write_str(
                "opening a channel: no answer; check the host's address and that this peer is in \
                 its table",
            ),
            Self::MtuTooSmall { probe_len } => write!(
                f,
                "opening a channel: datagrams of {probe_len} bytes are lost, short ones are not; \
                 raise the path's MTU or shorten the chunks"
            ),
            Self::UnknownJob { job } => write!(
                f,
                "opening a channel: the host does not serve job {}; check the job's number \
                 here and in the host's configuration",
                job.0
            ),
            Self::Family => {
                f.write_str("opening a channel: both ends need addresses of one family")
            }
            Self::BadTerms => f.write_str(
                "opening a channel: the host offers chunks that do not fit a datagram; check its \
                 configuration",
            ),
        }
    }
}

impl core::error::Error for ChannelError {}
