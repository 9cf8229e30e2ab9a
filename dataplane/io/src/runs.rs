//! Decides which frames of a burst leave as one message, on whichever port: neighbours to one
//! destination that are as long as the first, but for a shorter last one.

use crate::port::BURST_MAX;

/// What a port knows of a frame that is to leave.
pub(crate) trait Leaving {
    /// Bytes of its payload.
    fn payload_len(&self) -> usize;

    /// It is in no run with others.
    fn is_apart(&self) -> bool;

    /// The two differ in nothing that a message has but once.
    fn goes_with(&self, other: &Self) -> bool;
}

/// A run that may go on.
#[derive(Debug)]
pub(crate) struct Run<'a, L> {
    first: &'a L,
    bytes: usize,
    frames: usize,
    is_over: bool,
}

impl<'a, L: Leaving> Run<'a, L> {
    pub(crate) fn begin(first: &'a L) -> Self {
        let len = first.payload_len();
        Self { first, bytes: len, frames: 1, is_over: first.is_apart() || len == 0 }
    }

    /// Takes one more frame, if it may be in this run.
    pub(crate) fn take(&mut self, next: &L) -> bool {
        let len = next.payload_len();
        let fits = !self.is_over
            && !next.is_apart()
            && (1..=self.segment_len()).contains(&len)
            && next.goes_with(self.first)
            && self.bytes + len <= MESSAGE_BYTES_MAX;
        if fits {
            self.bytes += len;
            self.frames += 1;
            self.is_over = len < self.segment_len();
        }
        fits
    }

    /// Bytes of payload of each frame but the last, which may be shorter.
    pub(crate) fn segment_len(&self) -> usize {
        self.first.payload_len()
    }

    /// Bytes of payload of all.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn frames(&self) -> usize {
        self.frames
    }
}

/// Most bytes of payload of a message: with its headers it is below 64 KiB, beyond which the kernel
/// cuts it itself before it reaches an interface (`gso_max_size`).
const MESSAGE_BYTES_MAX: usize = (1 << 16) - 1 - HEADERS_LEN_MAX;
/// Of Ethernet, IPv6 and UDP.
const HEADERS_LEN_MAX: usize = 62;
/// The kernel takes at least this many segments in a message (`UDP_MAX_SEGMENTS`, once 64).
const SEGMENTS_MAX: usize = 64;
const _: () = assert!(BURST_MAX <= SEGMENTS_MAX);
