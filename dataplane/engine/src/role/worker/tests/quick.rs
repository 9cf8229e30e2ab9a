//! The short way of a sum against the long way, which every frame may go.

use core::net::IpAddr;

use proptest::prelude::*;
use weft_wire::header::HEADER_LEN;
use weft_wire::hello::Integrity;

use super::*;
use crate::role::aggregator::tests::quick::mend;

const GROUP: [u8; 4] = [239, 87, 69, 3];

/// What a lease is like, and where its sums go.
#[derive(Clone, Copy, Debug)]
struct Kindred {
    integrity: Integrity,
    exponent: Option<i8>,
    is_cast: bool,
}

const PLAIN: Kindred = Kindred { integrity: Integrity::Crc32c, exponent: Some(0), is_cast: false };

/// A worker of two in the middle of its first window, and the sum that it waits for.
fn waiting(kind: Kindred) -> (Sim, Vec<u8>) {
    let mut sim = Sim::new(2, 4, 2);
    (sim.fake.integrity, sim.fake.exponent) = (kind.integrity, kind.exponent);
    for rank in 0..2 {
        let multicast = Some(IpAddr::from(GROUP)).filter(|_| kind.is_cast);
        sim.replace(rank, WorkerConfig { multicast, ..config(rank) }, rank as u64);
    }
    let header = sim.await_sum();
    let mut frame = sim.fake.wrap(0, 0, &header, &[7; 16]);
    if kind.is_cast {
        frame[30..34].copy_from_slice(&GROUP);
        frame[36..38].copy_from_slice(&boxy().addr.port().to_be_bytes());
        mend(&mut frame, true, false);
    }
    (sim, frame)
}

/// What a frame has come to.
#[derive(Debug, PartialEq)]
struct Outcomes {
    outcome: Result<(), Refusal>,
    frame: Vec<u8>,
    stats: WorkerStats,
    values: Vec<i32>,
    done: Vec<bool>,
    timeout: Nanos,
}

fn offer(sim: &mut Sim, frame: &[u8], is_short: bool) -> Outcomes {
    let mut frame = frame.to_vec();
    let (worker, data) = (&mut sim.workers[0], &mut sim.data[0]);
    let outcome = match is_short {
        true => worker.handle_frame(sim.now, &mut frame, data),
        false => {
            let outcome = worker.receive(sim.now, &mut frame, data);
            worker.note_refusal(outcome)
        }
    };
    Outcomes {
        outcome,
        frame,
        stats: worker.stats().clone(),
        values: data.values.clone(),
        done: data.done.clone(),
        timeout: worker.poll_timeout(),
    }
}

fn is_ordinary(sim: &mut Sim, frame: &[u8]) -> bool {
    sim.workers[0].take_quickly(sim.now, frame, &mut sim.data[0]).is_some()
}

fn kinds() -> Vec<Kindred> {
    let mut kinds = Vec::new();
    for integrity in [Integrity::Crc32c, Integrity::None] {
        for exponent in [Some(0), None] {
            for is_cast in [false, true] {
                kinds.push(Kindred { integrity, exponent, is_cast });
            }
        }
    }
    kinds
}

#[test]
fn an_ordinary_sum_goes_the_short_way() {
    for kind in kinds() {
        let (mut sim, frame) = waiting(kind);
        assert!(is_ordinary(&mut sim, &frame), "{kind:?}");
        assert_eq!(sim.data[0].done, [false, false, true, false]);
        assert_eq!(sim.workers[0].stats().answers_by_multicast, u64::from(kind.is_cast));
    }
}

