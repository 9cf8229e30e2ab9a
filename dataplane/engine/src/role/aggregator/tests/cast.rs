//! Answers by multicast (SPEC#answers-by-multicast).

use core::net::SocketAddr;

use super::*;
use crate::role::Verdict;

fn group_addr() -> SocketAddr {
    "239.87.69.0:22341".parse().unwrap()
}

fn casting(members: u8) -> (Aggregator, Vec<Member>) {
    let (aggregator, group, _) = open(members);
    (aggregator.with_multicast(Some(group_addr().ip())), group)
}

fn word(aggregator: &Aggregator, member: &Member, phase: Step) -> Vec<u8> {
    let epoch = aggregator.leases().next().unwrap().epoch();
    let body = Hello { epoch, cookie_up: member.cookie, ..Hello::new(phase) };
    member.hello(body, &[])
}

fn say(aggregator: &mut Aggregator, member: &Member, phase: Step) {
    let frame = word(aggregator, member, phase);
    absorb(aggregator, frame);
}

/// Sums step `step` of two members.
fn sum(aggregator: &mut Aggregator, group: &[Member], step: u32) -> Out {
    absorb(aggregator, group[0].contribution(step, 1));
    send(aggregator, group[1].contribution(step, 2)).unwrap()
}

#[test]
fn a_sum_goes_once_for_all_that_hear() {
    let (mut aggregator, group) = casting(2);
    assert!(sum(&mut aggregator, &group, 0).multicast, "nobody has said a word");
    say(&mut aggregator, &group[0], Step::Listen);
    assert!(sum(&mut aggregator, &group, 1).multicast, "one has not");
    say(&mut aggregator, &group[1], Step::Listen);
    let answer = sum(&mut aggregator, &group, 2);
    assert_eq!((answer.target, answer.multicast), (group_addr(), false));
    assert_eq!((answer.header.cookie, answer.values), (group[0].cookie_down, vec![3; 4]));
    let kept = send(&mut aggregator, group[1].contribution(2, 2)).unwrap();
    assert_eq!(kept.target, member_addr(0, 1), "a repeat's answer is its member's");
    say(&mut aggregator, &group[0], Step::Deaf);
    assert!(sum(&mut aggregator, &group, 3).multicast);
    say(&mut aggregator, &group[0], Step::Listen);
    assert_eq!(sum(&mut aggregator, &group, 4).target, group_addr(), "it hears again");
}

#[test]
fn words_of_others_and_of_other_epochs_count_for_nothing() {
    let (mut aggregator, mut group) = casting(2);
    say(&mut aggregator, &group[0], Step::Listen);
    let stranger = Member { life: 99, ..group[1].clone() };
    let of_stranger = word(&aggregator, &stranger, Step::Listen);
    assert_eq!(send(&mut aggregator, of_stranger).unwrap_err(), DropReason::StaleEpoch);
    let mut body = Hello::new(Step::Listen);
    body.epoch = weft_wire::Epoch(77);
    let of_old = group[1].hello(body, &[]);
    assert_eq!(send(&mut aggregator, of_old).unwrap_err(), DropReason::StaleEpoch);
    let elsewhere = Member { encap: group[0].encap, ..group[1].clone() };
    let of_elsewhere = word(&aggregator, &elsewhere, Step::Listen);
    assert_eq!(send(&mut aggregator, of_elsewhere).unwrap_err(), DropReason::WrongSource);
    assert!(sum(&mut aggregator, &group, 0).multicast);
    // A lease that is formed anew is told anew.
    say(&mut aggregator, &group[1], Step::Listen);
    for (member, life) in group.iter_mut().zip(10..) {
        (member.life, member.session) = (life, 0);
    }
    form(&mut aggregator, &mut group);
    assert!(sum(&mut aggregator, &group, 0).multicast);
}

#[test]
fn a_box_without_an_address_takes_the_word_and_sends_to_each() {
    let (mut aggregator, group, _) = open(2);
    say(&mut aggregator, &group[0], Step::Listen);
    say(&mut aggregator, &group[1], Step::Listen);
    assert!(sum(&mut aggregator, &group, 0).multicast);
    let mut aggregator = aggregator.with_multicast(Some("10.0.0.1".parse().unwrap()));
    assert!(sum(&mut aggregator, &group, 1).multicast, "that is no multicast address");
}

/// The frames of a run are the members' answers only where each member gets one.
#[test]
fn a_run_becomes_one_answer() {
    let (mut aggregator, group) = casting(2);
    say(&mut aggregator, &group[0], Step::Listen);
    say(&mut aggregator, &group[1], Step::Listen);
    let mut frames = [group[0].contribution(0, 1), group[1].contribution(0, 2)];
    let mut run = None;
    for frame in &frames {
        run = match aggregator.take(Nanos(0), frame) {
            crate::role::Taken::Wait(run) | crate::role::Taken::Sum(run) => Some(run),
            other => panic!("{other:?}"),
        };
    }
    let first = frames[0].len();
    let Verdict::Send { len } = aggregator.sum_run(run.unwrap(), &mut frames) else {
        panic!("one frame for all")
    };
    assert_eq!(len, first);
    let answer = read(&frames[1][..len]);
    assert_eq!((answer.target, answer.values), (group_addr(), vec![3; 4]));
}

#[test]
fn a_row_that_is_installed_later_has_an_address_too() {
    let row = any_row(5, 0, 2);
    let mut aggregator = aggregator(config(vec![row.clone()]), 1)
        .with_multicast(Some("239.87.69.0".parse().unwrap()));
    let mut group = vec![Member::new(&row, 0, 1), Member::new(&row, 1, 2)];
    form(&mut aggregator, &mut group);
    say(&mut aggregator, &group[0], Step::Listen);
    say(&mut aggregator, &group[1], Step::Listen);
    let answer = sum(&mut aggregator, &group, 0);
    assert_eq!(answer.target, "239.87.69.5:22341".parse().unwrap());
}
