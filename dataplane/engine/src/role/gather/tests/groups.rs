//! Which groups are open, with whom, and where they lie.

use alloc::vec;
use alloc::vec::Vec;

use weft_control::{BoxIndex, Command, Event, GroupDescriptor, InstallError};
use weft_wire::header::{ElementType, Outcome};
use weft_wire::{Members, Rank};

use super::super::{PushConfig, Transition};
use super::rig::*;
use crate::drops::DropReason;
use crate::role::channel::Standing;
use crate::slot::State;

fn refused(rig: &mut Rig, descriptor: GroupDescriptor) -> Option<InstallError> {
    match rig.install(descriptor) {
        Event::Refused { error, .. } => Some(error),
        Event::Installed { .. } => None,
        event => panic!("{event:?} answers no installation"),
    }
}

#[test]
fn a_group_must_fit_the_job_and_the_box() {
    let mut rig = Rig::of_two();
    let good = descriptor(1, group(5, 1), &[0, 1]);
    let with = |change: &dyn Fn(&mut GroupDescriptor)| {
        let mut descriptor = good.clone();
        change(&mut descriptor);
        descriptor
    };
    let shapes: [&dyn Fn(&mut GroupDescriptor); 9] = [
        &|group| group.members.clear(),
        &|group| group.members.push(group.members[0]),
        &|group| group.members[0].rank = Rank::new(2).unwrap(),
        &|group| group.chunks = 0,
        &|group| group.chunks = CHUNKS + 1,
        &|group| group.elements = 5,
        &|group| group.element_type = ElementType::F32,
        &|group| group.via = None,
        &|group| group.via = Some(BoxIndex(3)),
    ];
    for (index, change) in shapes.into_iter().enumerate() {
        assert_eq!(refused(&mut rig, with(change)), Some(InstallError::Shape), "{index}");
    }
    let far = with(&|descriptor| descriptor.group = group(1024, 1));
    assert_eq!(refused(&mut rig, far), Some(InstallError::Shape));
    let other = with(&|descriptor| descriptor.job = weft_wire::JobId(9));
    assert_eq!(refused(&mut rig, other), Some(InstallError::UnknownJob));
    assert_eq!(refused(&mut rig, good.clone()), None);
    assert_eq!(refused(&mut rig, good.clone()), None, "a repeated word changes nothing");
    assert_eq!(rig.report(0).groups_open(), 1);
    for taken in [
        with(&|descriptor| descriptor.group = group(5, 2)),
        with(&|descriptor| descriptor.members.truncate(1)),
        with(&|descriptor| descriptor.exponent = 1),
    ] {
        assert_eq!(refused(&mut rig, taken), Some(InstallError::RowTaken));
    }
}

#[test]
fn a_quota_that_is_used_up_refuses_and_a_freed_lease_serves_again() {
    let mut rig = Rig::of_two();
    assert_eq!(rig.report(0).slots(), 6);
    assert_eq!(refused(&mut rig, descriptor(1, group(0, 1), &[0, 1])), None);
    assert_eq!(refused(&mut rig, descriptor(1, group(1, 1), &[0, 1])), None);
    let third = descriptor(1, group(2, 1), &[0, 1]);
    assert_eq!(refused(&mut rig, third.clone()), Some(InstallError::Full));
    assert_eq!(rig.report(0).slots_in_use(), 6);
    rig.ask(&rig.contribution(0, group(0, 1), 0, 5));
    assert!(rig.send(&rig.ack(group(0, 1), Outcome::Committed)).unwrap().is_empty());
    assert_eq!(rig.report(0).groups_open(), 1);
    assert!(rig.ask(&rig.contribution(0, group(0, 1), 1, 5)).is_state(Outcome::Stale, 0));
    assert_eq!(refused(&mut rig, third), None);
    // Its slots are where the first group's were, and empty.
    assert_eq!(rig.report(0).slot(group(2, 1), 0), Some((State::Empty, Members::EMPTY)));
    assert_eq!(
        rig.send(&rig.ack(group(0, 1), Outcome::Committed)).unwrap_err(),
        DropReason::StaleGroup
    );
}

#[test]
fn any_decision_frees_a_lease_and_a_mere_staging_does_not() {
    for (outcome, frees) in [
        (Outcome::Committed, true),
        (Outcome::Void, true),
        (Outcome::Dropped, true),
        (Outcome::Staged, false),
        (Outcome::None, false),
    ] {
        let mut rig = Rig::of_two();
        rig.install(descriptor(1, group(5, 1), &[0, 1]));
        rig.send(&rig.ack(group(5, 1), outcome)).unwrap();
        assert_eq!(rig.report(0).groups_open(), usize::from(!frees), "{outcome:?}");
    }
}

