//! Who pays for a frame: the job for what its members show to be theirs, whatever becomes of it,
//! and the strangers for everything else.

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::frame::Udp;
use weft_wire::header::{Header, Kind};
use weft_wire::hello::{Hello, Phase as Step, Reason};
use weft_wire::{Cookie, GroupId, JobId, Members, Nanos};

use super::super::Aggregator;
use super::rig::*;
use crate::admit::StrangersQuota;
use crate::drops::DropReason;
use crate::role::Verdict;
use crate::table::{BoxConfig, RowConfig};

const RATE: u64 = 1_000_000;
const BURST: u64 = 4_096;
/// By then whatever the formation cost is paid, and all buckets are full.
const SETTLED: Nanos = Nanos(2_000_000_000);

/// A job of two members at its quota: its lease open, the bucket full.
fn limited(row: &RowConfig) -> (Aggregator, Vec<Member>) {
    let mut config = config(vec![row.clone()]);
    config.jobs[0].rate_bytes_per_sec = Some(RATE);
    config.jobs[0].burst_bytes = BURST;
    let mut aggregator = aggregator(config, 1);
    let mut group = vec![Member::new(row, 0, 1), Member::new(row, 1, 2)];
    form(&mut aggregator, &mut group);
    (aggregator, group)
}

/// Contributions that the job's bucket passes at `now`.
fn passes(aggregator: &mut Aggregator, member: &Member, now: Nanos) -> usize {
    let before = over_quota(aggregator);
    let mut count = 0;
    while over_quota(aggregator) == before {
        deliver(aggregator, member.contribution(0, 1), now);
        count += 1;
        assert!(count < 10_000, "the bucket has a bottom");
    }
    count - 1
}

fn over_quota(aggregator: &Aggregator) -> u64 {
    let counted = aggregator.stats().drops.of(DropReason::OverQuota);
    let of_job = aggregator.jobs().map(|(_, job)| job.over_quota).sum::<u64>();
    assert_eq!(counted, of_job, "the job's counter and the reason's are one");
    counted
}

fn mangled(member: &Member, kind: Kind, mangle: impl FnOnce(&mut Header)) -> Vec<u8> {
    let mut header = member.header(kind, 0);
    mangle(&mut header);
    let len = header.payload_len();
    member.frame(&header, &vec![0; len])
}

fn token(aggregator: &mut Aggregator, member: &Member, now: Nanos) -> u64 {
    let (_, challenge) = deliver(aggregator, member.hello(Hello::new(Step::Hello), &[]), now);
    challenge.unwrap().hello.unwrap().token
}

fn with_token(member: &Member, token: u64) -> Vec<u8> {
    let mut body = Hello::new(Step::Join);
    body.token = token;
    member.hello(body, &[])
}

#[test]
fn whatever_a_member_sends_is_paid_by_its_job() {
    let row = row(0, 0, 2);
    let (_, group) = limited(&row);
    let member = &group[0];
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a contribution", member.contribution(0, 1)),
        ("a step too far", member.contribution(999, 1)),
        ("a chunk out of range", mangled(member, Kind::Contrib, |h| h.chunk.0 = 5000)),
        ("wrong elements", mangled(member, Kind::Contrib, |h| h.count = 3)),
        ("an old generation", mangled(member, Kind::Contrib, |h| h.group.0 ^= 1)),
        ("a question", member.status(0)),
        ("an unwanted hand-over", mangled(member, Kind::Answer, |h| h.members = Members(0b11))),
        ("a hand-over of one", mangled(member, Kind::Answer, |h| h.members = Members(0b1))),
        ("a close", member.hello(Hello::new(Step::Close), &[])),
    ];
    for (name, frame) in cases {
        let (mut aggregator, _) = limited(&row);
        let is_question = frame == member.status(0);
        let cost_bytes = if is_question { member.contribution(0, 1).len() } else { frame.len() };
        for sent in 0..=BURST / cost_bytes as u64 {
            assert_eq!(over_quota(&aggregator), 0, "{name}: refused after {sent}");
            deliver(&mut aggregator, frame.clone(), SETTLED);
        }
        deliver(&mut aggregator, frame, SETTLED);
        assert!(over_quota(&aggregator) > 0, "{name}: not charged");
    }
}

