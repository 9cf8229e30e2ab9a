//! The network of every model: it may lose, duplicate, reorder and delay without bound.
//!
//! Such a network is the set of all messages that were ever sent: any of them may arrive at any
//! time and any number of times. To be sent twice is then the same as to be sent once, so the
//! models let a box send whatever its state allows at once and keep it in the set. That hides no
//! behaviour, because a message may wait in the network as long as it could have waited in the box.
//!
//! A message that never arrives is one that no step delivers, which is enough for safety. Progress
//! needs more: a message of long ago must not save a run that a real network would lose. So a model
//! that checks progress also has a step that loses everything in flight ([`Network::lose_all`]);
//! what comes after it rests on what the boxes send again. Losing all is the worst case: further
//! messages only add ways to finish.

/// The set of messages that were sent and are not lost.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Network<M> {
    /// Sorted, so that equal sets are equal states.
    messages: Vec<M>,
}

impl<M: Copy + Ord> Network<M> {
    /// Returns a network without messages.
    #[must_use]
    pub const fn empty() -> Self {
        Self { messages: Vec::new() }
    }

    /// Puts `message` into the network, where it stays. True if it was not there.
    pub fn send(&mut self, message: M) -> bool {
        let place = self.messages.binary_search(&message);
        if let Err(place) = place {
            self.messages.insert(place, message);
        }
        place.is_err()
    }

    /// True if `message` may arrive.
    pub fn contains(&self, message: M) -> bool {
        self.messages.binary_search(&message).is_ok()
    }

    /// Loses every message in flight.
    pub fn lose_all(&mut self) {
        self.messages.clear();
    }

    /// Forgets the messages that `keep` says false to: those that can do nothing any more.
    pub fn retain(&mut self, keep: impl FnMut(&M) -> bool) {
        self.messages.retain(keep);
    }

    /// Returns each message that may arrive.
    pub fn in_flight(&self) -> impl Iterator<Item = M> + '_ {
        self.messages.iter().copied()
    }
}
