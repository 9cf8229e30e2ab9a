//! Sums in runs against the same one by one.

use core::net::IpAddr;

use proptest::prelude::*;
use weft_wire::frame::run::set_payload_len;
use weft_wire::header::HEADER_LEN;
use weft_wire::hello::Integrity;

use super::*;

const GROUP: [u8; 4] = [239, 87, 69, 3];
/// Bytes of a datagram with a sum.
const LEN: usize = HEADER_LEN + 16;

/// A worker of two that waits for four sums, and the headers and the sums of a message to it.
fn waiting(integrity: Integrity, is_cast: bool) -> (Sim, Vec<u8>, Vec<Vec<u8>>) {
    waiting_over(1, integrity, is_cast)
}

/// The same over so many lanes: the message is to the first.
fn waiting_over(lanes: u16, integrity: Integrity, is_cast: bool) -> (Sim, Vec<u8>, Vec<Vec<u8>>) {
    let mut sim = Sim::new(2, 4, lanes);
    sim.fake.integrity = integrity;
    for rank in 0..2 {
        let multicast = Some(IpAddr::from(GROUP)).filter(|_| is_cast);
        sim.replace(rank, WorkerConfig { multicast, ..config(rank) }, rank as u64);
    }
    let header = sim.await_sum();
    let sum = |chunk: u8| {
        let header = Header { chunk: ChunkIndex(chunk.into()), ..header };
        sim.fake.wrap(0, 0, &header, &[7 + chunk; 16])
    };
    let frames: Vec<Vec<u8>> = (0..4).map(sum).collect();
    let mut headers = frames[0][..42].to_vec();
    if is_cast {
        headers[30..34].copy_from_slice(&GROUP);
        headers[36..38].copy_from_slice(&boxy().addr.port().to_be_bytes());
    }
    let datagrams = frames.iter().map(|frame| frame[42..].to_vec()).collect();
    (sim, headers, datagrams)
}

/// A frame of its own.
fn framed(headers: &[u8], datagram: &[u8]) -> Vec<u8> {
    let mut frame = [headers, datagram].concat();
    set_payload_len(&mut frame[..42], datagram.len());
    frame
}

/// What a message has come to.
#[derive(Debug, PartialEq)]
struct Outcomes {
    stats: WorkerStats,
    values: Vec<i32>,
    done: Vec<bool>,
    timeout: Nanos,
    event: Option<Event>,
}

/// Gives a worker the datagrams of a message, in runs or one by one; and how many came in runs.
fn offer(sim: &mut Sim, headers: &[u8], message: &[u8], in_runs: bool) -> (Outcomes, usize) {
    let (worker, data) = (&mut sim.workers[0], &mut sim.data[0]);
    let udp = Udp::parse(&framed(headers, message)).unwrap();
    let (mut at, mut taken) = (0, 0);
    while at < message.len() {
        if in_runs {
            let count = worker.handle_run(sim.now, &udp, &message[at..], LEN, data);
            (at, taken) = (at + count * LEN, taken + count);
        }
        if at < message.len() {
            let datagram = &message[at..message.len().min(at + LEN)];
            let _ = worker.handle_frame(sim.now, &mut framed(headers, datagram), data);
            at += LEN;
        }
    }
    let outcomes = Outcomes {
        stats: worker.stats().clone(),
        values: data.values.clone(),
        done: data.done.clone(),
        timeout: worker.poll_timeout(),
        event: worker.poll_event(),
    };
    (outcomes, taken)
}

#[test]
fn the_sums_of_a_message_are_taken_together() {
    for integrity in [Integrity::Crc32c, Integrity::None] {
        for is_cast in [false, true] {
            let (mut sim, headers, sums) = waiting(integrity, is_cast);
            let (outcomes, taken) = offer(&mut sim, &headers, &sums.concat(), true);
            assert_eq!((taken, outcomes.done), (4, vec![true; 4]), "{integrity:?}");
            assert_eq!(outcomes.stats.answers_by_multicast, 4 * u64::from(is_cast));
            assert_eq!(outcomes.event, Some(Event::RoundComplete));
        }
    }
}

/// Each of these is refused, or taken the long way, as if it had come by itself.
#[test]
fn a_run_ends_where_something_else_stands() {
    let (_, headers, sums) = waiting(Integrity::Crc32c, false);
    let mut torn = sums[1].clone();
    torn[LEN - 1] ^= 1;
    let mut foreign = sums[1].clone();
    foreign[6] ^= 1;
    for (what, other) in [("a CRC", torn), ("a cookie", foreign)] {
        let (mut sim, ..) = waiting(Integrity::Crc32c, false);
        let message = [&sums[0][..], &other, &sums[2], &sums[3]].concat();
        let (outcomes, taken) = offer(&mut sim, &headers, &message, true);
        assert_eq!((taken, outcomes.done), (3, vec![true, false, true, true]), "{what}");
    }
    for (what, at) in [("another sender", 35), ("a port of another lane", 37)] {
        let (mut sim, mut headers, sums) = waiting(Integrity::Crc32c, false);
        headers[at] ^= 1;
        let (outcomes, taken) = offer(&mut sim, &headers, &sums.concat(), true);
        assert_eq!((taken, outcomes.done), (0, vec![false; 4]), "{what}");
    }
    let (mut sim, headers, sums) = waiting(Integrity::Checksum16, false);
    assert_eq!(offer(&mut sim, &headers, &sums.concat(), true).1, 0, "a checksum needs a look");
}

/// A sum is for the lane whose chunks it is of, whatever stands beside it.
#[test]
fn sums_of_another_lane_are_none_of_this_one() {
    let (mut sim, headers, sums) = waiting_over(2, Integrity::Crc32c, false);
    let (outcomes, taken) = offer(&mut sim, &headers, &sums.concat(), true);
    assert_eq!((taken, outcomes.done), (2, vec![true, false, true, false]));
    assert_eq!(outcomes.stats.refused[Refusal::Chunk as usize], 2);
}

#[test]
fn a_worker_that_has_stopped_takes_nothing() {
    let (mut sim, headers, sums) = waiting(Integrity::Crc32c, false);
    sim.workers[0].stop(Event::Closed { by_all: true });
    assert_eq!(offer(&mut sim, &headers, &sums.concat(), true).1, 0);
}

proptest! {
    #[test]
    fn a_message_is_what_its_datagrams_are_one_by_one(
        has_crc in any::<bool>(),
        is_cast in any::<bool>(),
        order in proptest::collection::vec(0..4_usize, 1..8),
        flips in proptest::collection::vec((0..8 * LEN, 0..8_u32), 0..4),
        target_port in prop::option::weighted(0.1, any::<u8>()),
        is_marked in any::<bool>(),
        cut in 0..LEN,
    ) {
        let integrity = if has_crc { Integrity::Crc32c } else { Integrity::None };
        let (mut together, mut headers, sums) = waiting(integrity, is_cast);
        let (mut apart, ..) = waiting(integrity, is_cast);
        headers[37] ^= target_port.unwrap_or(0);
        headers[15] |= if is_marked { 0b11 } else { 0 };
        let mut message: Vec<u8> = order.iter().flat_map(|chunk| sums[*chunk].clone()).collect();
        message.truncate(message.len() - cut);
        for (at, bit) in flips {
            if let Some(byte) = message.get_mut(at) {
                *byte ^= 1 << bit;
            }
        }
        let together = offer(&mut together, &headers, &message, true).0;
        prop_assert_eq!(together, offer(&mut apart, &headers, &message, false).0);
    }
}
