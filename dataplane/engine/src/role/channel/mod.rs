//! Channels: what a pair of hosts agrees on before anything is pushed, pulled or replicated
//! (SPEC#channels).
//!
//! | file | end |
//! | --- | --- |
//! | `host.rs` | [`ChannelHost`]: answers; a server, a replica and an aggregator are hosts |
//! | `client.rs`, `opening.rs` | [`ChannelClient`]: opens; workers towards all of them, boxes towards servers and replicas |
//!
//! Both ends stand on `session/`: what is theirs is the row, the terms and the frames.
//! A channel is a pair of cookies that belong to one life of each end. There is no group to form:
//! JOIN is answered with WELCOME at once. Both ends are sans-IO and serve one job; a role owns as
//! many as it has jobs or partners. Invariant: a frame of an earlier life of either end is refused
//! (PROTOCOL section 6), and a delayed handshake datagram changes nothing.

mod client;
mod config;
mod host;
mod opening;
#[cfg(test)]
mod tests;

use weft_control::BoxIndex;
use weft_wire::header::Header;
use weft_wire::hello::Integrity;
use weft_wire::rows::{ROW_BOX_CHANNEL, ROW_WORKER_CHANNEL};
use weft_wire::{Cookie, Epoch, JobId, Members, Rank};

pub use client::{ChannelClient, ClientEvent};
pub use config::{ChannelClientConfig, ChannelError};
pub(crate) use host::PeersMemory;
pub use host::{ChannelHost, ChannelHostConfig, HostReply, PeerChange};

pub use crate::session::client::Standing;

use crate::drops::DropReason;

/// Who opens a channel.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Peer {
    /// A worker, by its rank in the job.
    Worker(Rank),
    /// An aggregator or a replica, by its index among the job's boxes.
    Box(BoxIndex),
}

impl Peer {
    /// The row of its handshake.
    #[must_use]
    pub const fn row(self) -> u16 {
        match self {
            Self::Worker(_) => ROW_WORKER_CHANNEL,
            Self::Box(_) => ROW_BOX_CHANNEL,
        }
    }

    /// Its bit in `members`.
    #[must_use]
    pub const fn bit(self) -> Members {
        match self {
            Self::Worker(rank) => rank.bit(),
            Self::Box(index) => Members(1 << (index.0 % 64)),
        }
    }

    /// The place of that bit.
    const fn rank(self) -> usize {
        self.bit().0.trailing_zeros() as usize
    }

    /// The peer that the header of a handshake names.
    ///
    /// # Errors
    /// [`DropReason::UnknownGroup`] when the row is no channel's, [`DropReason::BadMembers`] when
    /// `members` is not one bit.
    pub fn of_channel(header: &Header) -> Result<Self, DropReason> {
        match header.group.row() {
            ROW_WORKER_CHANNEL => Self::worker(header.members),
            ROW_BOX_CHANNEL => Self::of_box(header.members),
            _ => Err(DropReason::UnknownGroup),
        }
    }

    /// The worker whose bit this is.
    ///
    /// # Errors
    /// [`DropReason::BadMembers`] when it is not one bit.
    pub fn worker(members: Members) -> Result<Self, DropReason> {
        members.single().map(Self::Worker).ok_or(DropReason::BadMembers)
    }

    /// The box whose bit this is.
    ///
    /// # Errors
    /// [`DropReason::BadMembers`] when it is not one bit.
    pub fn of_box(members: Members) -> Result<Self, DropReason> {
        let rank = members.single().ok_or(DropReason::BadMembers)?;
        let index = u8::try_from(rank.index()).map_err(|_| DropReason::BadMembers)?;
        Ok(Self::Box(BoxIndex(index)))
    }
}

/// What a host tells everyone who opens a channel: the shape of the job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct JobTerms {
    /// The job.
    pub job: JobId,
    /// Elements of every chunk.
    pub elements: u16,
    /// What protects payloads.
    pub integrity: Integrity,
    /// Scale exponent of updates that no controller gave one.
    pub exponent: Option<i8>,
    /// Chunks of the job's model.
    pub chunks: u32,
}

/// What a client learnt from WELCOME.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ChannelTerms {
    /// The shape of the job.
    pub job: JobTerms,
    /// Epoch of the host's life.
    pub epoch: Epoch,
    /// Carried by the client's frames.
    pub cookie_up: Cookie,
    /// Carried by the host's frames.
    pub cookie_down: Cookie,
    /// All workers (or boxes) of the job.
    pub mask: Members,
}

/// Boxes of a job: the width of the bitmap.
pub const BOXES_MAX: usize = 64;
