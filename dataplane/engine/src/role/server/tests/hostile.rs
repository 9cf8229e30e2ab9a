//! I7: whatever comes in is refused under one reason, and changes nothing that it has no right to.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use weft_wire::frame::Endpoint;
use weft_wire::header::{ElementType, Flags, Header, Kind, Operation};
use weft_wire::rows::{ROW_LOG, ROW_MODEL, ROW_WORKER_CHANNEL};
use weft_wire::{ChunkIndex, GroupId, JobId, MacAddr, Members, Nanos};

use super::rig::*;
use super::world::{AGGREGATOR, FRAME_LEN, REPLICA, SERVER, endpoint};
use crate::drops::DropReason;
use crate::random::SplitMix64;
use crate::role::channel::{ChannelClient, ChannelClientConfig, ChannelError, Peer};
use crate::send::datagram::plain_header;

fn state(rig: &Rig) -> String {
    format!("{:?}", rig.server.jobs)
}

/// A rig with a group of its aggregator and one of worker 0 alone.
fn open() -> Rig {
    let mut rig = Rig::new(job());
    rig.install(descriptor(0, &[0, 1], true)).unwrap();
    rig.install(descriptor(1, &[0], false)).unwrap();
    rig.poll();
    rig
}

#[track_caller]
fn refused(rig: &mut Rig, frame: &[u8], reason: DropReason) {
    let before = state(rig);
    let counted = rig.server.stats().drops.of(reason);
    let outcome = rig.raw(frame);
    assert!(matches!(outcome, Ok(Some(_))) || outcome == Err(reason), "{outcome:?}");
    assert_eq!(rig.server.stats().drops.of(reason), counted + 1, "{reason:?}");
    assert_eq!(state(rig), before, "{reason:?} changed something");
}

#[test]
fn a_hello_of_a_job_that_is_not_served_is_refused_within_bounds() {
    let mut rig = open();
    let target = Endpoint { mac: MacAddr::BROADCAST, ..endpoint(SERVER) };
    let local = Endpoint { mac: MacAddr([2; 6]), addr: "10.7.7.7:7000".parse().unwrap() };
    let config = ChannelClientConfig::new(JobId(77), Peer::Worker(rank(0)), local, target);
    let mut stranger = ChannelClient::new(config, 5, Nanos(0)).unwrap();
    let mut hello = vec![0; FRAME_LEN];
    let len = stranger.poll_transmit(Nanos(0), &mut hello).unwrap();
    hello.truncate(len);
    let mut reply = rig.raw(&hello).unwrap().expect("REFUSED");
    assert!(reply.len() <= len);
    let (udp, header) = parse(&reply);
    stranger.handle_frame(Nanos(0), &udp, &header, &mut reply).unwrap();
    assert_eq!(stranger.error(), Some(ChannelError::UnknownJob { job: JobId(77) }));
    let answered = (0..1_000).filter(|_| rig.raw(&hello).is_ok()).count();
    assert!((1..100).contains(&answered), "{answered}");
    assert_eq!(rig.server.stats().drops.of(DropReason::UnknownJob), 1_001);
}

#[test]
fn every_check_has_its_reason_and_no_effect() {
    let mut rig = open();
    let direct = Header { flags: Flags::DIRECT, members: Members(1), ..data(group(1), 0) };
    let sum = Header { members: Members(3), ..data(group(0), 0) };
    let mut case = |host: u8, header: Header, payload: &[u8], reason| {
        let frame = rig.frame(host, &header, payload);
        refused(&mut rig, &frame, reason);
    };
    let ones = ones();
    let row = |row| GroupId::new(row, 1);
    case(1, Header { kind: Kind::Ack, ..plain(&direct) }, &[], DropReason::Kind);
    case(1, Header { kind: Kind::Answer, ..direct }, &ones, DropReason::Kind);
    case(1, Header { group: row(2000), ..direct }, &ones, DropReason::UnknownGroup);
    case(1, Header { group: row(0x8040), ..direct }, &ones, DropReason::UnknownGroup);
    case(1, Header { group: row(ROW_WORKER_CHANNEL), ..direct }, &ones, DropReason::UnknownGroup);
    case(1, Header { members: Members(0), ..direct }, &ones, DropReason::BadMembers);
    case(1, Header { members: Members(3), ..direct }, &ones, DropReason::BadMembers);
    case(1, Header { members: Members(1 << 40), ..direct }, &ones, DropReason::BadMembers);
    case(1, Header { members: Members(2), ..direct }, &ones, DropReason::BadCookie);
    case(1, Header { group: row(0x8001), ..direct }, &ones, DropReason::BadMembers);
    case(2, Header { members: Members(2), ..direct }, &ones, DropReason::BadMembers);
    case(1, Header { group: GroupId::new(1, 2), ..direct }, &ones, DropReason::StaleGroup);
    case(1, Header { group: row(9), ..direct }, &ones, DropReason::StaleGroup);
    case(1, Header { chunk: ChunkIndex(CHUNKS), ..direct }, &ones, DropReason::ChunkOutOfRange);
    case(1, Header { count: 1, ..direct }, &ones[..4], DropReason::ElementCount);
    case(1, Header { element_type: ElementType::F32, ..direct }, &ones, DropReason::ElementType);
    case(1, Header { operation: Operation::Max, ..direct }, &ones, DropReason::Operation);
    case(1, Header { exponent: 1, ..direct }, &ones, DropReason::Exponent);
    // A worker that poses as the aggregator.
    case(1, sum, &ones, DropReason::BadCookie);
    case(1, Header { group: row(9), ..sum }, &ones, DropReason::WrongSource);
    // An aggregator that names strangers.
    let pull = plain_header(Kind::Pull, JOB, group(1), Members(0));
    case(1, pull, &[], DropReason::Kind);
    let pull = Header { flags: Flags::REPLICA, ..pull };
    case(1, pull, &[], DropReason::BadCookie);
    case(REPLICA, Header { chunk: ChunkIndex(3), ..pull }, &[], DropReason::ChunkOutOfRange);
    let log = plain_header(Kind::Status, JOB, GroupId::new(ROW_LOG, 0), Members(1));
    case(AGGREGATOR, log, &[], DropReason::BadMembers);
    let model = plain_header(Kind::Contrib, JOB, GroupId::new(ROW_MODEL, 0), Members(1));
    case(1, Header { chunk: ChunkIndex(9), ..model }, &[], DropReason::ChunkOutOfRange);
    let counted = Header { count: 2, element_type: ElementType::I32, ..model };
    case(1, counted, &ones, DropReason::ElementCount);
    let state = plain_header(Kind::State, JOB, group(0), Members(0));
    case(1, state, &[], DropReason::WrongSource);
    case(AGGREGATOR, Header { group: row(9), ..state }, &[], DropReason::StaleGroup);
    case(REPLICA, state, &[], DropReason::WrongSource);
}

