//! Frames that have no right to a slot: each is refused under its own reason, and no slot changes.

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::header::{ElementType, Flags, Header, Kind, Operation};
use weft_wire::hello::{Hello, Phase as Step};
use weft_wire::{Cookie, GroupId, JobId, Members, Nanos};

use super::rig::*;
use crate::drops::DropReason;
use crate::role::Verdict;

/// A frame and the reason it must be refused for.
type Case = (&'static str, Vec<u8>, DropReason);

fn mangled(member: &Member, mangle: impl FnOnce(&mut Header)) -> Vec<u8> {
    let mut header = member.header(Kind::Contrib, 0);
    mangle(&mut header);
    let len = header.payload_len();
    member.frame(&header, &vec![0; len])
}

fn patched(member: &Member, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = member.contribution(0, 1);
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

/// Replaces bytes of the IPv4 header and makes its checksum right again.
fn patched_ipv4(member: &Member, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = patched(member, at, bytes);
    frame[24..26].fill(0);
    let sum: u32 = frame[14..34]
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap();
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame
}

fn cases(member: &Member, stranger: &Member) -> Vec<Case> {
    let good = member.contribution(0, 1);
    let mut vlan = good.clone();
    vlan.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
    let unsealed = {
        let mut frame = good.clone();
        frame[42 + 20..42 + 24].fill(0);
        frame
    };
    let mut corrupted = good.clone();
    corrupted[42 + 33] ^= 0x40;
    let mut long = good.clone();
    long.truncate(80);
    let foreign_cookie = Cookie(member.cookie.0 ^ 1);
    let stale_cookie = Cookie(member.cookie.0 ^ 0x0100_0000);
    vec![
        ("truncated", good[..60].to_vec(), DropReason::Length),
        ("cut payload", long, DropReason::Length),
        ("count and length differ", patched(member, 42 + 18, &[0, 9]), DropReason::Length),
        ("vlan", vlan, DropReason::Vlan),
        ("fragment", patched_ipv4(member, 20, &[0x20, 0]), DropReason::Fragment),
        ("options", patched(member, 14, &[0x46]), DropReason::IpHeader),
        ("ip checksum", patched(member, 22, &[9]), DropReason::IpChecksum),
        ("another host", patched_ipv4(member, 30, &[10, 9, 9, 9]), DropReason::NotForUs),
        ("version", patched(member, 42, &[0x21]), DropReason::Version),
        ("kind", patched(member, 42, &[0x1f]), DropReason::Kind),
        ("server's kind", mangled_status(member, Kind::Pull), DropReason::Kind),
        ("unknown job", mangled(member, |h| h.job = JobId(9)), DropReason::UnknownJob),
        ("absurd job", mangled(member, |h| h.job = JobId(60_000)), DropReason::UnknownJob),
        ("another job's row", mangled(member, |h| h.job = JobId(1)), DropReason::UnknownGroup),
        ("row", mangled(member, |h| h.group = GroupId::new(900, 1)), DropReason::UnknownGroup),
        ("absurd row", mangled(member, |h| h.group = GroupId(u32::MAX)), DropReason::UnknownGroup),
        ("no member", mangled(member, |h| h.members = Members(0)), DropReason::BadMembers),
        ("two members", mangled(member, |h| h.members = Members(3)), DropReason::BadMembers),
        ("rank outside", mangled(member, |h| h.members = Members(1 << 63)), DropReason::BadMembers),
        ("chunk", mangled(member, |h| h.chunk.0 = 1000), DropReason::ChunkOutOfRange),
        ("absurd chunk", mangled(member, |h| h.chunk.0 = u32::MAX), DropReason::ChunkOutOfRange),
        ("count", mangled(member, |h| h.count = 3), DropReason::ElementCount),
        ("type", mangled(member, |h| h.element_type = ElementType::F32), DropReason::ElementType),
        ("operation", mangled(member, |h| h.operation = Operation::Max), DropReason::Operation),
        ("exponent", mangled(member, |h| h.exponent = 1), DropReason::Exponent),
        ("absurd exponent", mangled(member, |h| h.exponent = -128), DropReason::Exponent),
        ("a question's exponent", absurd_status(member), DropReason::Exponent),
        ("crc", corrupted, DropReason::Integrity),
        ("no crc", unsealed, DropReason::Integrity),
        ("another address", stranger.contribution(0, 1), DropReason::WrongSource),
        ("another port", patched(member, 34, &[0x1b, 0x68]), DropReason::WrongSource),
        ("hand-over", hand_over(member), DropReason::Unwanted),
        ("handshake", member.hello(Hello::new(Step::Welcome), &[]), DropReason::Handshake),
        ("token", member.hello(Hello::new(Step::Join), &[]), DropReason::Token),
        ("stale cookie", mangled(member, |h| h.cookie = stale_cookie), DropReason::StaleEpoch),
        ("foreign cookie", mangled(member, |h| h.cookie = foreign_cookie), DropReason::BadCookie),
        ("generation", mangled(member, |h| h.group.0 ^= 1), DropReason::StaleGroup),
    ]
}

fn mangled_status(member: &Member, kind: Kind) -> Vec<u8> {
    member.frame(&member.header(kind, 0), &[])
}

fn absurd_status(member: &Member) -> Vec<u8> {
    member.frame(&Header { exponent: 127, ..member.header(Kind::Status, 0) }, &[])
}

fn hand_over(member: &Member) -> Vec<u8> {
    let mut header = member.header(Kind::Answer, 0);
    header.members = Members(0b11);
    member.frame(&header, &payload(1))
}

#[test]
fn every_refused_frame_counts_once_and_changes_no_slot() {
    let rows = vec![row(0, 0, 2), row(1, 1, 2)];
    let mut aggregator = aggregator(config(rows.clone()), 1);
    let mut group = vec![Member::new(&rows[0], 0, 1), Member::new(&rows[0], 1, 2)];
    form(&mut aggregator, &mut group);
    absorb(&mut aggregator, group[1].contribution(0, 40));
    // Rank 0's cookie from rank 1's address.
    let mut stranger = group[0].clone();
    stranger.encap = group[1].encap;
    let before = snapshot(&aggregator);
    for (name, frame, reason) in cases(&group[0], &stranger) {
        let count = aggregator.stats().drops.of(reason);
        let total = aggregator.stats().drops.total();
        let (verdict, _) = deliver(&mut aggregator, frame, Nanos(0));
        assert!(!matches!(verdict, Verdict::Hold | Verdict::Multicast { .. }), "{name}: taken in");
        assert_eq!(aggregator.stats().drops.of(reason), count + 1, "{name}: {reason:?}");
        assert_eq!(aggregator.stats().drops.total(), total + 1, "{name}: counted once");
        assert_eq!(snapshot(&aggregator), before, "{name}: changed a slot");
    }
    // The good frame still does what it should.
    let answer = send(&mut aggregator, group[0].contribution(0, 2)).unwrap();
    assert_eq!(answer.values, vec![42; 4]);
}

/// Where the members agree on an exponent chunk by chunk, it is legal all the same.
#[test]
fn an_exponent_without_meaning_is_refused_where_any_is_free() {
    let row = crate::table::RowConfig { exponent: None, ..row(0, 0, 2) };
    let mut aggregator = aggregator(config(vec![row.clone()]), 1);
    let mut group = [0, 1].map(|rank| Member::new(&row, rank, 5));
    form(&mut aggregator, &mut group);
    for exponent in [-128, -127, 127] {
        let frame = mangled(&group[0], |header| header.exponent = exponent);
        assert!(!aggregator.is_ordinary(&frame));
        assert_eq!(send(&mut aggregator, frame).unwrap_err(), DropReason::Exponent);
    }
    assert_eq!(snapshot(&aggregator), []);
    for (step, exponent) in [(0, -126), (1, 126)] {
        let of = |rank: usize| {
            mangled(&group[rank], |header| (header.chunk.0, header.exponent) = (step, exponent))
        };
        absorb(&mut aggregator, of(0));
        assert_eq!(send(&mut aggregator, of(1)).unwrap().header.exponent, exponent);
    }
}

#[test]
fn job_a_cannot_reach_job_b() {
    let rows = vec![row(0, 0, 1), row(1, 1, 1)];
    let mut aggregator = aggregator(config(rows.clone()), 1);
    let mut a = Member::new(&rows[0], 0, 1);
    let mut b = Member::new(&rows[1], 0, 2);
    form(&mut aggregator, core::slice::from_mut(&mut a));
    form(&mut aggregator, core::slice::from_mut(&mut b));
    let before = snapshot(&aggregator);
    // A knows everything about B's lease but B's cookie and address.
    let mut header = b.header(Kind::Contrib, 0);
    header.cookie = a.cookie;
    deliver(&mut aggregator, a.frame(&header, &payload(1)), Nanos(0));
    header.cookie = b.cookie;
    deliver(&mut aggregator, a.frame(&header, &payload(1)), Nanos(0));
    assert_eq!(snapshot(&aggregator), before);
    let drops = &aggregator.stats().drops;
    assert_eq!(
        drops.of(DropReason::WrongSource)
            + drops.of(DropReason::BadCookie)
            + drops.of(DropReason::StaleEpoch),
        2
    );
}

#[test]
fn a_greedy_job_meets_its_quota() {
    let rows = vec![row(0, 0, 1)];
    let mut config = config(rows.clone());
    config.jobs[0].rate_bytes_per_sec = Some(1_000_000);
    config.jobs[0].burst_bytes = 2_048;
    let mut aggregator = aggregator(config, 1);
    let mut member = Member::new(&rows[0], 0, 1);
    form(&mut aggregator, core::slice::from_mut(&mut member));
    let frame_len = member.contribution(0, 1).len();
    let now = Nanos(2_000_000_000);
    let mut taken = 0;
    for chunk in 0..100 {
        let (verdict, _) = deliver(&mut aggregator, member.contribution(chunk, 1), now);
        taken += u32::from(matches!(verdict, Verdict::Multicast { .. }));
    }
    assert_eq!(taken as usize, 2_048 / frame_len);
    assert_eq!(aggregator.stats().drops.of(DropReason::OverQuota), u64::from(100 - taken));
    let later = Nanos(now.0 + 1_000_000_000);
    let (verdict, _) = deliver(&mut aggregator, member.contribution(taken, 1), later);
    assert!(matches!(verdict, Verdict::Multicast { .. }), "the bucket fills with time");
}

#[test]
fn a_frame_on_the_wrong_lane_is_refused() {
    let mut config = config(vec![row(0, 0, 1)]);
    config.shards = 2;
    let table = crate::table::Table::new(config.clone()).unwrap();
    let kernels = weft_kernel::Kernels::detect();
    let mut lane = super::super::Aggregator::new(&table, 0, 1, kernels);
    let mut member = Member::new(&config.rows[0], 0, 1);
    form(&mut lane, core::slice::from_mut(&mut member));
    let wrong_chunk = send(&mut lane, member.contribution(1, 1)).unwrap_err();
    assert_eq!(wrong_chunk, DropReason::WrongShard);
    // The port of lane 1, on lane 0.
    let frame = patched(&member, 34, &7001u16.to_be_bytes());
    assert_eq!(send(&mut lane, frame).unwrap_err(), DropReason::WrongShard);
    let answer = send(&mut lane, member.contribution(0, 1)).unwrap();
    assert_eq!(answer.header.flags, Flags::NONE);
}

#[test]
fn a_hand_over_for_another_lane_is_refused() {
    let mut config = config(vec![row(0, 0, 2)]);
    config.shards = 2;
    let table = crate::table::Table::new(config.clone()).unwrap();
    let kernels = weft_kernel::Kernels::detect();
    let mut lane = super::super::Aggregator::new(&table, 0, 1, kernels);
    let mut group = [Member::new(&config.rows[0], 0, 1), Member::new(&config.rows[0], 1, 2)];
    group.iter_mut().for_each(|member| member.session = 77);
    // Member 0 holds step 0, member 1 lacks it.
    group[0].join(&mut lane, Some((1, &[0])));
    group[1].join(&mut lane, Some((0, &[0])));
    group[0].join(&mut lane, Some((1, &[0])));
    let mut header = group[0].header(Kind::Answer, 1);
    header.members = Members(0b11);
    let wrong = group[0].frame(&header, &payload(5));
    assert_eq!(send(&mut lane, wrong).unwrap_err(), DropReason::WrongShard);
    header.chunk.0 = 0;
    let right = group[0].frame(&header, &payload(5));
    assert_eq!(send(&mut lane, right).unwrap().values, vec![5; 4]);
}

#[test]
fn congestion_and_clamping_are_reported_in_the_sum() {
    let mut row = row(0, 0, 2);
    row.overflow = weft_wire::hello::Overflow::Clamp;
    let mut aggregator = aggregator(config(vec![row.clone()]), 1);
    let mut group = vec![Member::new(&row, 0, 1), Member::new(&row, 1, 2)];
    form(&mut aggregator, &mut group);
    let marked = patched_ipv4(&group[0], 15, &[0x03]);
    absorb(&mut aggregator, marked);
    let answer = send(&mut aggregator, group[1].contribution(0, i32::MAX)).unwrap();
    assert_eq!(answer.values, vec![1 + (i32::MAX / 2); 4]);
    assert!(answer.header.flags.contains(Flags::CLAMPED.union(Flags::CONGESTION)));
    let stats = aggregator.jobs().next().unwrap().1;
    assert_eq!((stats.contributions_clamped, stats.contributions_marked), (1, 1));
}

/// Else anybody could make the box send to a member whenever he likes.
#[test]
fn a_stale_frame_from_another_address_is_not_answered() {
    let (mut aggregator, group, _) = open(2);
    let mut stranger = group[0].clone();
    stranger.encap = group[1].encap;
    let stale_cookie = Cookie(group[0].cookie.0 ^ 0x0100_0000);
    let foreign_cookie = Cookie(group[0].cookie.0 ^ 1);
    for kind in [Kind::Contrib, Kind::Status] {
        let good = group[0].header(kind, 0);
        let cases = [
            (Header { cookie: stale_cookie, ..good }, DropReason::StaleEpoch),
            (Header { cookie: foreign_cookie, ..good }, DropReason::BadCookie),
            (Header { group: GroupId(good.group.0 ^ 1), ..good }, DropReason::StaleGroup),
        ];
        for (header, reason) in cases {
            let payload = vec![0; header.payload_len()];
            let told = send(&mut aggregator, group[0].frame(&header, &payload)).unwrap();
            assert_eq!(told.header.outcome, weft_wire::header::Outcome::Stale);
            let count = aggregator.stats().drops.of(reason);
            let (verdict, _) =
                deliver(&mut aggregator, stranger.frame(&header, &payload), Nanos(0));
            assert_eq!(verdict, Verdict::Drop(reason));
            assert_eq!(aggregator.stats().drops.of(reason), count + 1);
        }
    }
}

#[test]
fn hand_overs_are_charged_to_the_job() {
    let mut config = config(vec![row(0, 0, 2)]);
    config.jobs[0].rate_bytes_per_sec = Some(1_000_000);
    config.jobs[0].burst_bytes = 2_048;
    let mut aggregator = aggregator(config.clone(), 1);
    let mut group = [0, 1].map(|rank| Member::new(&config.rows[0], rank, 5));
    group.iter_mut().for_each(|member| member.session = 77);
    // Member 0 holds step 0, member 1 lacks it.
    group[0].join(&mut aggregator, Some((1, &[0])));
    group[1].join(&mut aggregator, Some((0, &[0])));
    // By then the job has paid for its formation, and the bucket is full.
    let now = Nanos(2_000_000_000);
    group[0].join_at(&mut aggregator, Some((1, &[0])), Nanos(1_000_000_000));
    let frame = hand_over(&group[0]);
    let room = 2_048 / frame.len();
    for count in 0..100 {
        let (verdict, _) = deliver(&mut aggregator, frame.clone(), now);
        let is_over = verdict == Verdict::Drop(DropReason::OverQuota);
        assert_eq!(is_over, count >= room, "hand-over {count}: {verdict:?}");
    }
    assert_eq!(aggregator.jobs().next().unwrap().1.over_quota, 100 - room as u64);
}

#[test]
fn arp_is_for_the_host_side() {
    let (mut aggregator, _, _) = open(1);
    let mut arp = vec![0xff; 60];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(deliver(&mut aggregator, arp, Nanos(0)).0, Verdict::Host);
}
