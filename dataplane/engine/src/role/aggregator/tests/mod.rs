//! The aggregator, cell by cell of SPEC#slot and SPEC#handshake.

mod cast;
mod cells;
mod hand_over;
mod holdings;
mod hostile;
mod leaf;
mod memory;
mod mtu;
mod numbers;
pub(crate) mod quick;
mod quota;
mod rig;
mod root;
mod run;
mod sessions;

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::header::{Header, Kind, Outcome};
use weft_wire::hello::{Hello, Phase as Step, Reason};
use weft_wire::{Cookie, Members, Nanos};

use rig::{row as any_row, *};

use super::{Aggregator, Phase};
use crate::drops::DropReason;
use crate::slot::counter::Transition;

fn row_of(members: u8) -> crate::table::RowConfig {
    any_row(0, 0, members)
}

#[test]
fn the_last_contribution_becomes_the_answer_to_all() {
    let (mut aggregator, group, _) = open(3);
    absorb(&mut aggregator, group[0].contribution(0, 1));
    absorb(&mut aggregator, group[2].contribution(0, 20));
    let answer = send(&mut aggregator, group[1].contribution(0, 300)).unwrap();
    assert!(answer.multicast);
    assert_eq!(answer.header.kind, Kind::Answer);
    assert_eq!(answer.values, vec![321; 4]);
    assert_eq!(answer.header.members, Members(0b111));
    assert_eq!(answer.header.cookie, group[0].cookie_down);
    assert_eq!(answer.target, member_addr(0, 0));
    let jobs: Vec<_> = aggregator.jobs().collect();
    assert_eq!((jobs[0].1.contributions_added, jobs[0].1.chunks_completed), (3, 1));
}

#[test]
fn a_repeat_gets_have_then_the_kept_answer() {
    let (mut aggregator, group, _) = open(2);
    absorb(&mut aggregator, group[0].contribution(0, 5));
    let have = send(&mut aggregator, group[0].contribution(0, 5)).unwrap();
    assert_eq!((have.header.kind, have.header.outcome), (Kind::State, Outcome::Have));
    assert_eq!(have.header.members, group[0].rank.bit());
    assert!(have.values.is_empty());
    let absent = send(&mut aggregator, group[1].status(0)).unwrap();
    assert_eq!(absent.header.members, group[0].rank.bit(), "the asker is not in it");
    send(&mut aggregator, group[1].contribution(0, 6)).unwrap();
    for frame in [group[0].contribution(0, 5), group[0].status(0)] {
        let kept = send(&mut aggregator, frame).unwrap();
        assert_eq!((kept.header.kind, kept.values), (Kind::Answer, vec![11; 4]));
        assert!(!kept.multicast, "to the sender only");
        assert_eq!(kept.target, member_addr(0, 0));
    }
}

/// PROTOCOL section 1's counterexample, step by step: it must not give 2 x w0.
#[test]
fn a_late_frame_of_an_old_chunk_cannot_enter_a_new_sum() {
    let row = row_of(2);
    let narrow = crate::table::RowConfig { window: 1, ..row.clone() };
    let mut aggregator = aggregator(config(vec![narrow]), 1);
    let mut group = vec![Member::new(&row, 0, 1), Member::new(&row, 1, 2)];
    form(&mut aggregator, &mut group);
    absorb(&mut aggregator, group[0].contribution(0, 1));
    send(&mut aggregator, group[1].contribution(0, 2)).unwrap();
    absorb(&mut aggregator, group[0].contribution(1, 10));
    let kept = send(&mut aggregator, group[0].contribution(0, 1)).unwrap();
    assert_eq!(kept.values, vec![3; 4]);
    let have = send(&mut aggregator, group[0].contribution(1, 10)).unwrap();
    assert_eq!(have.header.outcome, Outcome::Have);
    let answer = send(&mut aggregator, group[1].contribution(1, 20)).unwrap();
    assert_eq!(answer.values, vec![30; 4]);
}

