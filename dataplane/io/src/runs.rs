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
            && self.bytes + len <= RUN_BYTES_MAX;
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

/// Frames of this length that make the longest run. Who offers a port that merges
/// ([`Port::merges`](crate::Port::merges)) more at once has it carry the rest as a short one, which
/// costs about as much.
#[must_use]
pub const fn run_frames_max(frame_len: usize) -> usize {
    let frames = if frame_len == 0 { BURST_MAX } else { RUN_BYTES_MAX / frame_len };
    match frames {
        0 => 1,
        1..BURST_MAX => frames,
        _ => BURST_MAX,
    }
}

/// Most bytes of payload of a message: with its headers it is below 64 KiB, beyond which the kernel
/// cuts it itself before it reaches an interface (`gso_max_size`).
pub const RUN_BYTES_MAX: usize = (1 << 16) - 1 - HEADERS_LEN_MAX;
/// Of Ethernet, IPv6 and UDP.
const HEADERS_LEN_MAX: usize = 62;
/// The kernel takes at least this many segments in a message (`UDP_MAX_SEGMENTS`, once 64).
const SEGMENTS_MAX: usize = 64;
const _: () = assert!(BURST_MAX <= SEGMENTS_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_run_fills_a_message_and_no_burst_is_longer() {
        assert_eq!(run_frames_max(1100), 59);
        assert_eq!(run_frames_max(8300), 7);
        assert_eq!([0, 60, 40_000, 70_000].map(run_frames_max), [BURST_MAX, BURST_MAX, 1, 1]);
    }
}