#[test]
fn the_controller_removes_groups_and_closes_members() {
    let mut rig = Rig::of_two();
    let (one, two) = (group(0, 1), group(1, 1));
    rig.install(descriptor(1, one, &[0, 1]));
    rig.install(descriptor(1, two, &[0, 1]));
    let job = weft_wire::JobId(1);
    let rank = Rank::new(0).unwrap();
    let gather = rig.aggregator.gather_mut();
    gather.handle_command(&Command::CloseMember { job, group: Some(one), rank });
    let masks: Vec<_> = rig.report(0).groups().collect();
    assert_eq!(masks, [(one, Members(0b10)), (two, Members(0b11))]);
    let gather = rig.aggregator.gather_mut();
    gather.handle_command(&Command::CloseMember { job, group: None, rank });
    gather.handle_command(&Command::CloseMember { job, group: None, rank: Rank::new(63).unwrap() });
    gather.handle_command(&Command::Remove { job, group: two });
    gather.handle_command(&Command::Remove { job, group: group(0, 2) });
    let masks: Vec<_> = rig.report(0).groups().collect();
    assert_eq!(masks, [(one, Members(0b10))]);
    assert_eq!(rig.report(0).stats().of(Transition::FreeByController), 1);
}

/// A worker that begins anew half way: what it left half done will never be whole; what is whole
/// stays, for the update was made and sent.
#[test]
fn a_new_life_leaves_the_groups_that_it_has_not_filled() {
    let mut rig = Rig::new(vec![PushConfig { quota_bytes: 9 * 80, ..push(1, 2) }]);
    let (half, whole, none) = (group(0, 1), group(1, 1), group(2, 1));
    for id in [half, whole, none] {
        rig.install(descriptor(1, id, &[0, 1]));
    }
    rig.ask(&rig.contribution(0, half, 0, 5));
    for chunk in 0..CHUNKS {
        rig.ask(&rig.contribution(0, whole, chunk, 5));
    }
    let old = rig.contribution(0, half, 1, 5);
    rig.jobs[0].workers[0] = worker(&rig.jobs[0].config, 0, 51);
    rig.connect(0, 0);
    let masks: Vec<_> = rig.report(0).groups().map(|(_, mask)| mask.0).collect();
    assert_eq!(masks, [0b10, 0b11, 0b11]);
    // Frames of the former life are refused, the new one's are not.
    let stale = rig.ask(&old);
    assert!(stale.is_state(Outcome::Stale, 0));
    assert_eq!(rig.aggregator.stats().drops.of(DropReason::BadCookie), 1);
    assert!(rig.ask(&rig.contribution(0, none, 0, 5)).is_state(Outcome::Have, 0b01));
    assert!(rig.ask(&rig.contribution(0, half, 1, 5)).is_state(Outcome::Stale, 0));
}

#[test]
fn a_generation_that_is_over_gets_stale() {
    let mut rig = Rig::of_two();
    rig.install(descriptor(1, group(5, 1), &[0, 1]));
    let now = group(5, 2);
    rig.send(&rig.ack(group(5, 1), Outcome::Void)).unwrap();
    rig.install(descriptor(1, now, &[0, 1]));
    assert!(rig.ask(&rig.contribution(0, group(5, 1), 0, 5)).is_state(Outcome::Stale, 0));
    assert_eq!(rig.report(0).slot(now, 0), Some((State::Empty, Members::EMPTY)));
    assert_eq!(rig.aggregator.stats().drops.of(DropReason::StaleGroup), 1);
}

#[test]
fn a_closed_channel_is_told_to_open_again() {
    let mut rig = Rig::of_two();
    let id = group(5, 1);
    rig.install(descriptor(1, id, &[0, 1]));
    let frame = rig.contribution(0, id, 0, 5);
    let now = rig.now;
    rig.jobs[0].workers[0].close(now);
    let mut close = vec![0; 1514];
    let len = rig.jobs[0].workers[0].poll_transmit(now, &mut close).unwrap();
    let closed = rig.ask(&close[..len]);
    assert_eq!(closed.header.kind, weft_wire::header::Kind::Hello);
    let stale = rig.ask(&frame);
    assert!(stale.is_state(Outcome::Stale, 0), "with the wrong cookie echoed");
    rig.jobs[0].workers[0] = worker(&rig.jobs[0].config, 0, 50);
    rig.connect(0, 0);
    assert_eq!(rig.jobs[0].workers[0].standing(), Standing::Open);
    assert!(rig.ask(&rig.contribution(0, id, 0, 5)).is_state(Outcome::Have, 1));
}
