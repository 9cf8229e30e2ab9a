use std::io::Write;
use std::net::SocketAddr;

use proptest::prelude::*;
use socket2::{Domain, Socket, Type};
use weft_wire::MacAddr;
use weft_wire::frame::{Encap, Endpoint, Udp};

use super::*;
use crate::supply::Supply;

const FRAME_LEN_MAX: usize = 1518;

/// A receiver, and a socket of ours that packets come from.
struct Pair {
    messages: Messages,
    intake: Intake,
    wire: Socket,
}

fn pair(frames: usize) -> Pair {
    let (socket, wire) = Socket::pair(Domain::UNIX, Type::DGRAM, None).unwrap();
    wire.set_send_buffer_size(1 << 21).unwrap();
    Pair {
        messages: Messages::new(PacketSocket::of(socket), FRAME_LEN_MAX),
        intake: Intake::new(Supply::new(frames, FRAME_LEN_MAX), true),
        wire,
    }
}

impl Pair {
    fn put(&self, vnet: [u8; VNET_LEN], packet: &[u8]) {
        let bytes = [&vnet[..], packet].concat();
        (&self.wire).write_all(&bytes).unwrap();
    }

    fn take(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let mut rx = Burst::new();
            if self.messages.receive(&mut self.intake, &mut rx) == 0 && !self.messages.has_more() {
                return all;
            }
            all.extend(rx.iter().map(|frame| frame.as_ref().to_vec()));
        }
    }
}

fn encap(ipv6: bool) -> Encap {
    let end = |last: u8| {
        let addr: SocketAddr = match ipv6 {
            true => format!("[fd00::{last}]:7").parse().unwrap(),
            false => format!("10.0.0.{last}:7").parse().unwrap(),
        };
        Endpoint { mac: MacAddr([2, 0, 0, 0, 0, last]), addr }
    };
    Encap::new(end(1), end(2)).unwrap()
}

/// A packet of a run of this payload, and the frames that it is.
fn run_of(ipv6: bool, payload: &[u8], segment_len: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
    let encap = encap(ipv6);
    let mut packet = vec![0; encap.header_len()];
    encap.emit(&mut packet, payload.len());
    run::leave_checksum(&mut packet);
    packet.extend_from_slice(payload);
    let frames = payload.chunks(segment_len).map(|payload| {
        let mut frame = vec![0; encap.header_len()];
        frame.extend_from_slice(payload);
        encap.emit(&mut frame, payload.len());
        encap.finish(&mut frame);
        frame
    });
    (packet, frames.collect())
}

fn single(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 42];
    frame.extend_from_slice(payload);
    encap(false).emit(&mut frame, payload.len());
    frame
}

proptest! {
    /// Whatever came before, and however it lies in frames, a packet is the frames that it was.
    #[test]
    fn packets_are_the_frames_that_they_were(
        packets in proptest::collection::vec(
            (any::<bool>(), 1..40_000_usize, prop_oneof![1..1456_usize, Just(1000), Just(1400)]),
            1..12,
        ),
        singles in proptest::collection::vec(0..12_usize, 12),
        frames in prop_oneof![Just(5_usize), Just(40), Just(300)],
    ) {
        let mut pair = pair(frames);
        let mut mark = 0_u8;
        for (index, (ipv6, len, segment_len)) in packets.into_iter().enumerate() {
            let len = len.min(segment_len * 300);
            let payload: Vec<u8> = (0..=250_u8).cycle().take(len).map(|byte| byte ^ mark).collect();
            let (packet, mut expected) = run_of(ipv6, &payload, segment_len);
            pair.put(VnetHeader::of_run(encap(ipv6).header_len(), segment_len), &packet);
            for _ in 0..singles[index] {
                mark = mark.wrapping_add(1);
                let frame = single(&vec![mark; usize::from(mark) * 5 + 1]);
                pair.put(VnetHeader::PLAIN, &frame);
                expected.push(frame);
            }
            prop_assert_eq!(pair.take(), expected);
        }
        prop_assert_eq!(pair.intake.stats.rx_errors, 0);
    }

    /// Nothing that a header or packet says makes it panic, and each packet is frames or counts.
    #[test]
    fn no_packet_panics(
        packets in proptest::collection::vec(
            (
                any::<[u8; VNET_LEN]>(),
                proptest::collection::vec(any::<u8>(), 0..3000),
                0..70_000_usize,
                any::<(bool, bool, u8, usize)>(),
            ),
            1..20,
        ),
    ) {
        let mut pair = pair(100);
        for (mut vnet, noise, len, (ipv6, is_run, bits, at)) in packets {
            let mut packet = noise;
            if is_run {
                let segment_len = usize::from(u16::from_ne_bytes([vnet[4], vnet[5]])).max(1);
                packet = run_of(ipv6, &vec![bits; len.clamp(1, 65_000)], segment_len).0;
                vnet[1] = 5;
                // One byte is not as it was.
                let at = at % (packet.len() + VNET_LEN).min(80);
                match at.checked_sub(VNET_LEN) {
                    None => vnet[at] ^= bits,
                    Some(at) => packet[at] ^= bits,
                }
            }
            pair.put(vnet, &packet);
            let frames = pair.take().len() as u64;
            prop_assert!(frames > 0 || pair.intake.stats.rx_errors > 0);
            pair.intake.stats.rx_errors = 0;
        }
    }
}

