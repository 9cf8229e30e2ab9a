//! Frames that a network should not deliver: each is refused, counted under one reason, and changes
//! nothing.

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::frame::{Encap, Endpoint};
use weft_wire::header::{ElementType, Flags, Header, Kind, Outcome, Packet};
use weft_wire::hello::Integrity;
use weft_wire::rows::ROW_MODEL;
use weft_wire::{ChunkIndex, Cookie, GroupId, JobId, MacAddr, Members, Nanos};

use super::fake::{FakeBox, FakeServer, JOB, host_addr};
use super::world::{Faults, World, grant};
use super::{CHUNKS, values};
use crate::drops::DropReason;
use crate::random::SplitMix64;
use crate::send::datagram::{dispatch_out, plain_header};

const GROUP: GroupId = GroupId::new(1, 1);

/// A world in which worker 0 has an update under way that goes by the box.
fn world() -> World {
    let mut world = World::connected(50, 1, CHUNKS, Faults::default());
    world.begin(0, 0, values(1));
    world.grant(GROUP, &[(0, 0)], true, grant(GROUP, true, 1, false, 0));
    world.poll_workers();
    world
}

pub(super) fn cookie(world: &World, host: usize) -> Cookie {
    world.workers[0].hosts[host].channel.terms().unwrap().cookie_down
}

pub(super) fn frame(from: u8, header: &Header, payload: &[u8]) -> Vec<u8> {
    let source = Endpoint { mac: MacAddr([2; 6]), addr: host_addr(from) };
    let target = Endpoint { mac: MacAddr([4; 6]), addr: host_addr(1) };
    let encap = Encap::new(source, target).unwrap();
    let mut buffer = vec![0; 2048];
    let start = encap.header_len();
    header.emit(&mut Packet::new_unchecked(&mut buffer[start..start + 32]));
    buffer[start + 32..start + 32 + payload.len()].copy_from_slice(payload);
    let len = dispatch_out(&encap, Integrity::Crc32c, &mut buffer, 32 + payload.len());
    buffer.truncate(len);
    buffer
}

#[test]
fn each_wrong_frame_has_its_reason() {
    let mut world = world();
    let server = cookie(&world, 0);
    let pull = Header {
        cookie: server,
        flags: Flags::DIRECT,
        ..plain_header(Kind::Pull, JOB, GROUP, Members(1))
    };
    let have = Header {
        outcome: Outcome::Have,
        cookie: cookie(&world, 1),
        ..plain_header(Kind::State, JOB, GROUP, Members(1))
    };
    let ack = Header {
        outcome: Outcome::Committed,
        cookie: server,
        ..plain_header(Kind::Ack, JOB, GROUP, Members(1))
    };
    let from = FakeServer::HOST;
    let cases = [
        (from, Header { job: JobId(6), ..pull }, DropReason::UnknownJob),
        (from, Header { kind: Kind::Contrib, ..pull }, DropReason::Kind),
        (from, Header { kind: Kind::Status, ..pull }, DropReason::Kind),
        (77, pull, DropReason::WrongSource),
        (FakeBox::HOST, pull, DropReason::StaleEpoch),
        (from, Header { cookie: Cookie(server.0 ^ 1), ..pull }, DropReason::BadCookie),
        (from, Header { cookie: Cookie(server.0 ^ 1 << 30), ..pull }, DropReason::StaleEpoch),
        (from, Header { group: GroupId::new(0x8000, 2), ..pull }, DropReason::UnknownGroup),
        (from, Header { chunk: ChunkIndex(CHUNKS), ..pull }, DropReason::ChunkOutOfRange),
        (from, Header { members: Members(2), ..pull }, DropReason::BadMembers),
        (from, Header { flags: Flags::NONE, ..pull }, DropReason::Unwanted),
        (from, Header { group: GroupId::new(1, 2), ..ack }, DropReason::Unsolicited),
        (from, Header { outcome: Outcome::Have, ..ack }, DropReason::Kind),
        (from, Header { group: GroupId::new(ROW_MODEL, 3), ..ack }, DropReason::StaleGroup),
        (FakeBox::HOST, Header { cookie: have.cookie, ..ack }, DropReason::Kind),
        (FakeBox::HOST, Header { chunk: ChunkIndex(9), ..have }, DropReason::Duplicate),
        (FakeBox::HOST, Header { group: GroupId::new(2, 2), ..have }, DropReason::Unsolicited),
    ];
    for (from, header, reason) in cases {
        let before = world.workers[0].stats().drops.of(reason);
        let taken = world.workers[0].handle_frame(world.now, &mut frame(from, &header, &[]));
        assert_eq!(taken, Err(reason), "{header}");
        assert_eq!(world.workers[0].stats().drops.of(reason), before + 1);
        let mut buffer = vec![0; 2048];
        assert_eq!(world.workers[0].poll_transmit(world.now, &mut buffer), None, "{header}");
        assert_eq!(world.workers[0].poll_event(), None, "{header}");
    }
    // Padding is for switches.
    let taken = world.workers[0].handle_frame(world.now, &mut frame(from, &pull, &[0; 32]));
    assert_eq!(taken, Err(DropReason::Length));
    // The same frames, right, are obeyed.
    world.workers[0].handle_frame(world.now, &mut frame(from, &pull, &[])).unwrap();
    let mut buffer = vec![0; 2048];
    assert!(world.workers[0].poll_transmit(world.now, &mut buffer).is_some());
    world.workers[0].handle_frame(world.now, &mut frame(from, &ack, &[])).unwrap();
    assert!(world.workers[0].poll_event().is_some());
}

