//! What a controller that begins anew knows, and whom it waits for.

use super::*;

#[test]
fn a_restarted_controller_knows_who_the_server_is() {
    let mut rig = Rig::attached(AckMode::Replica);
    rig.run_for(SECOND);
    rig.dies("s0");
    rig.run_for(4 * SECOND);
    assert!(rig.controller.is_save_urgent(), "before the replica is told");
    let begun = rig.controller.poll_saved().unwrap();
    assert!(!rig.controller.is_save_urgent());
    rig.promoted(0, 0);
    let done = rig.controller.poll_saved().unwrap();
    for (saved, text) in [(&begun, "begun"), (&done, "done"), (&Saved::fresh(9), "lost")] {
        let mut later = Rig::with_saved(AckMode::Replica, saved);
        later.attach("a0", 1, role("a0", 0, 0, 0));
        later.attach_workers();
        // The replica says what it is by now.
        later.attach("r0", 1, role("r0", 4097, 3, 1));
        assert_eq!(later.controller.server_epoch(JobId(0)), ServerEpoch(1), "{text}");
        later.attach("s0", 2, role("s0", 2, 2, 0));
        let down = Command::StandDown { job: JobId(0), epoch: ServerEpoch(1) };
        assert!(later.commands.contains(&(String::from("s0"), down)), "{text}");
        assert_eq!(later.controller.server_state(JobId(0)).unwrap().0, Version(3), "{text}");
    }
    // One that stopped half way asks again, whatever the old server says meanwhile.
    let mut later = Rig::with_saved(AckMode::Replica, &begun);
    later.attach("s0", 2, role("s0", 0, 0, 0));
    later.attach("r0", 1, successor(0, 0));
    later.run_for(4 * SECOND);
    assert!(later.promote_command().is_some());
}

/// A server that dies before a restarted controller hears it: the state file says that it had not
/// left its replica, and its replica speaks of it.
#[test]
fn a_server_that_no_controller_heard_is_replaced() {
    let before = Rig::attached(AckMode::Replica).controller.poll_saved().unwrap();
    let mut rig = Rig::with_saved(AckMode::Replica, &before);
    rig.attach("a0", 1, role("a0", 0, 0, 0));
    rig.attach("r0", 1, successor(9_100, 100));
    // The server lived on for a while, without a controller.
    let decided = Event::Decided {
        group: GroupId::new(3, 1),
        order: OrderNumber(9_999),
        decision: Decision::Void,
        members: weft_wire::Members::EMPTY,
        norm: 0.0,
        momentum_norm: 0.0,
    };
    rig.event("r0", decided).unwrap();
    // A living one may take as long to dial.
    rig.run_for(10 * SECOND);
    assert_eq!(rig.promote_command(), None);
    rig.run_for(5 * SECOND);
    let (epoch, order) = rig.promote_command().unwrap();
    assert_eq!(epoch, ServerEpoch(1));
    assert!(order.0 > 14_000, "{order:?}: the dead one may have given those away");
}

#[test]
fn a_server_that_dials_late_stays_the_server() {
    let mut rig = Rig::new(AckMode::Replica);
    rig.attach("r0", 1, successor(9_100, 100));
    rig.run_for(12 * SECOND);
    rig.attach("s0", 1, role("s0", 9_100, 100, 0));
    rig.run_for(30 * SECOND);
    assert_eq!((rig.promote_command(), rig.notices), (None, Vec::new()));
}

/// Whether such a replica has what was told, only the server knew; people are told.
#[test]
fn a_server_that_nobody_heard_strands_its_job() {
    let mut rig = Rig::new(AckMode::Replica);
    rig.attach("r0", 2, role("r0", 0, 0, 0));
    rig.run_for(15 * SECOND);
    assert_eq!(rig.promote_command(), None);
    assert_eq!(rig.notices, [Notice::Stranded { server: "s0".into() }]);
}

/// An aggregator may find a restarted controller before its job's server does.
#[test]
fn an_aggregator_is_told_of_a_server_that_comes_after_it() {
    let mut rig = Rig::attached(AckMode::Replica);
    rig.run_for(SECOND);
    rig.dies("s0");
    rig.run_for(4 * SECOND);
    rig.promoted(0, 0);
    let saved = rig.controller.poll_saved().unwrap();
    let mut later = Rig::with_saved(AckMode::Replica, &saved);
    later.attach("a0", 2, role("a0", 0, 0, 0));
    assert_eq!(later.commands, []);
    let promoted = role("r0", 4097, 3, 1);
    let server = promoted.address.parse().unwrap();
    later.attach("r0", 1, promoted);
    let moves = (String::from("a0"), Command::MoveServer { job: JobId(0), server });
    assert!(later.commands.contains(&moves), "{:?}", later.commands);
}
