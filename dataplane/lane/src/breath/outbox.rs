//! Frames on their way out of a lane. Decides in which order they are offered to the port.
//!
//! A port that sends neighbours to one destination as one ([`Port::merges`]) is offered what a
//! breath has for each destination together; any other gets the frames in the order that they were
//! decided in. Frames to one destination keep their order in both cases. Invariants: nothing waits
//! beyond the breath; nothing allocates after [`Outbox::new`]; what the port refuses is freed and
//! counted, for it is loss like any other (PROTOCOL section 10).

use weft_io::{BURST_MAX, Burst, Frame, Port, run_frames_max};
use weft_wire::Nanos;
use weft_wire::frame::{ETHERNET_LEN, IPV4_LEN, IPV6_LEN};

/// Frames to be sent.
#[derive(Debug)]
pub(super) struct Outbox<F> {
    tx: Burst<F>,
    /// What waits for the breath's end, where frames are sorted.
    queue: Vec<Option<F>>,
    /// Destinations of the queue's frames and their places in it.
    order: Vec<(u64, usize)>,
}

impl<F: Frame> Outbox<F> {
    /// Empty; sorts if the port `merges`.
    pub(super) fn new(merges: bool) -> Self {
        let capacity = if merges { QUEUE_FRAMES_MAX } else { 0 };
        Self {
            tx: Burst::new_const(),
            queue: Vec::with_capacity(capacity),
            order: Vec::with_capacity(capacity),
        }
    }

    /// Takes a frame; returns how many others the port refused meanwhile.
    // In a function of its own each frame costs some 20 instructions more.
    #[inline(always)]
    pub(super) fn push<P: Port<Frame = F>>(&mut self, now: Nanos, port: &mut P, frame: F) -> u64 {
        let refused = if self.tx.is_full() { self.make_room(now, port) } else { 0 };
        self.tx.push(frame);
        refused
    }

    /// Offers all frames to the port; returns how many it refused.
    pub(super) fn flush<P: Port<Frame = F>>(&mut self, now: Nanos, port: &mut P) -> u64 {
        if self.queue.is_empty() && self.queue.capacity() == 0 {
            return self.offer(now, port);
        }
        self.queue.extend(self.tx.drain(..).map(Some));
        self.offer_sorted(now, port)
    }

    fn make_room<P: Port<Frame = F>>(&mut self, now: Nanos, port: &mut P) -> u64 {
        if self.queue.capacity() == 0 {
            return self.offer(now, port);
        }
        self.queue.extend(self.tx.drain(..).map(Some));
        if self.queue.len() + BURST_MAX > QUEUE_FRAMES_MAX {
            return self.offer_sorted(now, port);
        }
        0
    }

    /// Bursts end between two destinations, where that splits no burst of one.
    fn offer_sorted<P: Port<Frame = F>>(&mut self, now: Nanos, port: &mut P) -> u64 {
        let frames = self.queue.iter().enumerate();
        let key = |frame: &Option<F>| frame.as_ref().map_or(0, |frame| destination(frame.as_ref()));
        self.order.clear();
        self.order.extend(frames.map(|(place, frame)| (key(frame), place)));
        self.order.sort_unstable();
        let mut refused = 0;
        let mut from = 0;
        while from < self.order.len() {
            let (target, _) = self.order[from];
            let count = self.order[from..].iter().take_while(|(to, _)| *to == target).count();
            if !self.tx.is_empty() && self.tx.len() + count > BURST_MAX {
                refused += self.offer(now, port);
            }
            let run_max = self.run_frames_max(from);
            for at in from..from + count {
                let (_, place) = self.order[at];
                if let Some(frame) = self.queue[place].take() {
                    let is_run_full = at > from && (at - from).is_multiple_of(run_max);
                    if self.tx.is_full() || is_run_full {
                        refused += self.offer(now, port);
                    }
                    self.tx.push(frame);
                }
            }
            from += count;
        }
        self.queue.clear();
        refused + self.offer(now, port)
    }