#[test]
fn models_that_nobody_asked_for_are_refused() {
    let mut world = world();
    let answer = Header {
        cookie: cookie(&world, 0),
        element_type: ElementType::F32,
        count: 8,
        ..plain_header(Kind::Answer, JOB, GroupId::new(ROW_MODEL, 0), Members(1))
    };
    let mut unasked = frame(FakeServer::HOST, &answer, &[0; 32]);
    let taken = world.workers[0].handle_frame(world.now, &mut unasked);
    assert_eq!(taken, Err(DropReason::Unsolicited));
    let now = world.now;
    world.workers[0].begin_pull(now, 320, None, None).unwrap();
    world.run(|world| world.workers[0].stats().pull_requests == 32);
    let cases = [
        (Header { count: 7, ..answer }, 28, DropReason::ElementCount),
        (Header { element_type: ElementType::I32, ..answer }, 32, DropReason::ElementType),
        (Header { group: GroupId::new(ROW_MODEL, 7), ..answer }, 32, DropReason::Unsolicited),
        (Header { chunk: ChunkIndex(39), ..answer }, 32, DropReason::Duplicate),
        (Header { chunk: ChunkIndex(u32::MAX), ..answer }, 32, DropReason::Duplicate),
        (Header { group: GroupId::new(3, 0), ..answer }, 32, DropReason::UnknownGroup),
    ];
    for (header, len, reason) in cases {
        let mut frame = frame(FakeServer::HOST, &header, &[0; 32][..len]);
        assert_eq!(world.workers[0].handle_frame(world.now, &mut frame), Err(reason), "{header}");
    }
}

/// Octets at random, and right frames with octets changed, behind a right CRC: whatever they say,
/// the worker neither panics nor takes more than it has asked for.
#[test]
fn noise_never_panics() {
    let mut world = world();
    let now = world.now;
    world.workers[0].begin_pull(now, 320, None, None).unwrap();
    world.run(|world| world.workers[0].stats().pull_requests > 0);
    let mut random = SplitMix64::new(9);
    let cookies = [cookie(&world, 0), cookie(&world, 1)];
    for round in 0..30_000_u64 {
        let host = usize::from(random.next_u32() % 2 == 1);
        let mut bytes = [0; 32];
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&random.next_u64().to_be_bytes());
        }
        bytes[0] = 0x10 | (bytes[0] & 7);
        bytes[2..4].copy_from_slice(&JOB.0.to_be_bytes());
        bytes[4..8].copy_from_slice(&cookies[host].0.to_be_bytes());
        bytes[16] &= 0x13;
        bytes[18] = 0;
        if round % 2 == 0 {
            bytes[8..12].copy_from_slice(&GROUP.0.to_be_bytes());
        } else {
            bytes[8..10].copy_from_slice(&ROW_MODEL.to_be_bytes());
            bytes[10..12].fill(0);
        }
        if round % 3 > 0 {
            bytes[12..15].fill(0);
        }
        let Ok(header) = Header::parse(&Packet::new_unchecked(
            &[&bytes[..], &vec![0; usize::from(bytes[19]) * 4][..]].concat(),
        )) else {
            // A header-only kind, or no sense at all: sent as it is.
            let plain = plain_header(Kind::State, JOB, GROUP, Members(1));
            let mut sent = frame(100 + u8::from(host == 1), &plain, &[]);
            let start = sent.len() - 32;
            sent[start..].copy_from_slice(&bytes);
            Packet::new_unchecked(&mut sent[start..]).seal(weft_kernel::crc32c);
            let _ = world.workers[0].handle_frame(Nanos(now.0 + round), &mut sent);
            continue;
        };
        let payload = vec![0; header.payload_len()];
        let mut sent = frame(100 + u8::from(host == 1), &header, &payload);
        let _ = world.workers[0].handle_frame(Nanos(now.0 + round), &mut sent);
        let mut buffer = vec![0; 2048];
        while world.workers[0].poll_transmit(Nanos(now.0 + round), &mut buffer).is_some() {}
        while world.workers[0].poll_event().is_some() {}
    }
    assert!(world.workers[0].stats().drops.total() > 5_000);
}
