//! Who gets an order number without a plan, and when.

use weft_control::{Command, InstallError};
use weft_wire::header::Outcome;

use super::rig::{MS, Rig, descriptor, group, job};

fn refused(rig: &Rig) -> u64 {
    rig.server.jobs().next().unwrap().1.announcements_refused
}

/// A rig whose controller is there and plans the job.
fn planned() -> Rig {
    let mut rig = Rig::new(job());
    let now = rig.now;
    rig.server.handle_controller(now, true);
    rig.install(descriptor(0, &[0], false)).unwrap();
    rig
}

/// I3: the numbers after those that are installed are the controller's.
#[test]
fn a_controllers_numbers_are_not_given_to_who_announces_himself() {
    let mut rig = planned();
    for generation in 0..100 {
        assert_eq!(rig.announce(2, generation, 0).header.outcome, Outcome::Stale);
    }
    assert_eq!(refused(&rig), 100);
    rig.install(descriptor(1, &[2], false)).unwrap();
    for chunk in 0..3 {
        rig.direct(1, group(0), chunk).unwrap();
    }
    rig.poll();
    // One that a plan left free, too.
    rig.install(descriptor(5, &[0], false)).unwrap();
    rig.announce(2, 100, 0);
    for order in 2..5 {
        assert_ne!(rig.install(descriptor(order, &[2], false)), Err(InstallError::Order));
    }
    assert_eq!(rig.version(), 1);
}

/// The grants of a controller that has gone are still to be served; its successor may be near.
#[test]
fn announcements_wait_until_the_controller_has_been_gone_for_long_enough() {
    let mut rig = planned();
    let now = rig.now;
    rig.server.handle_controller(now, false);
    rig.wait(999);
    assert_eq!(rig.announce(2, 0, 0).header.outcome, Outcome::Stale);
    // A dial that fails, and a word that was on its way, begin nothing anew.
    let now = rig.now;
    rig.server.handle_controller(now, false);
    let left = Command::Skip { job: super::rig::JOB, below: weft_control::OrderNumber(0) };
    rig.server.handle_command(now, left);
    rig.wait(1);
    assert_eq!(rig.announce(2, 1, 0).header.outcome, Outcome::Wait);
    assert_eq!(refused(&rig), 1);
    // It is back: who comes now is refused, who has a number keeps it.
    let now = rig.now;
    rig.server.handle_controller(now, true);
    rig.install(descriptor(2, &[0], false)).unwrap();
    assert_eq!(rig.announce(2, 1, 0).header.outcome, Outcome::Wait);
    assert_eq!(rig.announce(2, 2, 0).header.outcome, Outcome::Stale);
}

/// One that does not know the job gives it no numbers.
#[test]
fn a_controller_that_never_spoke_of_the_job_holds_up_nobody() {
    let mut rig = Rig::new(job());
    let now = rig.now;
    rig.server.handle_controller(now, true);
    assert_eq!(rig.announce(2, 0, 0).header.outcome, Outcome::Wait);
    assert_eq!(refused(&rig), 0);
}

/// A server that begins beside a controller waits for it a moment.
#[test]
fn a_server_that_begins_waits_for_its_controller() {
    let mut rig = Rig::new(job());
    let now = rig.now;
    rig.server.handle_controller(now, false);
    assert_eq!(rig.announce(2, 0, 0).header.outcome, Outcome::Stale);
    rig.wait(job().fallback_ns / MS);
    assert_eq!(rig.announce(2, 1, 0).header.outcome, Outcome::Wait);
}
