//! What a role says of a frame: what is to be done with it, in the buffer that it came in.

use crate::drops::DropReason;

/// What to do with a frame after a role has handled it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Refused, and counted under this reason. The buffer is free.
    Drop(DropReason),
    /// Taken in; nothing goes out now. The buffer is free.
    Hold,
    /// Not Weft's: for the host side of the port (ARP, NDP, ping).
    Host,
    /// The buffer now holds a frame of this length to send.
    Send {
        /// Length of the frame in bytes.
        len: usize,
    },
    /// The buffer now holds a frame to member 0 of the lease; send it, and a copy readdressed by
    /// [`Aggregator::readdress`](super::aggregator::Aggregator::readdress) to each other member.
    Multicast {
        /// Length of the frame in bytes.
        len: usize,
        /// The lease whose members get it.
        lease: LeaseIndex,
    },
    /// The buffer now holds a frame to send, and [`Gather::copies`] says who gets a copy of it,
    /// addressed by [`Gather::address_copy`].
    ///
    /// [`Gather::copies`]: super::gather::Gather::copies
    /// [`Gather::address_copy`]: super::gather::Gather::address_copy
    Fan {
        /// Length of the frame in bytes.
        len: usize,
        /// The push job whose frame it is.
        push: PushIndex,
    },
}

/// Index of a lease within a lane.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LeaseIndex(pub(crate) u16);

impl LeaseIndex {
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Index of a push job at this box.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PushIndex(pub(crate) u8);

impl PushIndex {
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}
