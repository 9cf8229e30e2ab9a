//! Frames that must change nothing (I7), each under its own reason; and a job's quota (I6).

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;
use weft_wire::frame::Datagram;
use weft_wire::header::{ElementType, Header, Kind, Operation, Outcome, Packet};
use weft_wire::hello::{Hello, Integrity, Phase, Reason};
use weft_wire::rows::{ROW_DIRECT, ROW_MODEL};
use weft_wire::{ChunkIndex, Cookie, GroupId, JobId, Members, Nanos};

use super::super::PushConfig;
use super::rig::*;
use crate::drops::DropReason;
use crate::role::channel::Standing;
use crate::send::datagram::plain_header;

/// Everything that a contribution may change.
fn snapshot(rig: &Rig, id: GroupId) -> Vec<Option<(crate::slot::State, Members)>> {
    (0..CHUNKS).map(|chunk| rig.report(0).slot(id, chunk)).collect()
}

/// Rewrites a datagram behind its channel's back and seals it.
fn forge(mut frame: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    change(&mut frame[42..]);
    Packet::new_unchecked(&mut frame[42..]).seal(weft_kernel::crc32c);
    frame
}

#[test]
fn each_wrong_field_has_its_reason() {
    let (mut rig, id) = super::installed();
    rig.ask(&rig.contribution(1, id, 0, 7));
    let before = snapshot(&rig, id);
    let header = data_header(id, 1, ElementType::I32);
    let from_zero = |rig: &Rig, header: Header| rig.worker_frame(0, 0, &header, &[0; 16]);
    let cases: Vec<(Vec<u8>, DropReason)> = [
        (Header { chunk: ChunkIndex(CHUNKS), ..header }, DropReason::ChunkOutOfRange),
        (Header { element_type: ElementType::F32, ..header }, DropReason::ElementType),
        (Header { operation: Operation::Max, ..header }, DropReason::Operation),
        (Header { exponent: 1, ..header }, DropReason::Exponent),
        (Header { kind: Kind::Answer, ..header }, DropReason::Kind),
    ]
    .into_iter()
    .map(|(header, reason)| (from_zero(&rig, header), reason))
    .collect();
    for (frame, reason) in cases {
        assert_eq!(rig.send(&frame).unwrap_err(), reason);
    }
    let short = rig.worker_frame(0, 0, &Header { count: 3, ..header }, &[0; 12]);
    assert_eq!(rig.send(&short).unwrap_err(), DropReason::ElementCount);
    let good = rig.contribution(0, id, 1, 5);
    let mut torn = good.clone();
    *torn.last_mut().unwrap() ^= 0x40;
    assert_eq!(rig.send(&torn).unwrap_err(), DropReason::Integrity);
    let two = forge(good.clone(), |datagram| datagram[31] = 3);
    assert_eq!(rig.send(&two).unwrap_err(), DropReason::BadMembers);
    let stranger = forge(good.clone(), |datagram| datagram[24] = 0x80);
    assert_eq!(rig.send(&stranger).unwrap_err(), DropReason::BadMembers);
    let mut elsewhere = good;
    elsewhere[35] ^= 1;
    assert_eq!(rig.send(&elsewhere).unwrap_err(), DropReason::WrongSource);
    assert_eq!(snapshot(&rig, id), before);
    assert_eq!(rig.report(0).stats().contributions_added, 1);
}

#[test]
fn a_foreign_cookie_gets_stale_with_that_cookie() {
    let (mut rig, id) = super::installed();
    for (change, reason) in [(0x01_u8, DropReason::BadCookie), (0x80, DropReason::StaleEpoch)] {
        let byte = if reason == DropReason::BadCookie { 7 } else { 4 };
        let frame = forge(rig.contribution(0, id, 0, 5), |datagram| datagram[byte] ^= change);
        let cookie = Packet::new_unchecked(&frame[42..]).cookie();
        let stale = rig.ask(&frame);
        assert!(stale.is_state(Outcome::Stale, 0));
        assert_eq!(stale.header.cookie, cookie);
        assert_eq!(rig.aggregator.stats().drops.of(reason), 1);
    }
    assert_eq!(rig.report(0).stats().contributions_added, 0);
}

