//! The bound of the distance to the replica, cell by cell (I5).

use alloc::vec;
use alloc::vec::Vec;

use weft_control::Event;
use weft_wire::header::Outcome;

use super::super::ServerJobConfig;
use super::rig::{MS, Rig, descriptor, group, job};

/// What the server says of the bound.
fn held(rig: &mut Rig) -> Vec<bool> {
    let events = core::iter::from_fn(|| rig.server.poll_event());
    let held = events.filter_map(|(_, event)| match event {
        Event::ReplicaAt { is_held, .. } => Some(is_held),
        _ => None,
    });
    held.collect()
}

/// What a plan calls joint: one commit alone is over the bound. It waits for nobody, for a replica
/// that has everything cannot come nearer; the bound is said not to hold for as long as the replica
/// takes.
#[test]
fn a_commit_that_no_lag_allows_ends_the_bound_until_the_replica_has_it() {
    let mut rig = Rig::new(ServerJobConfig { div_max: Some(1.0), ..job() });
    for order in 0..2 {
        rig.install(descriptor(order, &[0], false)).unwrap();
        for chunk in 0..3 {
            rig.direct(1, group(order), chunk).unwrap();
        }
        rig.poll();
        assert_eq!(rig.version(), order + 1);
        assert_eq!(held(&mut rig), [false]);
        let said = rig.follow(u32::try_from(order).unwrap() + 1);
        assert_eq!(said.header.outcome, Outcome::Wait);
        assert_eq!(held(&mut rig).last(), Some(&true));
    }
    let stats = rig.server.jobs().next().unwrap().1;
    assert_eq!((stats.bound_broken, stats.bound_waits), (2, 0));
}

/// Who takes the events in their order never holds a model to be nearer than it is.
#[test]
fn a_bound_is_said_not_to_hold_before_the_commit_that_breaks_it() {
    let mut rig = Rig::new(ServerJobConfig { div_max: Some(1.0), ..job() });
    rig.install(descriptor(0, &[0], false)).unwrap();
    for chunk in 0..3 {
        rig.direct(1, group(0), chunk).unwrap();
    }
    rig.poll();
    let events: Vec<Event> =
        core::iter::from_fn(|| rig.server.poll_event()).map(|(_, event)| event).collect();
    let at = |is_it: fn(&Event) -> bool| events.iter().position(is_it).unwrap();
    let said = at(|event| matches!(event, Event::ReplicaAt { is_held: false, .. }));
    let committed = at(|event| matches!(event, Event::Decided { .. }));
    assert!(said < committed, "{events:?}");
}

/// Each of two commits is within the bound, both are not: the second waits until the replica has
/// the first, and no longer than it is given.
#[test]
fn a_commit_that_would_break_the_bound_waits_for_the_replica_and_not_for_ever() {
    for is_alive in [true, false] {
        let config = ServerJobConfig { div_max: Some(4.0), divergence_wait_ns: 100 * MS, ..job() };
        let mut rig = Rig::new(config);
        for order in 0..2 {
            rig.install(descriptor(order, &[0], false)).unwrap();
            for chunk in 0..3 {
                rig.direct(1, group(order), chunk).unwrap();
            }
        }
        rig.poll();
        rig.wait(99);
        rig.poll();
        assert_eq!((rig.version(), held(&mut rig)), (1, vec![]));
        if is_alive {
            rig.follow(1);
        } else {
            rig.wait(1);
        }
        rig.poll();
        let stats = rig.stats();
        let broken = u64::from(!is_alive);
        assert_eq!((rig.version(), stats.bound_waits, stats.bound_broken), (2, 1, broken));
        assert_eq!(held(&mut rig).contains(&false), !is_alive);
    }
}