#[test]
fn a_packet_without_a_header_of_its_own_is_refused() {
    let mut pair = pair(10);
    for len in [1, 9, 10, 11, 10 + 13] {
        (&pair.wire).write_all(&vec![0; len]).unwrap();
        assert_eq!(pair.take().len(), 0);
    }
    assert_eq!(pair.intake.stats.rx_errors, 5);
    pair.put(VnetHeader::PLAIN, &[0; FRAME_LEN_MAX + 1]);
    pair.put(VnetHeader::PLAIN, &vec![0; 100_000]);
    pair.put(VnetHeader::PLAIN, &[0; FRAME_LEN_MAX]);
    assert_eq!(pair.take().len(), 1);
    assert_eq!((pair.intake.stats.rx_errors, pair.intake.oversize), (7, 2));
}

#[test]
fn a_run_in_place_is_not_copied_and_a_checksum_that_nobody_wants_is_not_made() {
    let mut pair = pair(100);
    pair.intake.ipv4_checksum = false;
    for ipv6 in [false, true] {
        for _ in 0..3 {
            let (packet, expected) = run_of(ipv6, &[7; 5000], 1000);
            pair.put(VnetHeader::of_run(encap(ipv6).header_len(), 1000), &packet);
            let frames = pair.take();
            assert_eq!(frames.len(), 5);
            for (frame, expected) in frames.iter().zip(expected) {
                let udp = Udp::parse(frame).unwrap();
                assert_eq!(udp.payload_range(), Udp::parse(&expected).unwrap().payload_range());
                assert_eq!(udp.checksum_ok(frame), ipv6);
                assert_eq!(udp.checksum == 0, !ipv6);
            }
        }
        // The buffer still has what the first one left there.
        pair.messages.bytes.fill(0);
        let (packet, _) = run_of(ipv6, &[8; 5000], 1000);
        pair.put(VnetHeader::of_run(encap(ipv6).header_len(), 1000), &packet);
        assert_eq!(pair.take().len(), 5);
        assert!(pair.messages.bytes.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_tag_that_the_kernel_took_off_is_on_each_frame_of_a_run() {
    let pool = crate::pool::Pool::new(1, FRAME_LEN_MAX);
    let (packet, expected) = run_of(false, &[7; 2 * 1472], 1472);
    let cut = Cut::new(VnetHeader::read(VnetHeader::of_run(42, 1472)), &packet, packet.len());
    let vlan = Some((Some(0x88a8), 0x602a));
    let about = Received { len: packet.len(), truncated: false, vlan, arrived_ns: 5 };
    assert_eq!(about.frame_len(), packet.len() + 4);
    let mut frame = pool.alloc().unwrap();
    frame.buffer_mut()[42..42 + 1472].fill(7);
    assert!(put_headers(&mut frame, &packet[..42], 1472, &cut.unwrap(), &about, true));
    assert_eq!(frame.as_ref()[12..16], [0x88, 0xa8, 0x60, 0x2a]);
    assert_eq!([&frame.as_ref()[..12], &frame.as_ref()[16..]].concat(), expected[0]);
    assert_eq!(frame.arrived_ns(), Some(5));
}
