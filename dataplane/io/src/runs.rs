//! Decides which frames of a burst leave as one message, on whichever port: neighbours to one
//! destination that are as long as the first, but for a shorter last one.

use weft_wire::Nanos;

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

/// Whether a kernel takes runs. A refusal may be a firewall's, or of a path that is narrow for a
/// while, so it is asked again, later each time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segmentation {
    /// It gets frames until then.
    refused_until: Nanos,
    /// How long the next refusal counts.
    pause: Nanos,
}

impl Segmentation {
    /// Of a kernel that takes runs as far as is known, or of one that never does.
    pub(crate) fn new(is_known: bool) -> Self {
        let refused_until = if is_known { Nanos(0) } else { Nanos::MAX };
        Self { refused_until, pause: PAUSE_MIN }
    }

    /// True while a run may be offered.
    pub(crate) fn takes_runs(&self, now: Nanos) -> bool {
        now >= self.refused_until
    }

    /// A run was refused, and its frames were not. How long frames go one by one.
    pub(crate) fn refuse(&mut self, now: Nanos) -> Nanos {
        let pause = self.pause;
        self.refused_until = now.saturating_add(pause);
        self.pause = Nanos(pause.0.saturating_mul(2)).min(PAUSE_MAX);
        pause
    }

    /// A run has left.
    pub(crate) fn accept(&mut self) {
        self.pause = PAUSE_MIN;
    }
}

/// How long a kernel that has refused a run is not asked, at first and at most.
const PAUSE_MIN: Nanos = Nanos::from_millis(1_000);
const PAUSE_MAX: Nanos = Nanos::from_millis(64_000);

/// Frames of this length that make the longest run. Who offers a port that merges
/// ([`Port::merges`](crate::Port::merges)) more at once has it carry the rest as a short one, which
/// costs about as much.
#[must_use]
pub const fn run_frames_max(frame_len: usize) -> usize {
    match RUN_BYTES_MAX.checked_div(frame_len) {
        Some(0) => 1,
        Some(frames) if frames < BURST_MAX => frames,
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
    fn a_refusal_counts_twice_as_long_as_the_last_until_a_run_has_left() {
        let (mut segmentation, mut now) = (Segmentation::new(true), Nanos(0));
        for pause_ms in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 64_000] {
            assert!(segmentation.takes_runs(now));
            let pause = segmentation.refuse(now);
            assert_eq!(pause, Nanos::from_millis(pause_ms));
            assert!(!segmentation.takes_runs(Nanos(now.0 + pause.0 - 1)));
            now = Nanos(now.0 + pause.0);
        }
        segmentation.accept();
        assert_eq!(segmentation.refuse(now), PAUSE_MIN);
        assert!(!Segmentation::new(false).takes_runs(now), "one that knows no runs");
    }

    #[test]
    fn the_longest_run_fills_a_message_and_no_burst_is_longer() {
        assert_eq!(run_frames_max(1100), 59);
        assert_eq!(run_frames_max(8300), 7);
        assert_eq!([0, 60, 40_000, 70_000].map(run_frames_max), [BURST_MAX, BURST_MAX, 1, 1]);
    }
}
