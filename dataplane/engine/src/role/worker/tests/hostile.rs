//! Frames that must change nothing, each under its own reason.

use proptest::prelude::*;
use weft_wire::header::{ElementType, HEADER_LEN, Kind, Operation, Outcome};
use weft_wire::{ChunkIndex, Cookie, GroupId, Members};

use super::*;
use crate::session::client::Standing;

/// A worker of two in the middle of its first window, and the answer that it waits for.
fn waiting() -> (Sim, Header, Vec<u8>) {
    let mut sim = Sim::new(2, 4, 2);
    let header = sim.await_sum();
    (sim, header, vec![7; 16])
}

fn offer(sim: &mut Sim, header: &Header, body: &[u8]) -> Result<(), Refusal> {
    let mut frame = sim.fake.wrap(0, 0, header, body);
    sim.workers[0].handle_frame(sim.now, &mut frame, &mut sim.data[0])
}

#[test]
fn each_wrong_field_is_refused_under_its_own_reason() {
    let (mut sim, good, body) = waiting();
    let cookie = good.cookie;
    let cases = [
        (Header { job: JobId(6), ..good }, Refusal::Job),
        (Header { cookie: Cookie(cookie.0 ^ 1), ..good }, Refusal::ForeignCookie),
        (Header { cookie: Cookie(cookie.0 ^ 0x0100_0000), ..good }, Refusal::OldCookie),
        (Header { group: GroupId(good.group.0 ^ 1), ..good }, Refusal::Group),
        (Header { group: GroupId(good.group.0 ^ 0x1_0000), ..good }, Refusal::Group),
        (Header { members: Members(1), ..good }, Refusal::Members),
        (Header { members: Members(7), ..good }, Refusal::Members),
        (Header { chunk: ChunkIndex(3), ..good }, Refusal::Chunk),
        (Header { chunk: ChunkIndex(8), ..good }, Refusal::Chunk),
        // The next step of its slot, but not in this round: nobody can have all contributions.
        (Header { chunk: ChunkIndex(4), ..good }, Refusal::Chunk),
        (Header { chunk: ChunkIndex(u32::MAX - 1), ..good }, Refusal::Chunk),
        (Header { element_type: ElementType::F32, ..good }, Refusal::Elements),
        (Header { operation: Operation::Max, ..good }, Refusal::Elements),
        (Header { exponent: 1, ..good }, Refusal::Elements),
        (Header { kind: Kind::Contrib, ..good }, Refusal::Kind),
        (Header { element_type: ElementType::Bf16, count: 8, ..good }, Refusal::Elements),
        (Header { count: 5, ..good }, Refusal::Length),
    ];
    for (header, reason) in cases {
        let before = sim.workers[0].stats().refused(reason);
        assert_eq!(offer(&mut sim, &header, &body), Err(reason), "{header}");
        assert_eq!(sim.workers[0].stats().refused(reason), before + 1);
    }
    let short = Header { count: 3, ..good };
    assert_eq!(offer(&mut sim, &short, &body[..12]), Err(Refusal::Elements));
    // Else the ranks that an error names would be a forger's choice.
    let have = Header { kind: Kind::State, outcome: Outcome::Have, members: Members(4), ..good };
    assert_eq!(offer(&mut sim, &have, &[]), Err(Refusal::Members));
    assert_eq!(sim.workers[0].stats().answers, 0);
    assert_eq!(offer(&mut sim, &good, &body), Ok(()));
    assert_eq!(sim.workers[0].stats().answers, 1);
    assert_eq!(offer(&mut sim, &good, &body), Ok(()));
    assert_eq!(sim.workers[0].stats().duplicate_answers, 1);
    assert_eq!(sim.data[0].done, [false, false, true, false]);
}

#[test]
fn a_stranger_is_refused_by_address() {
    let (mut sim, good, body) = waiting();
    let now = sim.now;
    let take = |sim: &mut Sim, mut frame: Vec<u8>| {
        sim.workers[0].handle_frame(now, &mut frame, &mut sim.data[0])
    };
    sim.fake.endpoint.addr.set_port(1);
    let frame = sim.fake.wrap(0, 0, &good, &body);
    assert_eq!(take(&mut sim, frame), Err(Refusal::Source));
    sim.fake.endpoint = boxy();
    let frame = sim.fake.wrap(0, 2, &good, &body);
    assert_eq!(take(&mut sim, frame), Err(Refusal::Addressee));
    let frame = sim.fake.wrap(1, 0, &good, &body);
    assert_eq!(take(&mut sim, frame), Err(Refusal::Addressee));
    assert_eq!(sim.workers[0].stats().answers, 0);
}