#[test]
fn a_bank_is_claimed_only_after_its_successor_is_complete() {
    let (mut aggregator, group, _) = open(2);
    // Window 2: slot 0 serves steps 0, 2, 4 and so on.
    let stale = send(&mut aggregator, group[0].contribution(2, 1)).unwrap();
    assert_eq!(stale.header.outcome, Outcome::Stale, "step 0 is not complete");
    absorb(&mut aggregator, group[0].contribution(0, 1));
    let stale = send(&mut aggregator, group[0].contribution(2, 1)).unwrap();
    assert_eq!(stale.header.outcome, Outcome::Stale, "step 0 is there, but not complete");
    let stale = send(&mut aggregator, group[0].contribution(4, 1)).unwrap();
    assert_eq!(stale.header.outcome, Outcome::Stale, "step 2 is not complete");
    send(&mut aggregator, group[1].contribution(0, 1)).unwrap();
    absorb(&mut aggregator, group[0].contribution(2, 1));
    send(&mut aggregator, group[1].contribution(2, 1)).unwrap();
    absorb(&mut aggregator, group[1].contribution(4, 1));
    let stale = send(&mut aggregator, group[0].contribution(0, 1)).unwrap();
    assert_eq!(stale.header.outcome, Outcome::Stale, "step 0 is gone");
    assert_eq!(aggregator.stats().drops.of(DropReason::StaleStep), 4);
    assert_eq!(aggregator.stats().transitions.of(Transition::RefuseForeign), 4);
}

#[test]
fn a_status_changes_nothing() {
    let (mut aggregator, group, _) = open(2);
    let before = snapshot(&aggregator);
    let have = send(&mut aggregator, group[0].status(0)).unwrap();
    assert_eq!((have.header.outcome, have.header.members), (Outcome::Have, Members::EMPTY));
    assert_eq!(snapshot(&aggregator), before);
}

#[test]
fn sixty_four_members_fill_the_bitmap() {
    let (mut aggregator, group, _) = open(64);
    for member in &group[..63] {
        absorb(&mut aggregator, member.contribution(0, 1));
    }
    let answer = send(&mut aggregator, group[63].contribution(0, 1)).unwrap();
    assert_eq!((answer.header.members, answer.values), (Members(u64::MAX), vec![64; 4]));
}

#[test]
fn a_group_of_one_is_answered_at_once() {
    let (mut aggregator, group, _) = open(1);
    let answer = send(&mut aggregator, group[0].contribution(0, 9)).unwrap();
    assert_eq!((answer.header.kind, answer.values), (Kind::Answer, vec![9; 4]));
}

#[test]
fn the_lease_opens_when_all_have_joined() {
    let row = row_of(3);
    let mut aggregator = aggregator(config(vec![row.clone()]), 1);
    let mut group: Vec<_> = (0..3).map(|r| Member::new(&row, r, 7)).collect();
    for rank in [2, 0] {
        let waiting = group[rank].join(&mut aggregator, None);
        assert_eq!(waiting.hello.unwrap().phase, Step::Waiting);
        assert!(waiting.header.members.contains(group[rank].rank.bit()));
    }
    let stale = send(&mut aggregator, group[0].contribution(0, 1)).unwrap();
    assert_eq!(stale.header.outcome, Outcome::Stale);
    let welcome = group[1].join(&mut aggregator, None).hello.unwrap();
    assert_eq!((welcome.phase, welcome.window, welcome.mask), (Step::Welcome, 2, Members(7)));
    assert_ne!(welcome.session, 0);
}

#[test]
fn a_probe_is_answered_with_as_many_bytes() {
    let row = row_of(1);
    let mut aggregator = aggregator(config(vec![row.clone()]), 1);
    let member = Member::new(&row, 0, 7);
    let mut probe = Hello::new(Step::Hello);
    probe.probe_len = 1472;
    let challenge = send(&mut aggregator, member.hello(probe, &[])).unwrap();
    assert_eq!(challenge.len, 42 + 1472);
    // A probe that lies about its length would make the box amplify.
    let mut frame = member.hello(probe, &[]);
    frame.truncate(42 + 32 + 200);
    let lying = Member::new(&row, 0, 7);
    let mut header = lying.header(Kind::Hello, 0);
    header.cookie = Cookie::default();
    let frame = lying.frame(&header, &frame[42 + 32..]);
    assert_eq!(send(&mut aggregator, frame).unwrap_err(), DropReason::Length);
}