    /// Frames that make the longest run, if all are as long as the one at this place of the order.
    fn run_frames_max(&self, at: usize) -> usize {
        let (_, place) = self.order[at];
        let len = self.queue[place].as_ref().map_or(0, |frame| frame.as_ref().len());
        run_frames_max(len)
    }

    /// Offers a burst once.
    fn offer<P: Port<Frame = F>>(&mut self, now: Nanos, port: &mut P) -> u64 {
        if self.tx.is_empty() {
            return 0;
        }
        port.tx_burst(now, &mut self.tx);
        let refused = self.tx.len() as u64;
        port.free(&mut self.tx);
        refused
    }
}

/// Sorts frames by where they go: the same number for the same IP address and UDP port, and most
/// likely another for others. Any frame has one. Multicast comes first: who gets a sum so, and a
/// repeat of it, would take the sum for lost if the repeat came before it.
fn destination(frame: &[u8]) -> u64 {
    let is_ipv4 = frame.get(ETHERNET_LEN).is_some_and(|byte| byte >> 4 == 4);
    let (address, port) = if is_ipv4 { IPV4_DESTINATION } else { IPV6_DESTINATION };
    let Some(bytes) = frame.get(address..port + 2) else { return 0 };
    let parts = bytes[..port - address].chunks(4).chain([&bytes[port - address..]]);
    let key = parts.fold(0, |key: u64, part| {
        let word = part.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        key.rotate_left(16) ^ word
    });
    let is_multicast = if is_ipv4 { bytes[0] >> 4 == 0xe } else { bytes[0] == 0xff };
    key >> 1 | u64::from(!is_multicast) << 63
}