#[test]
fn a_missing_or_wrong_crc_is_refused() {
    let (mut sim, good, body) = waiting();
    for at in [42 + 1, 42 + 24, 42 + HEADER_LEN, 42 + HEADER_LEN + 15] {
        let mut frame = sim.fake.wrap(0, 0, &good, &body);
        frame[at] ^= 0x10;
        let refused = sim.workers[0].handle_frame(sim.now, &mut frame, &mut sim.data[0]);
        assert!(refused.is_err(), "octet {at}");
    }
    let mut frame = sim.fake.wrap(0, 0, &good, &body);
    Packet::new_unchecked(&mut frame[42..]).set_crc(0);
    let refused = sim.workers[0].handle_frame(sim.now, &mut frame, &mut sim.data[0]);
    assert_eq!(refused, Err(Refusal::Integrity));
    assert_eq!(sim.workers[0].stats().answers, 0);
}

#[test]
fn a_stale_that_does_not_echo_our_cookie_starts_no_handshake() {
    let (mut sim, good, _) = waiting();
    let lease = sim.fake.lanes[0].open.as_ref().unwrap();
    let (up, down) = lease.cookies[0];
    let stale = Header { kind: Kind::State, outcome: Outcome::Stale, ..good };
    for cookie in [down, Cookie(up.0 ^ 2), Cookie(0)] {
        let _ = offer(&mut sim, &Header { cookie, ..stale }, &[]);
        let session = &sim.workers[0].lanes[0].session;
        assert_eq!((session.standing(), session.is_asking()), (Standing::Open, false));
    }
    assert_eq!(offer(&mut sim, &Header { cookie: up, ..stale }, &[]), Ok(()));
    assert_eq!(sim.workers[0].lanes[0].session.standing(), Standing::Opening);
}

#[test]
fn a_handshake_of_another_life_is_refused() {
    let mut sim = Sim::new(1, 4, 1);
    let mut kept = Vec::new();
    let mut frame = vec![0; 4096];
    let len = sim.workers[0].poll_transmit(sim.now, &sim.data[0], &mut frame).unwrap();
    for (_, reply) in sim.fake.handle(&mut frame[..len]) {
        kept.push(reply);
    }
    sim.replace(0, config(0), 4242);
    let refused = sim.workers[0].handle_frame(sim.now, &mut kept[0], &mut sim.data[0]);
    assert_eq!(refused, Err(Refusal::Handshake));
    sim.connect();
}

#[test]
fn an_old_welcome_does_not_open_a_lane() {
    let mut sim = Sim::new(2, 4, 1);
    sim.connect();
    let mut old = Vec::new();
    let mut frame = vec![0; 4096];
    let now = sim.now;
    sim.workers[0].lanes[0].begin_handshake(now);
    // Twice: HELLO gives CHALLENGE, JOIN gives the WELCOME of the present lease, kept back.
    for _ in 0..2 {
        let len = sim.workers[0].poll_transmit(now, &sim.data[0], &mut frame).unwrap();
        for (_, mut reply) in sim.fake.handle(&mut frame[..len]) {
            old.push(reply.clone());
            if old.len() == 1 {
                sim.workers[0].handle_frame(now, &mut reply, &mut sim.data[0]).unwrap();
            }
        }
    }
    sim.fake.restart();
    sim.workers[0].lanes[0].begin_handshake(now);
    for _ in 0..2 {
        let len = sim.workers[0].poll_transmit(now, &sim.data[0], &mut frame).unwrap();
        for (_, mut reply) in sim.fake.handle(&mut frame[..len]) {
            sim.workers[0].handle_frame(now, &mut reply, &mut sim.data[0]).unwrap();
        }
    }
    let refused = sim.workers[0].handle_frame(now, &mut old[1], &mut sim.data[0]);
    assert_eq!(refused, Err(Refusal::Handshake));
    let session = &sim.workers[0].lanes[0].session;
    assert_eq!((session.standing(), session.has_joined()), (Standing::Opening, true));
}

proptest! {
    #[test]
    fn no_octets_panic_or_pass(
        octets in prop::collection::vec(any::<u8>(), 0..200),
        at in 0usize..120,
        byte in any::<u8>(),
        cut in 0usize..200,
        handshake in any::<bool>(),
    ) {
        let (mut sim, good, body) = waiting();
        let mut frame = octets;
        prop_assert!(sim.workers[0].handle_frame(sim.now, &mut frame, &mut sim.data[0]).is_err());
        let kind = if handshake { Kind::Hello } else { Kind::Answer };
        let mut body = body;
        if handshake {
            body.resize(72, 3);
        }
        let mut frame = sim.fake.wrap(0, 0, &Header { kind, ..good }, &body);
        let at = at % frame.len();
        let whole = frame.len();
        let changed = frame[at] != byte;
        frame[at] = byte;
        frame.truncate(cut.min(whole));
        // The Ethernet addresses are under no check, nor is a UDP checksum beside a CRC.
        let checked = at >= 14 && !(40..42).contains(&at);
        let result = sim.workers[0].handle_frame(sim.now, &mut frame, &mut sim.data[0]);
        if (changed && checked) || cut < whole {
            prop_assert!(result.is_err(), "octet {at} := {byte:#x} of {whole}, cut {cut}");
        }
    }
}