/// A restarted box: chunks that someone holds are handed over, only the others are summed again.
#[test]
fn resync_hands_over_what_survivors_hold() {
    let (mut aggregator, mut group, row) = open(2);
    absorb(&mut aggregator, group[0].contribution(0, 1));
    send(&mut aggregator, group[1].contribution(0, 2)).unwrap();
    let mut restarted = rig::aggregator(config(vec![row]), 99);
    let stale = send(&mut restarted, group[0].contribution(1, 5)).unwrap();
    assert_eq!((stale.header.outcome, stale.header.cookie), (Outcome::Stale, group[0].cookie));
    // Rank 0 saw the answer to chunk 0, rank 1 did not.
    group[0].join(&mut restarted, Some((1, &[0])));
    let welcome = group[1].join(&mut restarted, Some((0, &[0]))).hello.unwrap();
    assert_eq!((welcome.phase, welcome.low_step, welcome.step_bits), (Step::Welcome, 0, 8));
    let welcome = group[0].join(&mut restarted, None).hello.unwrap();
    assert_eq!(welcome.session, group[1].session, "the session goes on");
    // Rank 1 contributes again, which alone can never complete.
    absorb(&mut restarted, group[1].contribution(0, 2));
    let mut header = group[1].header(Kind::Answer, 0);
    header.members = Members(0b11);
    let refused = group[1].frame(&header, &payload(666));
    assert_eq!(send(&mut restarted, refused).unwrap_err(), DropReason::Unwanted);
    header.cookie = group[0].cookie;
    let sum = send(&mut restarted, group[0].frame(&header, &payload(3))).unwrap();
    assert!(sum.multicast);
    assert_eq!((sum.header.kind, sum.values), (Kind::Answer, vec![3; 4]));
    // And the stream goes on where it was.
    absorb(&mut restarted, group[0].contribution(2, 10));
    let answer = send(&mut restarted, group[1].contribution(2, 20)).unwrap();
    assert_eq!(answer.values, vec![30; 4]);
    assert_eq!(restarted.stats().transitions.of(Transition::HandOver), 1);
    assert_eq!(restarted.stats().transitions.of(Transition::SeedResumed), 1);
}

#[test]
fn a_new_life_ends_the_session_and_the_others_are_told() {
    let (mut aggregator, mut group, row) = open(2);
    absorb(&mut aggregator, group[0].contribution(0, 1));
    let mut reborn = Member::new(&row, 1, 555);
    let waiting = reborn.join(&mut aggregator, None);
    assert_eq!(waiting.hello.unwrap().phase, Step::Waiting);
    let stale = send(&mut aggregator, group[0].contribution(1, 1)).unwrap();
    assert_eq!(stale.header.outcome, Outcome::Stale);
    let refused = group[0].join(&mut aggregator, Some((0, &[])));
    let hello = refused.hello.unwrap();
    assert_eq!((hello.phase, hello.reason), (Step::Refused, Reason::MemberLost));
    assert_eq!(refused.header.members, reborn.rank.bit());
    // Begun anew, the two form again in another epoch, and nothing of the old sums is left.
    let old = group[0].cookie;
    let mut fresh = Member::new(&row, 0, 556);
    fresh.join(&mut aggregator, None);
    reborn.join(&mut aggregator, None);
    assert_ne!(fresh.cookie, old);
    absorb(&mut aggregator, fresh.contribution(0, 7));
    let answer = send(&mut aggregator, reborn.contribution(0, 8)).unwrap();
    assert_eq!(answer.values, vec![15; 4]);
}

#[test]
fn a_recorded_handshake_of_an_earlier_life_changes_nothing() {
    let row = row_of(1);
    let mut aggregator = aggregator(config(vec![row.clone()]), 1);
    let old = Member::new(&row, 0, 1);
    let challenge = send(&mut aggregator, old.hello(Hello::new(Step::Hello), &[])).unwrap();
    let mut join = Hello::new(Step::Join);
    join.token = challenge.hello.unwrap().token;
    let recorded = old.hello(join, &[]);
    assert_eq!(
        send(&mut aggregator, recorded.clone()).unwrap().hello.unwrap().phase,
        Step::Welcome
    );
    let mut new = Member::new(&row, 0, 2);
    new.join(&mut aggregator, None);
    let epoch = aggregator.leases().next().unwrap().epoch();
    assert_eq!(send(&mut aggregator, recorded).unwrap_err(), DropReason::Token);
    assert_eq!(aggregator.leases().next().unwrap().epoch(), epoch);
}