#[test]
fn rows_that_no_group_has_get_stale() {
    let (mut rig, id) = super::installed();
    for row in [id.row() + 1, 1024, ROW_DIRECT, u16::MAX] {
        let stale = rig.ask(&rig.contribution(0, group(row, 1), 0, 5));
        assert!(stale.is_state(Outcome::Stale, 0), "{row}");
    }
    assert_eq!(rig.aggregator.stats().drops.of(DropReason::UnknownGroup), 4);
}

#[test]
fn what_only_the_server_may_say_is_refused_from_workers() {
    let (mut rig, id) = super::installed();
    for kind in [Kind::Pull, Kind::Ack, Kind::State] {
        let header = plain_header(kind, JobId(1), id, Members::EMPTY);
        let frame = rig.worker_frame(0, 0, &header, &[]);
        assert_eq!(rig.send(&frame).unwrap_err(), DropReason::Kind, "{kind:?}");
    }
    // And a server's frame under another cookie is not the server's.
    let credit = forge(rig.credit(id, 0, 0b11), |datagram| datagram[7] ^= 1);
    assert_eq!(rig.send(&credit).unwrap_err(), DropReason::BadCookie);
    let mut torn = rig.credit(id, 0, 0b11);
    torn[42 + 31] ^= 2;
    assert_eq!(rig.send(&torn).unwrap_err(), DropReason::Integrity);
    assert_eq!(rig.report(0).groups().next().unwrap().1, Members(0b11));
}

/// A box with a job at its quota, a group of which is open; all is paid for by now.
fn limited() -> (Rig, GroupId) {
    let config = PushConfig { rate_bytes_per_sec: Some(90_000), burst_bytes: 2048, ..push(1, 2) };
    let mut rig = Rig::new(alloc::vec![config, push(3, 2)]);
    let id = group(5, 1);
    rig.install(descriptor(1, id, &[0, 1]));
    rig.install(descriptor(3, id, &[0, 1]));
    rig.now = Nanos(rig.now.0 + 10_000_000_000);
    (rig, id)
}

#[test]
fn whatever_shows_to_be_the_jobs_is_paid_by_the_job() {
    let (rig, id) = limited();
    let header = data_header(id, 1, ElementType::I32);
    let model = plain_header(Kind::Contrib, JobId(1), group(ROW_MODEL, 7), Members::EMPTY);
    let status = plain_header(Kind::Status, JobId(1), id, Members::EMPTY);
    let answer_len = rig.contribution(0, id, 0, 5).len();
    let cases = [
        ("a contribution", rig.contribution(0, id, 0, 5), 0),
        ("a group that is not open", rig.contribution(0, group(6, 1), 0, 5), 0),
        ("wrong elements", rig.worker_frame(0, 0, &Header { count: 3, ..header }, &[0; 12]), 0),
        ("a question for the server", rig.worker_frame(0, 0, &status, &[]), 0),
        ("a request, as its answer", rig.worker_frame(0, 0, &model, &[]), answer_len),
        ("a credit, as its sum", rig.credit(id, 0, 0b11), answer_len),
    ];
    for (name, frame, answer_len) in cases {
        let (mut rig, _) = limited();
        let passes = 2048 / frame.len().max(answer_len);
        let over_quota = |rig: &Rig| rig.report(0).stats().over_quota;
        for _ in 0..passes {
            let _ = rig.raw(&frame);
        }
        assert_eq!(over_quota(&rig), 0, "{name}: more than it costs");
        assert_eq!(rig.send(&frame).unwrap_err(), DropReason::OverQuota, "{name}");
        assert_eq!(over_quota(&rig), 1, "{name}");
    }
}

