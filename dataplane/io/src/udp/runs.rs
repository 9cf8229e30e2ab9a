//! Decides which frames of a burst leave as one message: runs to one destination in which all are
//! as long as the first, but for a shorter last one. All of one call carry one traffic class, which
//! is the socket's.
//!
//! Source: udp(7), `UDP_SEGMENT`. The order of the frames of one socket stays what it is, so only
//! neighbours make a run. One `sendmmsg` has one segment length (nix writes the same control
//! messages for all of its messages), so a burst with runs of two lengths takes two.

use arrayvec::ArrayVec;

use super::transmit::Departure;
use crate::port::BURST_MAX;
use crate::runs::{Leaving, Run};

/// What one `sendmmsg` sends: messages, from the first frame on.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Call {
    /// Frames of each message.
    pub(super) runs: ArrayVec<u8, BURST_MAX>,
    /// Length of the segments that messages are cut into; `None`: each is one frame.
    pub(super) segment_len: Option<u16>,
}

impl Call {
    /// One message of so many frames with so many bytes of payload each.
    pub(super) fn run(frames: usize, segment_len: usize) -> Self {
        let runs = ArrayVec::from_iter([u8::try_from(frames).unwrap_or(u8::MAX)]);
        Self { runs, segment_len: u16::try_from(segment_len).ok() }
    }

    /// So many messages of a frame each.
    pub(super) fn one_by_one(count: usize) -> Self {
        Self { runs: std::iter::repeat_n(1, count).collect(), segment_len: None }
    }

    /// Frames of the first `messages` messages.
    pub(super) fn frames(&self, messages: usize) -> usize {
        self.runs.iter().take(messages).map(|run| usize::from(*run)).sum()
    }
}

impl Leaving for Departure {
    fn payload_len(&self) -> usize {
        self.payload.len()
    }

    fn is_apart(&self) -> bool {
        self.is_apart
    }

    fn goes_with(&self, other: &Self) -> bool {
        self.target == other.target && self.traffic_class == other.traffic_class
    }
}

/// The messages that the next call sends of `departures`, which are not empty.
pub(super) fn next_call<'a>(
    departures: impl Iterator<Item = &'a Departure>,
    takes_runs: bool,
) -> Call {
    let mut departures = departures.peekable();
    let mut call = Call::default();
    // A message that is no longer than the segments' length is not cut.
    let mut single_len_max = 0;
    let class = departures.peek().map(|first| first.traffic_class);
    while let Some(first) = departures.next_if(|next| Some(next.traffic_class) == class) {
        let mut run = Run::begin(first);
        while takes_runs && departures.next_if(|departure| run.take(departure)).is_some() {}
        let segment_len = u16::try_from(run.segment_len()).unwrap_or(u16::MAX);
        let is_single = run.frames() == 1;
        let belongs = match call.segment_len {
            Some(common) if is_single => segment_len <= common,
            Some(common) => segment_len == common,
            None => is_single || single_len_max <= segment_len,
        };
        if !belongs {
            break;
        }
        if is_single {
            single_len_max = single_len_max.max(segment_len);
        } else {
            call.segment_len = Some(segment_len);
        }
        call.runs.push(u8::try_from(run.frames()).unwrap_or(u8::MAX));
    }
    call
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn frame(port: u16, len: usize) -> Departure {
        let target = SocketAddr::from(([10, 0, 0, 1], port));
        let payload = 42..42 + len;
        Departure { socket: 0, target, traffic_class: 2, payload, is_apart: false }
    }

    /// The runs of each call, with its segment length (0: none), until all frames are gone.
    fn calls(frames: &[Departure]) -> Vec<(Vec<u8>, u16)> {
        let mut left = frames;
        let mut calls = Vec::new();
        while !left.is_empty() {
            let call = next_call(left.iter(), true);
            left = &left[call.frames(call.runs.len())..];
            calls.push((call.runs.to_vec(), call.segment_len.unwrap_or(0)));
        }
        calls
    }

    #[test]
    fn neighbours_of_one_length_and_target_are_a_run_and_a_shorter_one_ends_it() {
        let frames = [
            frame(1, 100),
            frame(1, 100),
            frame(1, 60),
            frame(1, 60),
            frame(2, 100),
            frame(2, 100),
            frame(1, 100),
        ];
        assert_eq!(calls(&frames), [(vec![3, 1, 2, 1], 100)]);
        assert_eq!(next_call(frames.iter(), false).runs.to_vec(), [1; 7]);
        assert_eq!(next_call(frames.iter(), false).segment_len, None);
    }

    #[test]
    fn runs_of_two_lengths_take_two_calls() {
        let frames = [frame(1, 100), frame(1, 100), frame(2, 32), frame(2, 32), frame(3, 32)];
        assert_eq!(calls(&frames), [(vec![2], 100), (vec![2, 1], 32)]);
    }

    #[test]
    fn a_longer_frame_is_never_cut_by_anothers_segments() {
        let frames = [frame(1, 200), frame(2, 32), frame(2, 32), frame(3, 200)];
        assert_eq!(calls(&frames), [(vec![1], 0), (vec![2], 32), (vec![1], 0)]);
    }

    #[test]
    fn a_frame_that_stays_apart_is_in_no_run() {
        let mut frames = vec![frame(1, 100); 5];
        frames[2].is_apart = true;
        assert_eq!(calls(&frames), [(vec![2, 1, 2], 100)]);
    }

    #[test]
    fn a_call_has_one_traffic_class() {
        let mut frames = vec![frame(1, 100); 5];
        frames[2].traffic_class = 0x0e;
        frames[3].traffic_class = 0x0e;
        assert_eq!(calls(&frames), [(vec![2], 100), (vec![2], 100), (vec![1], 0)]);
        assert_eq!(next_call(frames.iter(), false).runs.to_vec(), [1; 2]);
    }

    #[test]
    fn a_message_fits_a_datagram() {
        assert_eq!(calls(&vec![frame(1, 8960); 9]), [(vec![7, 2], 8960)]);
        assert_eq!(calls(&vec![frame(1, 65_507); 2]), [(vec![1, 1], 0)]);
    }
}