/// The JOIN of a life that proves a fresh round trip, sent once and kept.
fn recorded_join(aggregator: &mut Aggregator, member: &Member) -> Vec<u8> {
    let challenge = send(aggregator, member.hello(Hello::new(Step::Hello), &[])).unwrap();
    let mut join = Hello::new(Step::Join);
    join.token = challenge.hello.unwrap().token;
    let recorded = member.hello(join, &[]);
    send(aggregator, recorded.clone()).unwrap();
    recorded
}

#[test]
fn a_recorded_join_of_a_life_that_closed_joins_no_later_session() {
    let row = row_of(2);
    let mut aggregator = aggregator(config(vec![row.clone()]), 1);
    let mut recorded = Vec::new();
    for run in 0..4 {
        let lives = [Member::new(&row, 0, 10 + run), Member::new(&row, 1, 20 + run)];
        recorded.push(recorded_join(&mut aggregator, &lives[1]));
        // The other's place cannot be taken by any life that was here before.
        for join in &recorded[..recorded.len() - 1] {
            assert_eq!(send(&mut aggregator, join.clone()).unwrap_err(), DropReason::Token);
        }
        assert_eq!(aggregator.leases().next().unwrap().phase(), Phase::Forming);
        recorded.push(recorded_join(&mut aggregator, &lives[0]));
        assert_eq!(aggregator.leases().next().unwrap().phase(), Phase::Open);
        for member in &lives {
            send(&mut aggregator, member.hello(Hello::new(Step::Close), &[])).unwrap();
        }
    }
    assert_eq!((aggregator.stats().formations, aggregator.stats().sessions_broken), (4, 0));
}

#[test]
fn a_recorded_join_of_a_session_that_broke_joins_no_later_one() {
    let row = row_of(2);
    let mut aggregator = aggregator(config(vec![row.clone()]), 1);
    let survivor = recorded_join(&mut aggregator, &Member::new(&row, 0, 1));
    recorded_join(&mut aggregator, &Member::new(&row, 1, 2));
    let welcome = send(&mut aggregator, survivor.clone()).unwrap();
    assert_eq!(welcome.hello.unwrap().phase, Step::Welcome, "a repeat of the present life");
    recorded_join(&mut aggregator, &Member::new(&row, 1, 3));
    assert_eq!(send(&mut aggregator, survivor).unwrap_err(), DropReason::Token);
    assert_eq!(aggregator.leases().next().unwrap().phase(), Phase::Forming);
}

#[test]
fn all_close_before_a_new_session_begins() {
    let (mut aggregator, group, row) = open(2);
    let closed = send(&mut aggregator, group[0].hello(Hello::new(Step::Close), &[])).unwrap();
    assert_eq!(closed.header.members, group[0].rank.bit());
    let mut next = Member::new(&row, 0, 900);
    let waiting = next.join(&mut aggregator, None);
    assert_eq!(waiting.hello.unwrap().phase, Step::Waiting, "rank 1 may still need the sums");
    let closed = send(&mut aggregator, group[1].hello(Hello::new(Step::Close), &[])).unwrap();
    assert_eq!(closed.header.members, Members(0b11));
    next.join(&mut aggregator, None);
    assert_eq!(aggregator.leases().next().unwrap().phase(), Phase::Forming);
    assert_eq!(aggregator.stats().sessions_broken, 0);
}

/// Else a lease that was closed once would be free whenever anybody closes.
#[test]
fn a_new_epoch_has_nobody_closed() {
    let (mut aggregator, mut group, row) = open(2);
    for member in &group {
        send(&mut aggregator, member.hello(Hello::new(Step::Close), &[])).unwrap();
    }
    group = (0..2).map(|rank| Member::new(&row, rank, 300 + u64::from(rank))).collect();
    form(&mut aggregator, &mut group);
    assert_eq!(aggregator.leases().next().unwrap().present(), Members(0b11));
    let closed = send(&mut aggregator, group[1].hello(Hello::new(Step::Close), &[])).unwrap();
    assert_eq!(closed.header.members, group[1].rank.bit(), "rank 0 has not closed");
    let mut next = Member::new(&row, 1, 400);
    let waiting = next.join(&mut aggregator, None);
    assert_eq!(waiting.hello.unwrap().phase, Step::Waiting);
    absorb(&mut aggregator, group[0].contribution(0, 1));
}