#[test]
fn a_new_life_is_paid_by_the_job() {
    let (mut rig, id) = limited();
    let config = rig.jobs[0].config.clone();
    rig.jobs[0].workers[0] = worker(&config, 0, 51);
    let mut frames = Vec::new();
    while rig.jobs[0].workers[0].standing() == Standing::Opening {
        let mut frame = alloc::vec![0; 1514];
        let now = rig.now;
        if let Some(len) = rig.jobs[0].workers[0].poll_transmit(now, &mut frame) {
            frames.push(frame[..len].to_vec());
            let mut reply = rig.raw(&frame[..len]).unwrap().remove(0);
            let udp = Datagram::find(&reply).unwrap();
            let header =
                Header::parse(&Packet::new_unchecked(&reply[udp.payload_range()])).unwrap();
            let client = &mut rig.jobs[0].workers[0];
            client.handle_frame(now, &udp, &header, &mut reply).unwrap();
        }
    }
    let frame = rig.contribution(0, id, 0, 5);
    assert_eq!(rig.send(&frame).unwrap_err(), DropReason::OverQuota);
    rig.now = Nanos(rig.now.0 + 5_000_000_000);
    assert!(rig.send(&frame).is_ok());
}

#[test]
fn what_is_forged_is_paid_by_the_strangers() {
    let (mut rig, id) = limited();
    let foreign = |datagram: &mut [u8]| datagram[7] ^= 1;
    let frames = [
        forge(rig.contribution(0, id, 0, 5), foreign),
        forge(rig.contribution(1, id, 0, 5), foreign),
        forge(rig.credit(id, 0, 0b11), foreign),
        forge(rig.contribution(0, id, 0, 5), |datagram| datagram[31] = 3),
    ];
    let mut answered = 0;
    for _ in 0..2_000 {
        for frame in &frames {
            answered += rig.raw(frame).map_or(0, |out| out.len());
        }
    }
    let drops = &rig.aggregator.stats().drops;
    assert!(answered > 0 && answered < 2_000, "{answered}");
    assert!(drops.of(DropReason::StrangersQuota) > 0);
    assert_eq!(drops.of(DropReason::OverQuota), 0);
    let frame = rig.contribution(0, id, 0, 5);
    let taken = (0..100).filter(|_| rig.send(&frame).is_ok()).count();
    assert_eq!(taken, 2048 / frame.len(), "the job has all that is its own");
}

#[test]
fn a_hello_of_an_unknown_row_or_job_is_refused() {
    let (mut rig, _) = limited();
    let config = rig.jobs[0].config.clone();
    for at in [3, 9] {
        // The job's number, or the row.
        let mut client = worker(&config, 0, 60);
        let mut frame = alloc::vec![0; 1514];
        let len = client.poll_transmit(rig.now, &mut frame).unwrap();
        let hello = forge(frame[..len].to_vec(), |datagram| datagram[at] = 0x55);
        let reply = rig.raw(&hello).unwrap().remove(0);
        assert!(reply.len() <= hello.len());
        let body = Hello::parse(&reply[42 + 32..]).unwrap().0;
        assert_eq!((body.phase, body.reason), (Phase::Refused, Reason::UnknownGroup));
    }
    let drops = &rig.aggregator.stats().drops;
    assert_eq!(drops.of(DropReason::UnknownJob) + drops.of(DropReason::UnknownGroup), 2);
}

#[test]
fn the_jobs_bucket_holds_a_greedy_job() {
    let (mut rig, id) = limited();
    let frame = rig.contribution(0, id, 0, 5);
    let taken = (0..100).filter(|_| rig.send(&frame).is_ok()).count();
    assert_eq!(taken, 2048 / frame.len());
    assert_eq!(rig.report(0).stats().over_quota, 100 - taken as u64);
    assert_eq!(rig.aggregator.stats().drops.of(DropReason::OverQuota), 100 - taken as u64);
    let other = rig.worker_frame(1, 0, &data_header(id, 0, ElementType::I32), &[0; 16]);
    assert!(rig.send(&other).is_ok(), "the other job has its own");
    rig.now = Nanos(rig.now.0 + 1_000_000_000);
    assert!(rig.send(&frame).is_ok());
}