#[test]
fn a_join_of_a_member_is_paid_by_its_job() {
    let row = row(0, 0, 2);
    let (mut aggregator, group) = limited(&row);
    let token = token(&mut aggregator, &group[0], SETTLED);
    let mut welcomes = 0;
    while over_quota(&aggregator) == 0 {
        let (_, answer) = deliver(&mut aggregator, with_token(&group[0], token), SETTLED);
        welcomes += u64::from(answer.is_some());
        assert!(welcomes < 1_000, "not charged");
    }
    let frame_len = with_token(&group[0], token).len() as u64;
    assert_eq!(
        welcomes,
        BURST / (frame_len + 1),
        "each costs its WELCOME, with one byte of bitmap"
    );
}

/// A question of 74 bytes is answered with a sum.
#[test]
fn a_question_costs_what_its_answer_may_cost() {
    let row = row(0, 0, 2);
    let (mut aggregator, group) = limited(&row);
    let answer_len = group[0].contribution(0, 1).len();
    assert!(group[0].status(0).len() < answer_len);
    for asked in 0..BURST / answer_len as u64 {
        let (verdict, _) = deliver(&mut aggregator, group[0].status(0), SETTLED);
        assert!(matches!(verdict, Verdict::Send { .. }), "{asked}");
    }
    let (verdict, _) = deliver(&mut aggregator, group[0].status(0), SETTLED);
    assert_eq!(verdict, Verdict::Drop(DropReason::OverQuota));
}

#[test]
fn forming_anew_is_paid_by_the_job() {
    let row = row(0, 0, 2);
    let (mut aggregator, _) = limited(&row);
    let mut anew = [Member::new(&row, 0, 13), Member::new(&row, 1, 14)];
    for member in &mut anew {
        member.join_at(&mut aggregator, None, SETTLED);
    }
    assert_eq!(aggregator.stats().formations, 2);
    // What an lcore does meanwhile is more than this job may have in 40 ms.
    let mut contribute = |ms: u64| {
        deliver(&mut aggregator, anew[1].contribution(0, 1), Nanos(SETTLED.0 + ms * 1_000_000)).0
    };
    assert_eq!(contribute(40), Verdict::Drop(DropReason::OverQuota));
    assert_eq!(contribute(70), Verdict::Hold);
    // A pair that forms anew as often as it can, for ten seconds.
    let begun = aggregator.stats().formations;
    let mut life = 100;
    for tick in 0..10_000 {
        let now = Nanos(2 * SETTLED.0 + tick * 1_000_000);
        for rank in 0..2 {
            life += 1;
            let member = Member::new(&row, rank, life);
            let challenge =
                deliver(&mut aggregator, member.hello(Hello::new(Step::Hello), &[]), now);
            if let Some(challenge) = challenge.1 {
                deliver(&mut aggregator, with_token(&member, challenge.hello.unwrap().token), now);
            }
        }
    }
    let formed = aggregator.stats().formations - begun;
    assert!((10..=200).contains(&formed), "{formed} formations in ten seconds at 1 MB/s");
    assert!(over_quota(&aggregator) > 1_000);
}

/// Everything that can be sent from the members' addresses by who does not know their cookies.
fn forged(member: &Member) -> Vec<Vec<u8>> {
    let foreign = |kind| mangled(member, kind, |h| h.cookie = Cookie(h.cookie.0 ^ 1));
    let stale = mangled(member, Kind::Contrib, |h| h.cookie = Cookie(h.cookie.0 ^ 0x0100_0000));
    let mut stranger = member.clone();
    stranger.life ^= 0x5555;
    vec![
        foreign(Kind::Contrib),
        stale,
        foreign(Kind::Status),
        mangled(member, Kind::Answer, |h| (h.cookie, h.members) = (Cookie(1), Members(0b11))),
        mangled(member, Kind::Contrib, |h| h.members = Members(0b11)),
        mangled(member, Kind::Pull, |_| {}),
        stranger.hello(Hello::new(Step::Hello), &[]),
        stranger.hello(Hello::new(Step::Close), &[]),
        with_token(&stranger, 77),
        with_token(member, 78),
    ]
}

#[test]
fn a_forger_with_every_members_address_takes_nothing_from_the_job() {
    let row = row(0, 0, 2);
    let (mut aggregator, group) = limited(&row);
    let mut alone = limited(&row).0;
    let undisturbed = passes(&mut alone, &group[0], SETTLED);
    let before = snapshot(&aggregator);
    let mut refused = 0;
    for _ in 0..500 {
        for member in &group {
            for frame in forged(member) {
                deliver(&mut aggregator, frame, SETTLED);
                refused += 1;
            }
        }
    }
    assert_eq!(snapshot(&aggregator), before);
    assert_eq!(over_quota(&aggregator), 0);
    assert_eq!(passes(&mut aggregator, &group[0], SETTLED), undisturbed);
    let drops = &aggregator.stats().drops;
    assert!(drops.of(DropReason::StrangersQuota) > 0);
    // What was no HELLO was refused each time; some HELLOs were answered.
    let answered = refused + undisturbed as u64 + 1 - drops.total();
    let hello_len = group[0].hello(Hello::new(Step::Hello), &[]).len() as u64;
    assert!(answered <= 2 * StrangersQuota::default().burst_bytes / hello_len + 8, "{answered}");
}

