//! What travels in the identity model.

use std::fmt;

use super::WORKER_COUNT_MAX;

/// A message of the identity model. (`epoch`, `life`) is the cookie; `formation` is a ghost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the fields are the words of the protocol")]
pub enum Message {
    /// Up: a process of this rank wants a cookie.
    Hello { worker: u8, life: u8 },
    /// Down: its cookie.
    Welcome { worker: u8, life: u8, epoch: u8 },
    /// Up: the holder of this cookie lives, and takes part in the next group.
    Join { worker: u8, life: u8, epoch: u8 },
    /// Down: the group is open, with this life of the rank as a member.
    Opened { worker: u8, life: u8, epoch: u8, generation: u8, formation: u8 },
    /// Up: a gradient chunk.
    Contribution { worker: u8, life: u8, epoch: u8, generation: u8, chunk: u8, formation: u8 },
    /// Up: this life holds every sum that it needs, and ends.
    Close { worker: u8, life: u8, epoch: u8, generation: u8 },
    /// Down, multicast: a chunk's sum.
    Answer { epoch: u8, generation: u8, chunk: u8, sum: Sum },
    /// Down, multicast: this generation's group will not end; join the next.
    GivenUp { epoch: u8, generation: u8 },
}

/// Whose data a contribution is: the life that made it, and the formation that it was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Data {
    pub(crate) life: u8,
    pub(crate) formation: u8,
}

/// A sum: each rank's data.
pub(crate) type Sum = [Option<Data>; WORKER_COUNT_MAX];

impl Message {
    /// True for what workers send to the aggregator.
    pub(super) const fn goes_up(self) -> bool {
        use Message::{Close, Contribution, Hello, Join};
        matches!(self, Hello { .. } | Join { .. } | Contribution { .. } | Close { .. })
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Hello { worker, life } => write!(f, "hello of w{worker}, life {life}"),
            Self::Welcome { worker, life, epoch } => {
                write!(f, "welcome of w{worker}, life {life}, to epoch {epoch}")
            }
            Self::Join { worker, life, epoch } => {
                write!(f, "join of w{worker}, life {life}, epoch {epoch}")
            }
            Self::Opened { worker, life, epoch, generation, formation } => write!(
                f,
                "opened for w{worker}, life {life}: epoch {epoch}, generation {generation} \
                 (formation {formation})"
            ),
            Self::Contribution { worker, life, epoch, generation, chunk, formation } => write!(
                f,
                "contribution w{worker}:c{chunk} of life {life}, epoch {epoch}, \
                 generation {generation} (formation {formation})"
            ),
            Self::Close { worker, life, epoch, generation } => {
                write!(f, "close of w{worker}, life {life}, epoch {epoch}, generation {generation}")
            }
            Self::Answer { epoch, generation, chunk, .. } => {
                write!(f, "answer c{chunk} of epoch {epoch}, generation {generation}")
            }
            Self::GivenUp { epoch, generation } => {
                write!(f, "given up: epoch {epoch}, generation {generation}")
            }
        }
    }
}
