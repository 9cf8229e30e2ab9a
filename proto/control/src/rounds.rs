//! What a controller and the workers of an allreduce tell each other of their rounds, so that all
//! stop before the same one.

/// The workers that a job runs with between two resizes; the first one is 0.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct CohortId(pub u32);

/// What the workers of a cohort are told first: their lease is in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cohort {
    /// Which.
    pub id: CohortId,
    /// How many they are.
    pub workers: u16,
    /// How many the job began with: the learning rate is the job's, times `workers` over this.
    pub workers_first: u16,
    /// The round that they begin with; above 0 they begin from the checkpoint of that round.
    pub from_round: u64,
}

/// What a worker may do about its rounds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RoundOrder {
    /// Begin one after the other.
    Go,
    /// Begin none any more, and say which would be the next.
    Hold,
    /// Begin those before this one, and say when none of them is left.
    Stop(u64),
    /// As `Stop`; then keep a checkpoint, and say so. The cohort is over.
    Leave(u64),
    /// The cohort is over, and what it kept is known: end.
    Bye,
}

/// What a worker is told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RoundWord {
    /// Who its cohort is: first, and once on each stream.
    Cohort(Cohort),
    /// What it may do, with the number of the order.
    Order(u32, RoundOrder),
}

/// How far a worker has come with its order.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Halt {
    /// It begins rounds.
    #[default]
    None,
    /// It begins none before it hears more.
    Held,
    /// It has all rounds before the one that it was told, and begins no other.
    Stopped,
    /// And has kept its checkpoint.
    Left,
}

/// Where a worker is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RoundPosition {
    /// Number of the order that it follows, on this stream; 0: none yet.
    pub turn: u32,
    /// The round that it begins next. All before have begun, and all but the last have ended.
    pub next: u64,
    /// How far it has come.
    pub halt: Halt,
}

/// What a worker gave to sums: one message for each tensor. Messages of several rounds add up, and
/// the largest is that of all of them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Messages {
    /// How many.
    pub count: u32,
    /// Bytes of their elements.
    pub bytes: u64,
    /// Bytes of the largest.
    pub largest_bytes: u64,
}

impl Messages {
    /// Another one; an empty one is none.
    pub fn note(&mut self, bytes: u64) {
        if bytes > 0 {
            self.count = self.count.saturating_add(1);
            self.bytes = self.bytes.saturating_add(bytes);
            self.largest_bytes = self.largest_bytes.max(bytes);
        }
    }

    /// Whether there may be such messages.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        let most = self.largest_bytes.saturating_mul(self.count as u64);
        self.count > 0
            && self.bytes <= BYTES_MAX
            && 0 < self.largest_bytes
            && self.largest_bytes <= self.bytes
            && self.bytes <= most
    }
}

/// Bytes of the messages of a round.
const BYTES_MAX: u64 = 1 << 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_add_up_and_the_largest_stays() {
        let mut messages = Messages::default();
        assert!(!messages.is_sound(), "there is none");
        for bytes in [400, 0, 4000, 40] {
            messages.note(bytes);
        }
        assert_eq!(messages, Messages { count: 3, bytes: 4440, largest_bytes: 4000 });
        assert!(messages.is_sound());
        messages.note(u64::MAX);
        assert!(!messages.is_sound(), "nobody sums so much in a round");
    }

    #[test]
    fn messages_that_cannot_be_are_known() {
        let sound = Messages { count: 2, bytes: 10, largest_bytes: 6 };
        assert!(sound.is_sound());
        assert!(!Messages { largest_bytes: 11, ..sound }.is_sound(), "larger than all");
        assert!(!Messages { largest_bytes: 4, ..sound }.is_sound(), "two of it are less");
        assert!(!Messages { largest_bytes: 0, bytes: 0, ..sound }.is_sound(), "empty ones");
        assert!(!Messages { count: 0, ..sound }.is_sound());
    }
}