#[test]
fn each_address_of_the_table_has_its_own_strangers() {
    let row = row(0, 0, 2);
    let quota = StrangersQuota { rate_bytes_per_sec: 1_000, burst_bytes: 2_048 };
    let mut aggregator = aggregator(config(vec![row.clone()]), 1).with_strangers(quota);
    let group = [Member::new(&row, 0, 1), Member::new(&row, 1, 2)];
    let hello = |member: &Member| member.hello(Hello::new(Step::Hello), &[]);
    let len_bytes = hello(&group[0]).len();
    for asked in 0..20 {
        let verdict = deliver(&mut aggregator, hello(&group[0]), Nanos(0)).0;
        let is_answered = matches!(verdict, Verdict::Send { .. });
        assert_eq!(is_answered, asked < 2_048 / len_bytes, "{asked}");
        assert!(is_answered || verdict == Verdict::Drop(DropReason::StrangersQuota));
    }
    let (verdict, _) = deliver(&mut aggregator, hello(&group[1]), Nanos(0));
    assert!(matches!(verdict, Verdict::Send { .. }), "the other's bucket is its own");
    let (verdict, _) = deliver(&mut aggregator, hello(&group[0]), Nanos(1_000_000_000));
    assert!(matches!(verdict, Verdict::Send { .. }), "the bucket fills with time");
    // Whoever shows whose it is needs no leave of the strangers.
    let token = token(&mut aggregator, &group[1], Nanos(0));
    for _ in 0..100 {
        deliver(&mut aggregator, hello(&group[1]), Nanos(0));
    }
    let (_, answer) = deliver(&mut aggregator, with_token(&group[1], token), Nanos(0));
    assert_eq!(answer.unwrap().hello.unwrap().phase, Step::Waiting);
}

#[test]
fn a_stale_members_answers_are_bounded_and_then_go_on() {
    let (mut aggregator, group, _) = open(2);
    let stale = mangled(&group[0], Kind::Contrib, |h| h.cookie = Cookie(h.cookie.0 ^ 0x0100_0000));
    let mut told = 0;
    for _ in 0..5_000 {
        let (verdict, out) = deliver(&mut aggregator, stale.clone(), SETTLED);
        told += u64::from(out.is_some());
        assert!(out.is_some() || verdict == Verdict::Drop(DropReason::StrangersQuota));
    }
    assert_eq!(told, StrangersQuota::default().burst_bytes / stale.len() as u64);
    assert_eq!(aggregator.stats().drops.of(DropReason::StaleEpoch), told);
    let (_, out) = deliver(&mut aggregator, stale, Nanos(SETTLED.0 + 1_000_000));
    assert!(out.is_some());
}

/// A HELLO of `row` and `job` from an address that no table has.
fn lost(row: u16, job: u16, probe_len: u16) -> (Member, Vec<u8>) {
    let mut member = Member::new(&super::rig::row(0, 0, 1), 0, 9);
    let mut local = member.encap.source();
    local.addr = "10.9.9.9:7123".parse().unwrap();
    member.encap = weft_wire::frame::Encap::new(local, box_endpoint()).unwrap();
    (member.row, member.job) = (row, JobId(job));
    let mut body = Hello::new(Step::Hello);
    body.probe_len = probe_len;
    let frame = member.hello(body, &[]);
    (member, frame)
}

