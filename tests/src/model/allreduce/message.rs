//! What travels in the allreduce model, and the arithmetic of chunks and sums.

use std::fmt;

/// How many workers, slots and steps the modelled group has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Members of the group.
    pub workers: u8,
    /// Slots of the lease: a power of two.
    pub window: u8,
    /// Chunks that pass through each slot.
    pub steps: u8,
}

impl Layout {
    /// Returns the number of chunks in the group.
    #[must_use]
    pub const fn chunks(self) -> u8 {
        self.window * self.steps
    }

    /// Returns the slot of `chunk`.
    #[must_use]
    pub const fn slot(self, chunk: u8) -> u8 {
        chunk & (self.window - 1)
    }

    /// Returns the step at which `chunk` passes through its slot.
    #[must_use]
    pub const fn step(self, chunk: u8) -> u8 {
        chunk / self.window
    }

    /// Returns the chunk that passes through `slot` at `step`.
    #[must_use]
    pub const fn chunk(self, slot: u8, step: u8) -> u8 {
        step * self.window + slot
    }

    /// Returns the bitmap of all members.
    #[must_use]
    pub const fn members(self) -> u8 {
        (1 << self.workers) - 1
    }
}

/// The part of its vector that a contribution carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Length {
    /// Elements without padding.
    pub count: u8,
    /// The vector ends here.
    pub last: bool,
}

/// Elements of a chunk, where vectors have lengths.
pub const ELEMENTS: u8 = 2;

/// The chunks of a worker's vectors: vector, place in it, and length of each. An empty vector has a
/// chunk without elements.
#[must_use]
pub fn chunks_of(vectors: &[u8]) -> Vec<(usize, u8, Length)> {
    let chunks = |(vector, &len): (usize, &u8)| {
        let starts = (0..len.max(1)).step_by(usize::from(ELEMENTS));
        starts.map(move |start| {
            let last = start + ELEMENTS >= len;
            (vector, start, Length { count: (len - start).min(ELEMENTS), last })
        })
    };
    vectors.iter().enumerate().flat_map(chunks).collect()
}

/// How often each worker's contribution to each chunk went into a sum: two bits per pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Parts(u32);

impl Parts {
    /// Returns the sum that every worker's contribution to `chunk` makes, each once.
    #[must_use]
    pub fn exact(layout: Layout, chunk: u8) -> Self {
        let mut parts = Self::default();
        for worker in 0..layout.workers {
            parts.add(layout, worker, chunk);
        }
        parts
    }

    /// Adds one contribution; beyond three the count stays.
    ///
    /// # Panics
    /// If the group has more than 16 pairs of worker and chunk.
    pub fn add(&mut self, layout: Layout, worker: u8, chunk: u8) {
        assert!(layout.workers * layout.chunks() <= 16, "Parts counts 16 pairs");
        let shift = 2 * (chunk * layout.workers + worker);
        if (self.0 >> shift) & 3 < 3 {
            self.0 += 1 << shift;
        }
    }

    fn count(self, layout: Layout, worker: u8, chunk: u8) -> u32 {
        (self.0 >> (2 * (chunk * layout.workers + worker))) & 3
    }

    /// Returns how many contributions went in.
    #[must_use]
    pub fn len(self, layout: Layout) -> u32 {
        let pairs = (0..layout.chunks()).flat_map(|c| (0..layout.workers).map(move |w| (w, c)));
        pairs.map(|(worker, chunk)| self.count(layout, worker, chunk)).sum()
    }

    /// Returns the sum as text, for a counterexample.
    #[must_use]
    pub fn text(self, layout: Layout) -> String {
        let mut terms = Vec::new();
        for chunk in 0..layout.chunks() {
            for worker in 0..layout.workers {
                match self.count(layout, worker, chunk) {
                    0 => {}
                    1 => terms.push(format!("w{worker}:c{chunk}")),
                    count => terms.push(format!("{count} x w{worker}:c{chunk}")),
                }
            }
        }
        terms.join(" + ")
    }
}

/// A finished sum: what went in, and which computation of the chunk's sum it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sum {
    /// The contributions.
    pub parts: Parts,
    /// Counts from 1 per chunk. Two computations may differ in their floating-point bits.
    pub computation: u8,
}

/// A message of the allreduce model. `holds` and `wanted` are bitmaps of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the fields are the words of the protocol")]
pub enum Message {
    /// Up: one worker's gradient chunk.
    Contribution { epoch: u8, worker: u8, chunk: u8, length: Length },
    /// Down, multicast: a chunk's sum.
    Answer { epoch: u8, chunk: u8, sum: Sum },
    /// Down, to one worker: contributions to the chunk differ in their lengths.
    Mismatch { epoch: u8, worker: u8, chunk: u8 },
    /// Down, to one worker: a member that the chunk lacks has closed.
    Left { epoch: u8, worker: u8, chunk: u8 },
    /// Up, after a restart: an answer from a worker that holds the sum.
    HandOver { epoch: u8, chunk: u8, sum: Sum },
    /// Up: a worker takes part in a new epoch and says which sums it has had.
    Join { epoch: u8, worker: u8, holds: u8 },
    /// Down, multicast: the epoch is open; holders are to hand over these chunks.
    Welcome { epoch: u8, wanted: u8 },
    /// Up: a worker has every sum of the group.
    Close { epoch: u8, worker: u8 },
    /// Down, multicast: all workers have every sum.
    Closed { epoch: u8 },
}

impl Message {
    /// True for what workers send to the aggregator.
    #[must_use]
    pub const fn goes_up(self) -> bool {
        matches!(
            self,
            Self::Contribution { .. }
                | Self::HandOver { .. }
                | Self::Join { .. }
                | Self::Close { .. }
        )
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Contribution { epoch, worker, chunk, .. } => {
                write!(f, "contribution w{worker}:c{chunk} of epoch {epoch}")
            }
            Self::Mismatch { epoch, worker, chunk } => {
                write!(f, "mismatch c{chunk} of epoch {epoch} to w{worker}")
            }
            Self::Left { epoch, worker, chunk } => {
                write!(f, "left c{chunk} of epoch {epoch} to w{worker}")
            }
            Self::Answer { epoch, chunk, sum } => {
                write!(f, "answer c{chunk} of epoch {epoch}, computation {}", sum.computation)
            }
            Self::HandOver { epoch, chunk, sum } => {
                write!(f, "hand-over c{chunk} in epoch {epoch}, computation {}", sum.computation)
            }
            Self::Join { epoch, worker, holds } => {
                write!(f, "join of w{worker} to epoch {epoch}, holds {holds:#b}")
            }
            Self::Welcome { epoch, wanted } => {
                write!(f, "welcome to epoch {epoch}, wanted {wanted:#b}")
            }
            Self::Close { epoch, worker } => write!(f, "close of w{worker} in epoch {epoch}"),
            Self::Closed { epoch } => write!(f, "closed in epoch {epoch}"),
        }
    }
}
