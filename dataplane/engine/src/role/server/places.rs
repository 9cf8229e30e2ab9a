//! The places of a job's peers in a table: workers by rank, then boxes by index.

use weft_control::BoxIndex;
use weft_wire::Rank;

use crate::role::channel::Peer;

/// How many places there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) workers: usize,
    pub(super) boxes: usize,
}

impl Places {
    /// The place of a peer.
    pub(super) fn of(self, peer: Peer) -> usize {
        match peer {
            Peer::Worker(rank) => rank.index(),
            Peer::Box(BoxIndex(index)) => self.workers + usize::from(index),
        }
    }

    /// The peer of a place.
    pub(super) fn peer(self, place: usize) -> Peer {
        let (is_box, index) = match place.checked_sub(self.workers) {
            Some(index) => (true, index),
            None => (false, place),
        };
        let index = u8::try_from(index).expect("at most 64 workers, and 64 boxes");
        match is_box {
            true => Peer::Box(BoxIndex(index)),
            false => Peer::Worker(Rank::new(index).expect("at most 64 workers")),
        }
    }

    /// All peers, place by place.
    pub(super) fn all(self) -> impl Iterator<Item = Peer> {
        (0..self.workers + self.boxes).map(move |place| self.peer(place))
    }
}