/// What routers change, and what a box puts into some of its frames.
#[test]
fn what_differs_from_frame_to_frame_leaves_it_ordinary() {
    let free = [
        (0, 0xff, "target MAC"),
        (11, 0xff, "source MAC"),
        (15, 0xff, "type of service"),
        (18, 0xff, "identification"),
        (20, 0xc0, "don't fragment"),
        (22, 0xff, "hop limit"),
        (40, 0xff, "UDP checksum"),
        (43, 0xf8, "flags"),
        (57, 2, "chunk"),
        (74, 0xff, "payload, and so the CRC"),
    ];
    for (at, bits, what) in free {
        let (mut sim, mut frame) = waiting(PLAIN);
        frame[at] ^= bits;
        mend(&mut frame, true, true);
        assert!(is_ordinary(&mut sim, &frame), "{what}");
    }
}

#[test]
fn what_has_another_meaning_goes_the_long_way() {
    let (mut sim, frame) = waiting(PLAIN);
    for (at, bits, what) in [(42, 7, "kind"), (44, 1, "job"), (46, 1, "cookie"), (35, 1, "source")]
    {
        let mut other = frame.clone();
        other[at] ^= bits;
        mend(&mut other, true, true);
        assert!(!is_ordinary(&mut sim, &other), "{what}");
    }
    let (mut sim, frame) = waiting(Kindred { exponent: None, ..PLAIN });
    for exponent in [127_i8, -127, -128] {
        let mut other = frame.clone();
        other[42 + 17] = exponent.cast_unsigned();
        mend(&mut other, true, true);
        assert!(!is_ordinary(&mut sim, &other), "exponent {exponent}");
        assert_eq!(offer(&mut sim, &other, true).outcome, Err(Refusal::Elements));
    }
    let checksum16 = Kindred { integrity: Integrity::Checksum16, ..PLAIN };
    let (mut sim, frame) = waiting(checksum16);
    assert!(!is_ordinary(&mut sim, &frame), "the checksum needs a look at all of it");
    assert_eq!(offer(&mut sim, &frame, true).outcome, Ok(()));
}

#[test]
fn nothing_is_ordinary_while_the_lane_shakes_hands() {
    let (mut sim, frame) = waiting(PLAIN);
    let now = sim.now;
    sim.workers[0].lanes[0].begin_handshake(now);
    assert!(!is_ordinary(&mut sim, &frame));
}

#[test]
fn both_ways_agree_on_every_flipped_bit() {
    for kind in kinds() {
        let (_, whole) = waiting(kind);
        for bit in 0..whole.len() * 8 {
            for mended in [false, true] {
                let (mut short, _) = waiting(kind);
                let (mut long, _) = waiting(kind);
                let mut frame = whole.clone();
                frame[bit / 8] ^= 1 << (bit % 8);
                mend(&mut frame, mended, mended && kind.integrity == Integrity::Crc32c);
                let outcomes = (offer(&mut short, &frame, true), offer(&mut long, &frame, false));
                assert_eq!(outcomes.0, outcomes.1, "bit {bit}, mended {mended}, {kind:?}");
            }
        }
    }
}

proptest! {
    /// Bits are flipped in the headers; the IP and CRC checksums may be put right again, so that
    /// the flip reaches the checks behind them.
    #[test]
    fn both_ways_agree_on_any_frame(
        kind in 0..8_usize,
        flips in proptest::collection::vec((0..42 + HEADER_LEN, 0..8_u32), 0..4),
        mend_ip in any::<bool>(),
        mend_crc in any::<bool>(),
        cut in proptest::option::of(0..90_usize),
        again in any::<bool>(),
    ) {
        let kind = kinds()[kind];
        let (mut short, whole) = waiting(kind);
        let (mut long, _) = waiting(kind);
        let mut frame = whole.clone();
        for (at, bit) in &flips {
            frame[*at] ^= 1 << bit;
        }
        mend(&mut frame, mend_ip, mend_crc && kind.integrity == Integrity::Crc32c);
        frame.truncate(cut.unwrap_or(frame.len()));
        if again {
            prop_assert_eq!(offer(&mut short, &whole, true), offer(&mut long, &whole, false));
        }
        prop_assert_eq!(offer(&mut short, &frame, true), offer(&mut long, &frame, false));
    }
}
