//! The bound of the distance to the replica, cell by cell (I5).

use alloc::vec::Vec;

use weft_control::Event;
use weft_wire::header::{Flags, Header, Kind, Outcome};
use weft_wire::rows::ROW_LOG;
use weft_wire::{ChunkIndex, GroupId, Members};

use super::super::ServerJobConfig;
use super::rig::{JOB, Rig, descriptor, group, job};
use super::world::REPLICA;
use crate::send::datagram::plain_header;

/// What the server says of the bound.
fn held(rig: &mut Rig) -> Vec<bool> {
    let events = core::iter::from_fn(|| rig.server.poll_event());
    let held = events.filter_map(|(_, event)| match event {
        Event::ReplicaAt { is_held, .. } => Some(is_held),
        _ => None,
    });
    held.collect()
}

/// The replica has applied all before `wanted`.
fn follow(rig: &mut Rig, wanted: u32) {
    let header = plain_header(Kind::Status, JOB, GroupId::new(ROW_LOG, 0), Members(0b10));
    let header = Header { flags: Flags::REPLICA, chunk: ChunkIndex(wanted), ..header };
    let frame = rig.frame(REPLICA, &header, &[]);
    assert_eq!(rig.send(&frame).unwrap().unwrap().header.outcome, Outcome::Wait);
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
        follow(&mut rig, u32::try_from(order).unwrap() + 1);
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
