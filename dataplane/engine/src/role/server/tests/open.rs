//! One rule at a time: which groups are opened, for a controller and without one.

use alloc::vec;

use weft_control::{BoxIndex, Command, InstallError};
use weft_wire::GroupId;
use weft_wire::header::{ElementType, Flags, Header, Outcome};
use weft_wire::rows::ROW_DIRECT;

use super::rig::*;

#[test]
fn groups_that_cannot_be_are_refused() {
    let mut rig = Rig::new(job());
    let good = descriptor(0, &[0, 1], true);
    let mut cases = vec![];
    let mut case = |error, change: fn(&mut weft_control::GroupDescriptor)| {
        let mut descriptor = descriptor(0, &[0, 1], true);
        change(&mut descriptor);
        cases.push((error, descriptor));
    };
    case(InstallError::Shape, |d| d.chunks += 1);
    case(InstallError::Shape, |d| d.elements += 1);
    case(InstallError::Shape, |d| d.element_type = ElementType::Bf16);
    case(InstallError::Shape, |d| d.members.clear());
    case(InstallError::Shape, |d| d.members[1] = d.members[0]);
    case(InstallError::Shape, |d| d.members[1].rank = rank(3));
    case(InstallError::Shape, |d| d.via = None);
    case(InstallError::Shape, |d| d.via = Some(BoxIndex(7)));
    case(InstallError::Shape, |d| d.rate_bytes_per_sec = Some(0));
    case(InstallError::Shape, |d| d.group = GroupId::new(ROW_DIRECT, 0));
    case(InstallError::UnknownJob, |d| d.job.0 += 1);
    for (error, descriptor) in cases {
        assert_eq!(rig.install(descriptor.clone()), Err(error), "{descriptor:?}");
    }
    rig.install(good.clone()).unwrap();
    rig.install(good.clone()).unwrap();
    let mut other = good.clone();
    other.group = GroupId::new(0, 2);
    assert_eq!(rig.install(other.clone()), Err(InstallError::RowTaken));
    other.group = GroupId::new(9, 2);
    assert_eq!(rig.install(other), Err(InstallError::Order));
    for order in 1..4 {
        rig.install(descriptor(order, &[0], false)).unwrap();
    }
    assert_eq!(rig.install(descriptor(4, &[0], false)), Err(InstallError::Full));
    // Removed groups are void, and make room.
    rig.server.handle_command(rig.now, Command::Remove { job: JOB, group: group(0) });
    let acks = rig.acks();
    assert!(acks.contains(&(1, Outcome::Void, 0)) && acks.contains(&(2, Outcome::Void, 0)));
    rig.install(descriptor(4, &[0], false)).unwrap();
}

#[test]
fn announced_updates_are_opened_pulled_and_answered() {
    let mut rig = Rig::new(job());
    let id = GroupId::new(ROW_DIRECT + 1, 65_535);
    assert_eq!(rig.announce(2, 65_535, 0).header.outcome, Outcome::Wait);
    assert_eq!(rig.announce(2, 65_535, 0).header.outcome, Outcome::Wait);
    assert_eq!(rig.pulls(), [(2, 0), (2, 1), (2, 2)]);
    for chunk in 0..3 {
        rig.direct(2, id, chunk).unwrap();
    }
    assert_eq!(rig.acks(), [(2, Outcome::Committed, 1)]);
    // The ACK was lost: asked again, told again, committed once.
    let again = rig.announce(2, 65_535, 0);
    assert_eq!(again.ack(), Some((2, Outcome::Committed, 1)));
    assert_eq!(rig.announce(2, 0, 1).header.outcome, Outcome::Wait);
    assert_eq!(rig.version(), 1);
    // Another life's numbers are its own.
    rig.begin_life(2, 99);
    assert_eq!(rig.announce(2, 65_535, 1).header.outcome, Outcome::Wait);
}

#[test]
fn late_announcements_of_decided_updates_open_nothing() {
    let mut rig = Rig::new(job());
    for generation in 0..40u16 {
        let id = GroupId::new(ROW_DIRECT, generation);
        rig.announce(1, generation, u32::from(generation));
        rig.poll();
        for chunk in 0..3 {
            rig.direct(1, id, chunk).unwrap();
        }
        rig.poll();
    }
    assert_eq!(rig.version(), 40);
    for late in 0..8u16 {
        assert_eq!(rig.announce(1, late, u32::from(late)).header.outcome, Outcome::Stale);
    }
    assert!(rig.pulls().is_empty());
    // Too many at a time wait; a shape that is not the job's never comes in.
    for generation in 40..44 {
        assert_eq!(rig.announce(1, generation, 40).header.outcome, Outcome::Wait);
    }
    assert_eq!(rig.announce(1, 44, 40).header.outcome, Outcome::Wait);
    assert_eq!(rig.server.jobs().next().unwrap().1.groups_installed, 44);
}

/// I6: one job's groups, frames and limits are nothing to another.
#[test]
fn jobs_share_nothing() {
    let mut other = job();
    other.model.job.0 = 4;
    other.workers = vec![super::world::addr(1), super::world::addr(2)];
    let mut rig = Rig::of(&[job(), other]);
    for order in 0..4 {
        rig.install(descriptor(order, &[0], false)).unwrap();
    }
    let mut foreign = descriptor(0, &[0], false);
    foreign.job.0 = 4;
    rig.install(foreign).unwrap();
    // A frame of job 3's channel that says it is of job 4 is nobody's there.
    let mut frame = {
        let header = Header { flags: Flags::DIRECT, members: rank(0).bit(), ..data(group(0), 0) };
        rig.frame(1, &header, &ones())
    };
    let at = 42 + 3;
    frame[at] = 4;
    let before = alloc::format!("{:?}", rig.server.jobs);
    assert!(rig.send(&frame).unwrap().is_some_and(|out| out.header.outcome == Outcome::Stale));
    assert_eq!(alloc::format!("{:?}", rig.server.jobs), before);
}
