//! Replicas that are left, and those that nobody vouches for.

use super::*;

#[test]
fn a_silent_replica_is_left_and_never_promoted() {
    let mut rig = Rig::attached(AckMode::Replica);
    rig.run_for(SECOND);
    rig.dies("r0");
    rig.run_for(4 * SECOND);
    let left = (String::from("s0"), Command::LeaveReplica { job: JobId(0) });
    assert_eq!(rig.commands.iter().filter(|command| **command == left).count(), 1);
    let told = (String::from("r0"), left.1.clone());
    let status = rig.status();
    assert!(status.is_replica_lost && !status.replica.unwrap().is_held);
    // Whatever it says of itself; and it is told.
    rig.attach("r0", 1, successor(0, 0));
    assert!(rig.commands.contains(&told));
    rig.dies("s0");
    rig.run_for(20 * SECOND);
    assert_eq!(rig.promote_command(), None);
    assert!(rig.notices.iter().any(|notice| matches!(notice, Notice::Stranded { .. })));
    // A server that comes back is told again: it may have forgotten.
    rig.commands.clear();
    rig.attach("s0", 2, role("s0", 0, 0, 0));
    assert!(rig.commands.contains(&left));
}

/// A controller that has lost its state, and hears a replica that was away when it was left, and
/// thinks itself fit: it lacks what its server has told workers since.
#[test]
fn a_replica_that_was_left_is_nobodys_heir_for_a_controller_without_state() {
    let mut rig = Rig::new(AckMode::Replica);
    rig.attach("r0", 1, successor(0, 0));
    rig.run_for(30 * SECOND);
    assert_eq!(rig.promote_command(), None, "its server may have left it");
    assert_eq!(rig.notices, [Notice::Stranded { server: "s0".into() }]);
    // Another one hears the server first, which says so; then the replica is told.
    let mut rig = Rig::new(AckMode::Replica);
    let left = Command::LeaveReplica { job: JobId(0) };
    rig.attach("r0", 1, successor(0, 0));
    rig.attach("s0", 1, RoleState { has_left_replica: true, ..role("s0", 9, 9, 0) });
    assert!(rig.commands.contains(&(String::from("r0"), left.clone())), "{:?}", rig.commands);
    assert!(rig.status().is_replica_lost);
    rig.dies("s0");
    rig.run_for(30 * SECOND);
    assert_eq!(rig.promote_command(), None);
    // It is known after the next restart, too.
    let saved = rig.controller.poll_saved().unwrap();
    let mut later = Rig::with_saved(AckMode::Replica, &saved);
    later.attach("r0", 1, successor(0, 0));
    later.run_for(30 * SECOND);
    assert_eq!(later.promote_command(), None);
    assert!(later.commands.contains(&(String::from("r0"), left)));
}

/// A server that began a new life has forgotten that it left its replica; that it has met it since
/// is what counts, for a replica that meets another life of its server takes a snapshot.
#[test]
fn a_server_vouches_for_a_replica_that_it_has_met() {
    let mut rig = Rig::new(AckMode::Replica);
    rig.attach("s0", 2, RoleState { has_met_replica: false, ..role("s0", 9, 9, 0) });
    rig.attach("r0", 1, successor(5, 5));
    assert_eq!(rig.status().replica.map(|replica| replica.is_fit), Some(false));
    // A bound that is not held is no sign of a meeting.
    let at = |is_held| Event::ReplicaAt { order: OrderNumber(9), divergence_bound: 0.0, is_held };
    rig.event("s0", at(false)).unwrap();
    assert_eq!(rig.status().replica.map(|replica| replica.is_fit), Some(false));
    rig.controller.poll_saved();
    rig.event("s0", at(true)).unwrap();
    assert!(rig.controller.is_save_urgent(), "a controller after this one must know it");
    assert_eq!(rig.status().replica.map(|replica| replica.is_fit), Some(true));
    rig.controller.poll_saved();
    rig.event("s0", at(true)).unwrap();
    assert!(!rig.controller.is_save_urgent(), "it was known");
    rig.dies("s0");
    rig.run_for(4 * SECOND);
    assert!(rig.promote_command().is_some());
}