#[test]
fn a_step_of_vectors_that_differ_in_length_has_no_sum() {
    let (mut aggregator, group, row) = open(3);
    let [first, second, third] = [0, 1, 2].map(|rank| group[rank].rank.bit());
    absorb(&mut aggregator, group[0].last(0, 3, 4));
    let mut told = |frame| {
        let header = send(&mut aggregator, frame).unwrap().header;
        assert_eq!((header.kind, header.outcome), (Kind::State, Outcome::MISMATCH));
        (header.count, header.members)
    };
    assert_eq!(told(group[1].last(0, 2, 4)), (3, first), "what the first means");
    assert_eq!(told(group[0].status(0)), (2, first), "what the other means");
    assert_eq!(told(group[2].last(0, 3, 4)), (2, first.union(third)), "one more agrees");
    for frame in [group[1].last(0, 3, 4), group[1].status(0)] {
        let (_, members) = told(frame);
        assert!(members.contains(first) && members.contains(third));
    }
    assert!(told(group[0].contribution(0, 1)).1.contains(second), "it came with three");
    let window = u32::from(row.window);
    let stale = send(&mut aggregator, group[0].contribution(2 * window, 1)).unwrap();
    assert_eq!(stale.header.outcome, Outcome::Stale, "the slot goes on no more");
}

#[test]
fn only_a_vectors_end_has_padding_and_all_of_it() {
    let (mut aggregator, group, _) = open(2);
    for (count, padded_len, reason) in
        [(3, 3, DropReason::Length), (3, 5, DropReason::Length), (5, 5, DropReason::ElementCount)]
    {
        let refused = send(&mut aggregator, group[0].last(0, count, padded_len));
        assert_eq!(refused.unwrap_err(), reason);
    }
    let header = Header { count: 3, ..group[0].header(Kind::Contrib, 0) };
    let frame = group[0].frame(&header, &payload(1));
    assert_eq!(send(&mut aggregator, frame).unwrap_err(), DropReason::Length);
    absorb(&mut aggregator, group[0].last(0, 3, 4));
    let sum = send(&mut aggregator, group[1].last(0, 3, 4)).unwrap();
    assert_eq!((sum.header.kind, sum.header.count, sum.values), (Kind::Answer, 4, vec![2; 4]));
}

#[test]
fn a_member_that_waits_for_one_that_has_closed_is_told() {
    let (mut aggregator, group, _) = open(2);
    let close = |member: &Member| member.hello(Hello::new(Step::Close), &[]);
    send(&mut aggregator, close(&group[1])).unwrap();
    absorb(&mut aggregator, group[0].contribution(0, 1));
    for frame in [group[0].contribution(0, 1), group[0].status(0), group[0].status(1)] {
        let told = send(&mut aggregator, frame).unwrap().header;
        assert_eq!((told.kind, told.outcome), (Kind::State, Outcome::LEFT));
        assert_eq!(told.members, group[1].rank.bit());
    }
    send(&mut aggregator, close(&group[0])).unwrap();
    let told = send(&mut aggregator, group[0].status(0)).unwrap().header;
    assert_eq!(told.outcome, Outcome::Have, "all have closed");
}

#[test]
fn a_member_that_waits_for_a_hand_over_is_not_told_of_its_holders_close() {
    let row = row(0, 0, 2);
    let mut aggregator = aggregator(config(vec![row.clone()]), 1);
    let mut group: Vec<Member> = (0..2).map(|rank| Member::new(&row, rank, 9)).collect();
    for _ in 0..2 {
        for (member, held) in group.iter_mut().zip([0x80, 0]) {
            member.session = 777;
            member.join(&mut aggregator, Some((0, &[held])));
        }
    }
    send(&mut aggregator, group[0].hello(Hello::new(Step::Close), &[])).unwrap();
    let told = send(&mut aggregator, group[1].status(0)).unwrap().header;
    assert_eq!(told.outcome, Outcome::Have, "rank 0 holds the sum of step 0");
    let told = send(&mut aggregator, group[1].status(1)).unwrap().header;
    assert_eq!(told.outcome, Outcome::LEFT);
}

#[test]
fn the_straggler_report_says_who_was_late() {
    let (mut aggregator, group, _) = open(2);
    deliver(&mut aggregator, group[1].contribution(0, 1), Nanos(1_000));
    deliver(&mut aggregator, group[0].contribution(0, 1), Nanos(6_000));
    let lease = aggregator.leases().next().unwrap();
    let lags: Vec<u64> = lease.members().map(|member| member.lag.max.0).collect();
    assert_eq!(lags, [5_000, 0]);
}