fn plain(header: &Header) -> Header {
    plain_header(header.kind, JOB, header.group, header.members)
}

#[test]
fn frames_from_elsewhere_are_refused() {
    let mut rig = open();
    let header = Header { flags: Flags::DIRECT, members: Members(1), ..data(group(1), 0) };
    let good = rig.frame(1, &header, &ones());
    let changed = |change: fn(&mut Vec<u8>)| {
        let mut frame = good.clone();
        change(&mut frame);
        frame
    };
    // IPv4 headers that are changed need their checksum; the port has none.
    refused(&mut rig, &changed(|f| f[35] ^= 1), DropReason::WrongSource);
    refused(&mut rig, &changed(|f| f[42] = 0x21), DropReason::Version);
    refused(&mut rig, &changed(|f| f[42] = 0x1f), DropReason::Kind);
    refused(&mut rig, &changed(|f| f[45] = 9), DropReason::UnknownJob);
    refused(&mut rig, &changed(|f| f[46] ^= 1), DropReason::StaleEpoch);
    refused(&mut rig, &changed(|f| f[49] ^= 1), DropReason::BadCookie);
    refused(&mut rig, &changed(|f| f[80] ^= 1), DropReason::Integrity);
    refused(&mut rig, &changed(|f| f[24] ^= 1), DropReason::IpChecksum);
    refused(&mut rig, &changed(|f| f.truncate(60)), DropReason::Length);
    rig.send(&good).unwrap();
    assert_eq!(rig.raw(&good), Err(DropReason::Duplicate));
}

/// Random bytes, random changes of good frames: nothing panics, nothing is committed, every frame
/// is counted once or was taken.
#[test]
fn noise_changes_no_model() {
    let mut rig = open();
    let mut random = SplitMix64::new(7);
    let direct = Header { flags: Flags::DIRECT, members: Members(1), ..data(group(1), 0) };
    let hosts = [1, 2, AGGREGATOR, REPLICA];
    for round in 0..40_000u32 {
        let pick = |random: &mut SplitMix64, most: usize| {
            usize::try_from(random.next_u64() % most as u64).unwrap()
        };
        let host = hosts[pick(&mut random, 4)];
        let mut frame = match round % 3 {
            0 => {
                let len = pick(&mut random, 200);
                (0..len).map(|_| random.next_u64().to_be_bytes()[0]).collect()
            }
            1 => rig.frame(host, &direct, &ones()),
            _ => {
                let kinds = [Kind::Status, Kind::State, Kind::Pull, Kind::Ack];
                let rows = [0, 1, 2, 0x8000, 0x8001, ROW_LOG, ROW_MODEL];
                let id = GroupId::new(rows[pick(&mut random, 7)], 1);
                let kind = kinds[pick(&mut random, 4)];
                let header = plain_header(kind, JOB, id, Members(random.next_u64() % 4));
                rig.frame(host, &header, &[])
            }
        };
        if round % 3 == 1 {
            for _ in 0..1 + pick(&mut random, 3) {
                let at = 42 + pick(&mut random, 32);
                frame[at] = random.next_u64().to_be_bytes()[0];
            }
        }
        let mut buffer = frame.clone();
        buffer.resize(FRAME_LEN.max(frame.len()), 0);
        let _ = rig.server.handle_frame(rig.now, &mut buffer, frame.len());
        if round % 64 == 0 {
            rig.wait(1);
            rig.poll();
            while rig.server.poll_event().is_some() {}
        }
    }
    assert_eq!(rig.version(), 0);
    assert!(rig.server.model(JOB).unwrap().weights.iter().all(|w| *w == 0.0));
}
