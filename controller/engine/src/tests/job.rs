//! What the parts of a job come to, one rule at a time.

use alloc::vec;

use weft_control::{Command, RoleState};
use weft_control::{OrderNumber, Role, ServerEpoch, Version};
use weft_wire::Rank;

use super::*;
use crate::job::{Member, Pending, Planned, Ticket};

/// A job that was never told anything.
fn fresh() -> Job {
    let mut config = network(2, 100, 100);
    config.jobs = vec![job(2)];
    let mut controller = Controller::new(config, &Saved::fresh(7), policies()).unwrap();
    controller.jobs.remove(&JobId(0)).unwrap()
}

fn pending(rank: u8, norm: f64) -> Pending {
    Pending {
        rank: Rank::new(rank).unwrap(),
        update_id: 0,
        size_bytes: 1,
        version: 0,
        norm,
        max_abs: 1.0,
        asked_ns: 0,
    }
}

fn planned(tickets: &[Ticket]) -> Planned {
    let members = tickets.iter().map(|ticket| (*ticket, Vec::new())).collect();
    Planned { members, via: None, sum: Vec::new(), copy: Vec::new(), start_ns: 0 }
}

#[test]
fn a_request_that_is_taken_back_leaves_its_group_and_an_empty_group_the_plan() {
    let mut job = fresh();
    job.pending = [(1, pending(0, 1.0)), (2, pending(1, 1.0)), (3, pending(0, 1.0))].into();
    job.planned = [planned(&[1, 2]), planned(&[3])].into();
    assert_eq!(job.planned_updates(), 3);
    assert!(job.take_back(3).is_some() && job.take_back(1).is_some());
    assert!(job.take_back(1).is_none());
    assert_eq!((job.planned.len(), job.planned_updates()), (1, 1));
    assert_eq!(job.planned[0].members[0].0, 2);
    assert_eq!(job.pending.keys().collect::<Vec<_>>(), [&2]);
}

#[test]
fn the_drop_budget_looks_at_the_last_decisions() {
    let mut job = fresh();
    job.config.options.drop_window = 3;
    for (is_drop, recent) in [
        (true, &[true][..]),
        (false, &[true, false]),
        (false, &[true, false, false]),
        (true, &[false, false, true]),
    ] {
        job.note_decision(is_drop);
        assert_eq!(job.recent, recent);
    }
}

/// A later life, or another box, does not begin the round and the replica's lag again.
#[test]
fn a_job_begins_where_its_first_server_says_that_it_is() {
    let mut job = fresh();
    let (first, second) = ((NodeId(0), Some(1)), (NodeId(0), Some(2)));
    job.learn(first, Version(5), 7, 2.0);
    let begun = |job: &Job| (job.round.numbers().0, job.replica_progress.h_norm().to_bits());
    assert_eq!((job.version, job.numbers.next(), begun(&job)), (5, 7, (5, 2f64.to_bits())));
    job.learn(second, Version(4), 8, 3.0);
    assert_eq!((job.version, job.numbers.next(), begun(&job)), (4, 8, (5, 2f64.to_bits())));
    job.learn(second, Version(3), 6, 4.0);
    assert_eq!((job.version, job.numbers.next()), (4, 8), "within a life nothing goes back");
    assert_eq!(job.momentum_norm.to_bits(), 3f64.to_bits());
    job.is_known = false;
    job.learn(second, Version(9), 9, 5.0);
    assert_eq!((job.version, begun(&job)), (9, (5, 2f64.to_bits())));
}

#[test]
fn a_group_counts_with_all_its_members() {
    let mut world = World::new(network(2, 100, 100), vec![job(2)]);
    world.attach_all();
    world.ask(0, 0);
    world.run_for(1_000_000);
    let (id, mut group) = world.controller.groups.pop_first().unwrap();
    let member = |norm| Member {
        rank: Rank::new(1).unwrap(),
        request: Some(pending(1, norm)),
        is_gone: false,
        version: 0,
        segments: Vec::new(),
    };
    group.members = vec![member(3.0), Member { request: None, ..member(0.0) }, member(4.5)];
    assert_eq!(group.planned_norm().to_bits(), 7.5f64.to_bits());
    let mut job = fresh();
    job.open = [(0, id), (1, GroupId::new(999, 1))].into();
    let groups = [(id, group)].into();
    assert_eq!(job.in_flight(&groups), 3, "nothing is known of the other group");
}

fn role(job: u16, order: u64, version: u64) -> RoleState {
    let address = "10.0.0.1:22341".into();
    RoleState {
        next_order: OrderNumber(order),
        version: Version(version),
        ..RoleState::new(JobId(job), Role::Server, weft_control::BoxIndex(0), address)
    }
}

#[test]
fn a_hello_is_all_that_a_box_has_and_within_a_life_nothing_goes_back() {
    let mut accounts = Accounts::default();
    let hello = |roles: &[RoleState]| NodeHello {
        name: "s0".into(),
        life: 1,
        roles: roles.into(),
        holdings: [].into(),
        bands: None,
    };
    let at = |accounts: &Accounts, node, job| {
        accounts.get(NodeId(node), JobId(job)).map(|state| (state.next_order.0, state.version.0))
    };
    accounts.begin(NodeId(0), &hello(&[role(0, 9, 5), role(1, 3, 3)]), true);
    accounts.begin(NodeId(1), &hello(&[role(1, 4, 4)]), true);
    // An older word of the same life, which has the second job no more.
    accounts.begin(NodeId(0), &hello(&[role(0, 8, 4)]), false);
    assert_eq!(at(&accounts, 0, 0), Some((9, 5)));
    assert_eq!((at(&accounts, 0, 1), at(&accounts, 1, 1)), (None, Some((4, 4))));
    let later = RoleState { epoch: ServerEpoch(1), ..role(0, 2, 1) };
    accounts.begin(NodeId(0), &hello(&[later]), false);
    assert_eq!(at(&accounts, 0, 0), Some((2, 1)), "of another epoch");
    accounts.begin(NodeId(0), &hello(&[role(0, 1, 0)]), true);
    assert_eq!(at(&accounts, 0, 0), Some((1, 0)), "of another life");
    accounts.note_command(NodeId(0), &Command::LeaveReplica { job: JobId(0) });
    assert!(accounts.get(NodeId(0), JobId(0)).unwrap().has_left_replica);
}