#[test]
fn a_hello_of_an_unknown_row_or_job_is_refused_to_its_source() {
    let rows = vec![row(0, 0, 1), row(1, 1, 1)];
    for (row, job, reason) in [
        (900, 0, DropReason::UnknownGroup),
        (u16::MAX, 0, DropReason::UnknownGroup),
        (1, 0, DropReason::UnknownGroup),
        (0, 9, DropReason::UnknownJob),
        (0, 60_000, DropReason::UnknownJob),
    ] {
        let mut aggregator = aggregator(config(rows.clone()), 1);
        for probe_len in [0, 1056] {
            let (member, frame) = lost(row, job, probe_len);
            let len = frame.len();
            let (verdict, out) = deliver(&mut aggregator, frame, Nanos(0));
            let out = out.unwrap_or_else(|| panic!("{row} {job}: {verdict:?}"));
            assert!(out.len <= len, "{} bytes for {len}", out.len);
            assert_eq!(out.target, member.encap.source().addr);
            assert_eq!((out.header.kind, out.header.job), (Kind::Hello, JobId(job)));
            assert_eq!(out.header.group, GroupId::new(row, 0));
            assert_eq!(out.header.members, member.rank.bit());
            let hello = out.hello.unwrap();
            assert_eq!((hello.phase, hello.reason), (Step::Refused, Reason::UnknownGroup));
            assert_eq!(hello.life, member.life);
        }
        assert_eq!(aggregator.stats().drops.of(reason), 2);
        assert_eq!(aggregator.stats().drops.total(), 2);
    }
}

#[test]
fn a_refusal_comes_from_the_lane_that_was_asked_and_none_from_a_lane_that_is_not() {
    let two_lanes = BoxConfig { shards: 2, ..config(vec![row(0, 0, 1)]) };
    let mut aggregator = aggregator(two_lanes, 1);
    let (member, _) = lost(900, 0, 0);
    let mut ask = |lane| {
        let mut header = member.header(Kind::Hello, lane);
        header.group = GroupId::new(900, 0);
        let mut body = vec![0; Hello::new(Step::Hello).body_len()];
        Hello::new(Step::Hello).emit(&[], &mut body);
        let mut buffer = member.frame(&header, &body);
        let len = buffer.len();
        match aggregator.handle_frame(Nanos(0), &mut buffer, len) {
            Verdict::Send { len } => {
                let source = Udp::parse(&buffer[..len]).unwrap().source;
                Ok((read(&buffer[..len]).header.chunk.0, source.port()))
            }
            verdict => Err(verdict),
        }
    };
    let base = box_endpoint().addr.port();
    assert_eq!(ask(0), Ok((0, base)));
    assert_eq!(ask(1), Ok((1, base + 1)));
    assert_eq!(ask(2), Err(Verdict::Drop(DropReason::UnknownGroup)));
}

#[test]
fn nothing_else_of_an_unknown_sender_is_answered() {
    let mut aggregator = aggregator(config(vec![row(0, 0, 1)]), 1);
    let (member, hello) = lost(900, 0, 0);
    let mut spoilt = hello.clone();
    *spoilt.last_mut().unwrap() ^= 1;
    let mut frames = vec![spoilt, member.contribution(0, 1), member.status(0)];
    for phase in [Step::Challenge, Step::Join, Step::Welcome, Step::Refused, Step::Close] {
        frames.push(member.hello(Hello::new(phase), &[]));
    }
    frames.push(mangled(&member, Kind::Answer, |_| {}));
    // A row that is served, but not to this address or this rank.
    frames.push(lost(0, 0, 0).1);
    for frame in frames {
        let (verdict, out) = deliver(&mut aggregator, frame, Nanos(0));
        assert!(matches!(verdict, Verdict::Drop(_)) && out.is_none(), "{verdict:?}");
    }
    let mut mangled = member.header(Kind::Hello, 3);
    mangled.group = GroupId::new(900, 0);
    let mut body = vec![0; Hello::new(Step::Hello).body_len()];
    Hello::new(Step::Hello).emit(&[], &mut body);
    let no_lane = member.frame(&mangled, &body);
    assert_eq!(
        deliver(&mut aggregator, no_lane, Nanos(0)).0,
        Verdict::Drop(DropReason::UnknownGroup)
    );
}

#[test]
fn refusals_of_unknown_rows_are_paid_by_the_strangers() {
    let row = row(0, 0, 2);
    let (mut aggregator, group) = limited(&row);
    let (_, frame) = lost(900, 0, 0);
    let mut answered = 0;
    for _ in 0..1_000 {
        answered += u64::from(deliver(&mut aggregator, frame.clone(), SETTLED).1.is_some());
    }
    assert_eq!(answered, StrangersQuota::default().burst_bytes / frame.len() as u64);
    let drops = &aggregator.stats().drops;
    assert_eq!(drops.of(DropReason::UnknownGroup), answered);
    assert_eq!(drops.of(DropReason::StrangersQuota), 1_000 - answered);
    assert_eq!(over_quota(&aggregator), 0);
    let (verdict, _) = deliver(&mut aggregator, group[0].contribution(0, 1), SETTLED);
    assert_eq!(verdict, Verdict::Hold);
}
