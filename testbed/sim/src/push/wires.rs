//! The streams between the controller and the nodes: in order, late, and broken at times. What was
//! on its way when one broke is lost; the next begins with a hello.

use weft_wire::Nanos;

use crate::hash;

/// All streams, one for each node at a time.
#[derive(Clone, Debug)]
pub struct Wires {
    seed: u64,
    streams: Vec<Stream>,
    words: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Grows with every stream of the node.
    number: u64,
    is_up: bool,
    /// When the last word arrives, by direction.
    last: [Nanos; 2],
}

/// Which way a word goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// To the controller.
    Up = 0,
    /// To the node.
    Down = 1,
}

impl Wires {
    /// No stream yet.
    #[must_use]
    pub fn new(seed: u64, nodes: usize) -> Self {
        Self { seed, streams: vec![Stream::default(); nodes], words: 0 }
    }

    /// Opens a node's stream.
    pub fn open(&mut self, node: usize) {
        let stream = &mut self.streams[node];
        *stream = Stream { number: stream.number + 1, is_up: true, last: [Nanos(0); 2] };
    }

    /// Breaks a node's stream; its number, if there was one.
    pub fn cut(&mut self, node: usize) -> Option<u64> {
        let stream = &mut self.streams[node];
        let was_up = std::mem::take(&mut stream.is_up);
        was_up.then_some(stream.number)
    }

    /// True while that is the node's stream.
    #[must_use]
    pub fn is_current(&self, node: usize, number: u64) -> bool {
        self.streams[node].is_up && self.streams[node].number == number
    }

    /// True while the node has a stream.
    #[must_use]
    pub fn is_up(&self, node: usize) -> bool {
        self.streams[node].is_up
    }

    /// Sends a word: on which stream, and when it arrives. `None` without a stream.
    pub fn send(&mut self, now: Nanos, node: usize, way: Way) -> Option<(u64, Nanos)> {
        self.words += 1;
        let word = hash(&[self.seed, 7, node as u64, self.words]);
        let stream = &mut self.streams[node];
        if !stream.is_up {
            return None;
        }
        let at = now.saturating_add(Nanos(SPAN_NS_MIN + word % SPAN_NS));
        let last = &mut stream.last[way as usize];
        *last = at.max(last.saturating_add(Nanos(1)));
        Some((stream.number, *last))
    }
}

/// Least time that a word takes, and how much more it may take.
const SPAN_NS_MIN: u64 = 30_000;
const SPAN_NS: u64 = 400_000;
