//! What a pusher reports, and why it stops.

use core::fmt;
use core::net::SocketAddr;

use weft_control::{Decision, Version};

use crate::role::channel::ChannelError;

/// Something that the caller wants to know.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// The channel to the server is open: updates and pulls can begin.
    Connected,
    /// The server had lost us (it was restarted, or our silence was long) and knows us again.
    Reconnected,
    /// The first chunk of the update has left.
    Started {
        /// The update.
        number: u64,
    },
    /// All chunks of the update are with its aggregator, or the server has asked for all of them.
    Delivered {
        /// The update.
        number: u64,
    },
    /// The update is decided. Its data is kept until [`super::Pusher::finish`] or
    /// [`super::Pusher::renew`].
    Decided {
        /// The update.
        number: u64,
        /// What became of it.
        decision: Decision,
    },
    /// A model is here: [`super::Pusher::model`].
    Pulled {
        /// Its version.
        version: Version,
    },
    /// The pusher has stopped for good.
    Failed(PushFault),
    /// The close exchange is over and the pusher has stopped.
    Closed,
}

/// Why a pusher stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PushFault {
    /// The channel to the server could not be opened.
    Channel(ChannelError),
    /// The server fell silent, and nobody said that another one took over.
    ServerSilent {
        /// Where it was.
        server: SocketAddr,
    },
    /// The server's model cannot be used by this worker.
    BadModel(ModelFault),
}

/// What is wrong with the model that the server described.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ModelFault {
    /// More chunks than [`weft_control::UPDATE_CHUNKS_MAX`].
    Chunks,
    /// Chunks longer than the probe that was tried: the MTU is configured too small for them.
    Elements,
    /// This rank is none of the job's.
    Mask,
    /// Another shape than before the server's restart.
    Changed,
}

impl fmt::Display for PushFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channel(error) => write!(f, "the server: {error}"),
            Self::ServerSilent { server } => write!(
                f,
                "the server at {server} stopped answering: start it again, or let a controller \
                 promote its replica (ack = \"replica\"); check the link to it"
            ),
            Self::BadModel(fault) => write!(
                f,
                "the server's model cannot be used by this worker: {}",
                match fault {
                    ModelFault::Chunks => "it has too many chunks; use more elements per chunk",
                    ModelFault::Elements => "its chunks do not fit this worker's MTU; raise that",
                    ModelFault::Mask => "this rank is none of its job's; check the job table",
                    ModelFault::Changed => "the server was restarted with another model",
                }
            ),
        }
    }
}

impl core::error::Error for PushFault {}

/// Why a command was refused. Nothing has changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PushRefusal {
    /// The channel to the server is not open yet, or the pusher has stopped.
    NotOpen,
    /// As many updates as allowed are under way.
    Full,
    /// An update of this number is under way, or none is.
    Number,
    /// More elements than the model has, or integers for a job of real numbers.
    Values,
    /// The grant names a box that the pusher was never told of.
    UnknownBox,
    /// The update has been granted before, or is decided.
    State,
    /// A pull is under way.
    Pulling,
    /// The boxes are of another address family, or too many.
    Box,
}

impl fmt::Display for PushRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotOpen => "the channel to the server is not open",
            Self::Full => "as many updates as allowed are under way: wait for one",
            Self::Number => "another update has this number, or none has",
            Self::Values => "more elements than the model has, or integers for a job of reals",
            Self::UnknownBox => "the grant names a box that is not known",
            Self::State => "the update has been granted before, or is decided",
            Self::Pulling => "a pull is under way",
            Self::Box => "too many boxes, or an address of another family",
        })
    }
}

impl core::error::Error for PushRefusal {}