#[test]
fn a_burst_that_completes_more_slots_than_can_be_acknowledged_loses_only_acknowledgements() {
    let chunks = 80;
    let config = PushConfig { chunks, quota_bytes: 80 * 80, ..push(1, 2) };
    let mut rig = Rig::new(alloc::vec![config]);
    let id = group(5, 1);
    rig.install(weft_control::GroupDescriptor { chunks, ..descriptor(1, id, &[0, 1]) });
    for chunk in 0..chunks {
        rig.ask(&rig.contribution(0, id, chunk, 1));
        rig.ask(&rig.credit(id, chunk, 0b11));
        let sum = rig.ask(&rig.contribution(1, id, chunk, 2));
        assert_eq!(sum.values(), [3; 4]);
    }
    assert_eq!(rig.poll().len(), 64);
    assert_eq!(rig.report(0).stats().haves_lost, 16);
    assert!(rig.ask(&rig.contribution(1, id, 79, 2)).is_state(Outcome::Have, 0b11));
}

#[test]
fn without_integrity_the_crc_is_optional_and_copies_stay_unsealed() {
    let config = PushConfig { integrity: Integrity::None, ..push(1, 2) };
    let mut rig = Rig::new(alloc::vec![config]);
    let id = group(5, 1);
    rig.install(weft_control::GroupDescriptor { replicate: true, ..descriptor(1, id, &[0, 1]) });
    rig.ask(&rig.contribution(0, id, 0, 1));
    rig.ask(&rig.contribution(1, id, 0, 2));
    let out = rig.raw(&rig.credit(id, 0, 0b11)).unwrap();
    assert_eq!(out.len(), 2);
    for frame in out {
        assert_eq!(Packet::new_unchecked(&frame[42..]).crc(), 0);
    }
    assert_ne!(Cookie::default(), rig.jobs[0].workers[0].terms().unwrap().cookie_up);
}

proptest! {
    /// Any single corruption of a sealed frame is refused or changes nothing that it should not.
    #[test]
    fn corrupted_frames_never_enter_a_sum(
        at in 14usize..90,
        flip in 1u8..,
        rank in 0usize..2,
    ) {
        let (mut rig, id) = super::installed();
        let mut frame = rig.contribution(rank, id, 1, 5);
        // The UDP checksum of IPv4, which this job does not use.
        prop_assume!(at < frame.len() && !(40..42).contains(&at));
        frame[at] ^= flip;
        let _ = rig.raw(&frame);
        prop_assert_eq!(rig.report(0).stats().contributions_added, 0);
    }

    #[test]
    fn no_frame_panics(mut frame in prop::collection::vec(any::<u8>(), 0..200), good in any::<bool>()) {
        let (mut rig, id) = super::installed();
        if good {
            let whole = rig.contribution(0, id, 0, 5);
            let len = frame.len().min(whole.len());
            frame[..len].copy_from_slice(&whole[..len]);
        }
        let _ = rig.raw(&frame);
    }
}

/// A switch needs the room of its credits; how many bytes there are decides nothing here.
#[test]
fn a_credit_is_padded_to_a_sum_or_not_at_all() {
    let (mut rig, id) = super::installed();
    rig.ask(&rig.contribution(0, id, 0, 4));
    rig.ask(&rig.contribution(1, id, 0, 3));
    let header = plain_header(Kind::Pull, JobId(0), id, Members(0b11));
    let padded = |rig: &Rig, len: usize| rig.server_frame(0, &header, &[0; 64][..len]);
    for len in [1, 15, 17, 20] {
        assert_eq!(rig.send(&padded(&rig, len)).unwrap_err(), DropReason::Length, "{len}");
    }
    let sum = rig.ask(&padded(&rig, 16));
    assert_eq!((sum.header.kind, sum.values()), (Kind::Contrib, vec![7; 4]));
    let have = rig.ask(&{
        let header = Header { chunk: ChunkIndex(1), ..header };
        rig.server_frame(0, &header, &[0; 16])
    });
    assert!(have.is_state(Outcome::Have, 0), "{have:?}");
}