/// Where a frame's destination address and UDP port begin; between them lies the source port.
const IPV4_DESTINATION: (usize, usize) = (ETHERNET_LEN + 16, ETHERNET_LEN + IPV4_LEN + 2);
const IPV6_DESTINATION: (usize, usize) = (ETHERNET_LEN + 24, ETHERNET_LEN + IPV6_LEN + 2);
/// Frames sorted at once: a full burst's answers to 32 members.
const QUEUE_FRAMES_MAX: usize = BURST_MAX * 32;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use weft_io::forward_port;
    use weft_io::memory::{MemoryPort, link};
    use weft_io::pool::PoolFrame;
    use weft_wire::MacAddr;
    use weft_wire::frame::{Encap, Endpoint};

    use super::*;

    /// Notes the sizes of the bursts that it is offered.
    struct Noted {
        port: MemoryPort,
        bursts: Vec<usize>,
    }

    impl Port for Noted {
        type Frame = PoolFrame;

        fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
            self.port.rx_burst(now, rx)
        }

        fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
            self.bursts.push(tx.len());
            self.port.tx_burst(now, tx)
        }

        forward_port!(port: alloc, info, stats);
    }

    /// A frame whose payload is as many times its mark.
    fn frame(port: &mut Noted, target: &str, mark: u8, payload_len: usize) -> PoolFrame {
        let target: SocketAddr = target.parse().unwrap();
        let own = if target.is_ipv4() { "10.0.0.9:9" } else { "[fd00::9]:9" };
        let end = |addr| Endpoint { mac: MacAddr([2, 0, 0, 0, 0, 1]), addr };
        let encap = Encap::new(end(own.parse().unwrap()), end(target)).unwrap();
        let mut frame = port.alloc().unwrap();
        frame.buffer_mut()[encap.header_len()..][..payload_len].fill(mark);
        let len = encap.emit(frame.buffer_mut(), payload_len);
        frame.set_len(len);
        frame
    }

    /// The marks in the order that they were sent in, and the bursts.
    fn sent(merges: bool, frames: &[(&str, u8)]) -> (Vec<u8>, Vec<usize>) {
        sent_of(1, merges, frames)
    }

    /// The same of frames with so much payload.
    fn sent_of(payload_len: usize, merges: bool, frames: &[(&str, u8)]) -> (Vec<u8>, Vec<usize>) {
        let (mut peer, port) = link(4096, 1500, ["peer", "box"]);
        let mut port = Noted { port, bursts: Vec::new() };
        let mut outbox = Outbox::new(merges);
        for (target, mark) in frames {
            let frame = frame(&mut port, target, *mark, payload_len);
            assert_eq!(outbox.push(Nanos(0), &mut port, frame), 0);
        }
        assert_eq!(outbox.flush(Nanos(0), &mut port), 0);
        let mut marks = Vec::new();
        let mut rx = Burst::new();
        while peer.rx_burst(Nanos(0), &mut rx) > 0 {
            marks.extend(rx.drain(..).map(|frame| *frame.as_ref().last().unwrap()));
        }
        (marks, port.bursts)
    }

    #[test]
    fn what_goes_to_one_destination_leaves_together_and_in_order() {
        for [a, b] in [
            ["10.0.0.1:7", "10.0.0.2:7"],
            ["10.0.0.1:7", "10.0.0.1:8"],
            ["[fd00::1]:7", "[fd00::2]:7"],
        ] {
            let frames = [(b, 1), (a, 2), (b, 3), (a, 4), (b, 5)];
            let (mut marks, _) = sent(true, &frames);
            if marks[0] == 1 {
                marks.rotate_left(3);
            }
            assert_eq!(marks, [2, 4, 1, 3, 5], "{a} {b}");
            assert_eq!(sent(false, &frames).0, [1, 2, 3, 4, 5]);
        }
    }

    #[test]
    fn multicast_leaves_first() {
        for [one, all] in [["10.0.0.1:7", "239.87.69.0:7"], ["[fd00::1]:7", "[ff12::5745:0]:7"]] {
            assert_eq!(sent(true, &[(one, 1), (all, 2), (one, 3), (all, 4)]).0, [2, 4, 1, 3]);
        }
    }

    #[test]
    fn a_burst_ends_between_destinations() {
        let mut frames = Vec::new();
        for mark in 0..40 {
            frames.extend([("10.0.0.1:7", mark), ("10.0.0.2:7", mark), ("10.0.0.3:7", mark)]);
        }
        assert_eq!(sent(true, &frames).1, [40, 40, 40]);
        assert_eq!(sent(false, &frames).1, [64, 56]);
        let few = [("10.0.0.1:7", 0), ("10.0.0.2:7", 1), ("10.0.0.3:7", 2)];
        assert_eq!(sent(true, &few).1, [3], "small groups share a burst");
    }

    #[test]
    fn what_one_message_cannot_hold_leaves_in_full_runs() {
        let frames: Vec<_> =
            (0..150).flat_map(|mark| [("10.0.0.1:7", mark), ("10.0.0.2:7", mark)]).collect();
        // 59 frames of 1,100 bytes fill a message.
        assert_eq!(sent_of(1058, true, &frames).1, [59, 59, 32, 59, 59, 32]);
        assert_eq!(sent_of(1058, false, &frames).1, [64, 64, 64, 64, 44]);
    }

    #[test]
    fn a_full_queue_leaves_before_the_breath_ends() {
        let frames = vec![("10.0.0.1:7", 0); QUEUE_FRAMES_MAX + 1];
        let (marks, bursts) = sent(true, &frames);
        assert_eq!(marks.len(), QUEUE_FRAMES_MAX + 1);
        assert!(bursts[..QUEUE_FRAMES_MAX / BURST_MAX].iter().all(|len| *len == BURST_MAX));
    }

    #[test]
    fn a_frame_that_is_no_datagram_has_a_place_too() {
        assert_eq!(destination(&[]), 0);
        assert_eq!(destination(&[0x45; 20]), 0);
        let _ = destination(&[0x60; 60]);
    }
}
