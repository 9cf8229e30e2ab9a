//! Hands out the datagrams of a run in one piece ([`Port::join_runs`](crate::Port::join_runs)):
//! together where an engine takes them so, and one by one, with headers of their own, where it does
//! not. Decides only.

use weft_wire::frame::{ETHERNET_LEN, IPV6_LEN, UDP_LEN, Udp, run};

/// Who gets them.
pub trait Takes {
    /// Takes datagrams from the front of a run; returns how many.
    fn take_run(&mut self, udp: &Udp, datagrams: &mut [u8], datagram_len: usize) -> usize;

    /// Takes a frame.
    fn take_frame(&mut self, frame: &mut [u8]);
}

/// Hands out all of a run: the headers of its first datagram, and datagrams of `datagram_len`
/// bytes, of which the last may be shorter.
pub fn hand_out(frame: &mut [u8], datagram_len: usize, to: &mut impl Takes) {
    let Ok(udp) = Udp::parse(frame) else { return };
    let headers_len = udp.payload_start;
    let mut headers = [0; HEADERS_LEN_MAX];
    let headers = &mut headers[..headers_len];
    headers.copy_from_slice(&frame[..headers_len]);
    let mut at = 0;
    while at + headers_len < frame.len() {
        at += datagram_len * to.take_run(&udp, &mut frame[at + headers_len..], datagram_len);
        if at + headers_len >= frame.len() {
            return;
        }
        // Its headers stand over the end of the datagram before, which is done with.
        let end = frame.len().min(at + headers_len + datagram_len);
        run::set_payload_len(headers, end - at - headers_len);
        frame[at..at + headers_len].copy_from_slice(headers);
        to.take_frame(&mut frame[at..end]);
        at += datagram_len;
    }
}

/// Bytes of the longest headers in front of a payload: over IPv6.
const HEADERS_LEN_MAX: usize = ETHERNET_LEN + IPV6_LEN + UDP_LEN;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use weft_wire::MacAddr;
    use weft_wire::frame::{Encap, Endpoint};

    use super::*;

    /// Takes as many datagrams together as it is told, each time, and keeps all.
    #[derive(Default)]
    struct Taker {
        together: VecDeque<usize>,
        datagrams: Vec<Vec<u8>>,
        frames: usize,
    }

    impl Takes for Taker {
        fn take_run(&mut self, udp: &Udp, datagrams: &mut [u8], datagram_len: usize) -> usize {
            assert_eq!(udp.source.port(), 7);
            let count = self.together.pop_front().unwrap_or(0);
            let taken: Vec<_> = datagrams.chunks(datagram_len).take(count).collect();
            self.datagrams.extend(taken.iter().map(|datagram| datagram.to_vec()));
            taken.len()
        }

        fn take_frame(&mut self, frame: &mut [u8]) {
            let udp = Udp::parse(frame).expect("headers of its own");
            assert_eq!((udp.source.port(), udp.target.port()), (7, 9));
            self.datagrams.push(frame[udp.payload_range()].to_vec());
            self.frames += 1;
            // Engines may write there; headers that come later stand there anyway.
            frame.fill(0xee);
        }
    }

    #[test]
    fn every_datagram_is_handed_out_once() {
        for (source, target) in [("10.0.0.1:7", "10.0.0.2:9"), ("[fd00::1]:7", "[fd00::2]:9")] {
            let end = |addr: &str| Endpoint {
                mac: MacAddr::BROADCAST,
                addr: addr.parse().expect("an address"),
            };
            let encap = Encap::new(end(source), end(target)).expect("of one family");
            let start = encap.header_len();
            let bytes: Vec<u8> = (0..95).collect();
            for (together, frames) in
                [(vec![], 10), (vec![10], 0), (vec![9], 1), (vec![0, 3, 1], 6), (vec![2, 0, 7], 2)]
            {
                let mut frame = vec![0; start + 95];
                frame[start..].copy_from_slice(&bytes);
                encap.emit(&mut frame, 10);
                let mut taker = Taker { together: together.clone().into(), ..Taker::default() };
                hand_out(&mut frame, 10, &mut taker);
                let expected: Vec<Vec<u8>> = bytes.chunks(10).map(<[u8]>::to_vec).collect();
                assert_eq!(taker.datagrams, expected, "{together:?} of {source}");
                assert_eq!(taker.frames, frames, "{together:?}");
            }
        }
    }

    #[test]
    fn what_has_no_headers_is_nothing() {
        let mut taker = Taker::default();
        hand_out(&mut [0; 80], 10, &mut taker);
        hand_out(&mut [], 10, &mut taker);
        assert_eq!((taker.datagrams.len(), taker.frames), (0, 0));
    }
}
