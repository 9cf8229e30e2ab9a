//! Whose JOIN joins, begins or breaks a session: by the session that it names, and by what it says
//! that it holds (SPEC#handshake).

use alloc::vec;

use weft_wire::Members;
use weft_wire::hello::{Hello, Phase as Step, Reason};

use super::super::Aggregator;
use super::rig::*;
use crate::drops::DropReason;

/// HELLO and a JOIN of a session, holding all steps below `low_step`.
fn join(
    aggregator: &mut Aggregator,
    member: &Member,
    session: u64,
    low_step: u32,
) -> Result<Out, DropReason> {
    let challenge = send(aggregator, member.hello(Hello::new(Step::Hello), &[]))?;
    let mut body = Hello::new(Step::Join);
    body.token = challenge.hello.unwrap().token;
    (body.session, body.low_step, body.step_bits) = (session, low_step, 8);
    send(aggregator, member.hello(body, &[0]))
}

/// The phase of an answer, its reason, and the members that it names.
fn told(answer: &Out) -> (Step, Reason, Members) {
    let hello = answer.hello.unwrap();
    (hello.phase, hello.reason, answer.header.members)
}

#[test]
fn a_session_that_broke_is_told_as_such_after_the_next_has_begun() {
    let (mut aggregator, group, row) = open(2);
    let broken = group[0].session;
    let mut fresh = [Member::new(&row, 0, 556), Member::new(&row, 1, 555)];
    for rank in [1, 0, 1] {
        fresh[rank].join(&mut aggregator, None);
    }
    let present = fresh[1].session;
    assert_ne!(present, broken);
    let leftover = Member::new(&row, 0, 700);
    let refused = join(&mut aggregator, &leftover, broken, 0).unwrap();
    assert_eq!(told(&refused), (Step::Refused, Reason::MemberLost, Members(0b10)), "who left it");
    let refused = join(&mut aggregator, &leftover, broken ^ present, 0).unwrap();
    assert_eq!(told(&refused), (Step::Refused, Reason::OtherSession, Members(0b01)));
    assert_eq!(aggregator.stats().sessions_broken, 1);
    absorb(&mut aggregator, fresh[1].contribution(0, 1));
}

/// A restarted box knows no session: the first that comes says which one goes on.
#[test]
fn a_box_that_begins_anew_resumes_one_session_and_no_other() {
    let row = row(0, 0, 2);
    let mut aggregator = aggregator(config(vec![row.clone()]), 1);
    let [first, other] = [Member::new(&row, 0, 1), Member::new(&row, 1, 2)];
    let waiting = join(&mut aggregator, &first, 5, 0).unwrap();
    assert_eq!(told(&waiting), (Step::Waiting, Reason::None, Members(0b01)));
    let refused = join(&mut aggregator, &other, 6, 0).unwrap();
    assert_eq!(told(&refused), (Step::Refused, Reason::OtherSession, Members(0b01)));
    assert_eq!(aggregator.stats().sessions_broken, 0);
    // One that begins anew has none of its sums: the session cannot go on.
    let fresh = Member::new(&row, 1, 3);
    let waiting = join(&mut aggregator, &fresh, 0, 0).unwrap();
    assert_eq!(told(&waiting), (Step::Waiting, Reason::None, Members(0b10)));
    assert_eq!(aggregator.stats().sessions_broken, 1);
    for session in [5, 7] {
        let refused = join(&mut aggregator, &first, session, 0).unwrap();
        assert_eq!(told(&refused), (Step::Refused, Reason::MemberLost, Members(0b10)));
    }
    assert_eq!(aggregator.stats().formations, 0);
}

#[test]
fn a_join_that_holds_more_steps_than_there_are_is_refused_also_when_repeated() {
    let row = row(0, 0, 2);
    let mut aggregator = aggregator(config(vec![row.clone()]), 1);
    let member = Member::new(&row, 0, 1);
    let too_many = Err(DropReason::Handshake);
    let phase = |answer: Result<Out, DropReason>| answer.map(|answer| told(&answer).0);
    assert_eq!(phase(join(&mut aggregator, &member, 5, 1_001)), too_many);
    assert_eq!(phase(join(&mut aggregator, &member, 5, 1_000)), Ok(Step::Waiting));
    assert_eq!(phase(join(&mut aggregator, &member, 5, 1_001)), too_many, "the lease is forming");
}
