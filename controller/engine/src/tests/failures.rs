//! Boxes that die, refuse or come back; workers that vanish; links that change.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use weft_control::{AckMode, Role, Version};

use super::*;

fn with_aggregator(workers: usize) -> (Config, JobConfig) {
    let mut network = network(workers, 100, 100);
    network.hosts.push(world::host("a0", 100, 100));
    let mut job = job(workers);
    job.aggregators = vec!["a0".into()];
    (network, job)
}

#[test]
fn nobody_is_granted_before_every_box_knows_the_group() {
    let (network, job) = with_aggregator(6);
    let mut world = World::new(network, vec![job]);
    world.attach_all();
    world.dead.insert("s0".into());
    for rank in 0..6 {
        world.ask(0, rank);
    }
    world.run_for(500_000_000);
    assert_eq!(world.status(0).counters.granted, 0);
}

#[test]
fn a_group_that_its_aggregator_does_not_take_is_planned_anew() {
    for is_dead in [true, false] {
        let (network, job) = with_aggregator(6);
        let mut world = World::new(network, vec![job]);
        world.attach_all();
        let name = "a0".to_owned();
        if is_dead {
            world.dead.insert(name)
        } else {
            world.refusing.insert(name)
        };
        for rank in 0..6 {
            world.ask(0, rank);
        }
        world.run_for(100_000_000);
        if is_dead {
            world.detach("a0");
        }
        world.run_for(60_000_000_000);
        let counters = world.status(0).counters;
        // The numbers that were given away are VOID at the server; the updates went direct.
        assert_eq!(counters.committed, 6, "{counters:?}");
        assert_eq!(counters.aggregated, 0);
        assert!(counters.replans_failure > 0);
    }
}

#[test]
fn a_server_that_has_no_room_is_asked_again() {
    let mut world = World::new(network(2, 100, 100), vec![job(2)]);
    world.attach_all();
    world.refusing.insert("s0".into());
    world.ask(0, 0);
    world.run_for(200_000_000);
    assert_eq!(world.status(0).counters.granted, 0);
    world.refusing.clear();
    world.run_for(2_000_000_000);
    assert_eq!(world.status(0).counters.committed, 1);
}

fn offers(world: &World) -> usize {
    let is_offer =
        |(to, command): &&(String, Command)| to == "s0" && matches!(command, Command::Install(_));
    world.commands.iter().filter(is_offer).count()
}

/// It was offered every 20 ms for ever, and nobody heard of it.
#[test]
fn a_server_that_takes_no_group_is_asked_ever_less_and_the_worker_is_told() {
    let mut world = World::new(network(2, 100, 100), vec![job(2)]);
    world.attach_all();
    world.refusing.insert("s0".into());
    world.ask(0, 0);
    world.run_for(20_000_000_000);
    assert_eq!(offers(&world), 8);
    assert_eq!(world.drops, [weft_control::DropReason::Refused]);
    let status = world.status(0);
    let counters = status.counters;
    assert_eq!((counters.installs_refused, counters.unreachable, counters.dropped), (8, 1, 1));
    assert!(status.refusing.starts_with("s0: no memory is left"), "{}", status.refusing);
    assert_eq!((status.pending, status.in_flight), (0, 0));
    let told =
        [Notice::InstallRefused { node: "s0".into(), error: weft_control::InstallError::Full }];
    assert_eq!(world.notices, told, "people are told once");
    // Its number is nobody's, and the next group does not wait for it.
    world.refusing.clear();
    world.ask(0, 0);
    world.ask(0, 1);
    world.run_for(2_000_000_000);
    let status = world.status(0);
    assert_eq!((status.counters.committed, status.refusing.as_str()), (2, ""));
}

/// One that has no room because of what is under way gets the time that this takes.
#[test]
fn a_server_that_is_full_for_a_while_drops_nobody() {
    let mut world = World::new(network(2, 1, 100), vec![job(2)]);
    world.attach_all();
    world.ask(0, 0);
    world.run_for(10_000_000);
    assert_eq!(world.status(0).counters.granted, 1);
    world.refusing.insert("s0".into());
    world.ask(0, 1);
    world.run_for(3_000_000_000);
    assert!(offers(&world) > 8, "{} offers", offers(&world));
    assert_eq!(world.drops, []);
    world.refusing.clear();
    world.run_for(10_000_000_000);
    assert_eq!(world.status(0).counters.committed, 2);
}

/// The controller's process was stopped, or its machine slept: nobody was silent.
#[test]
fn a_controller_that_was_away_calls_nobody_silent() {
    let replicated = JobConfig { ack: AckMode::Replica, replica: Some("r0".into()), ..job(2) };
    let mut network = network(2, 100, 100);
    network.hosts.push(world::host("r0", 100, 100));
    network.jobs = vec![replicated];
    let fresh = Saved::fresh(1);
    let mut controller = Controller::new(network, &fresh, built_in_policies()).unwrap();
    let role = |role| RoleState {
        is_fit: role == Role::Replica,
        has_met_replica: role == Role::Server,
        ..RoleState::new(JobId(0), role, weft_control::BoxIndex(0), "10.0.0.1:1".into())
    };
    let mut now_ns = 1_000_000_000;
    let ids = [("s0", role(Role::Server)), ("r0", role(Role::Replica))].map(|(name, role)| {
        let hello = NodeHello {
            name: name.into(),
            life: 1,
            roles: vec![role],
            holdings: Vec::new(),
            bands: None,
        };
        controller.handle_node(now_ns, &hello).unwrap()
    });
    let mut run = |now_ns: &mut u64, span_ms: u64, speaks: &[NodeId]| {
        let mut notices = Vec::new();
        for _ in 0..span_ms / 100 {
            *now_ns += 100_000_000;
            for node in speaks {
                let telemetry = Telemetry { at_ns: *now_ns, ..Telemetry::default() };
                controller.handle_telemetry(*now_ns, *node, &telemetry).unwrap();
            }
            controller.handle_timeout(*now_ns);
            while let Some(action) = controller.poll_action() {
                if let Action::Notice { notice, .. } = action {
                    notices.push(notice);
                }
            }
        }
        notices
    };
    assert_eq!(run(&mut now_ns, 2_000, &ids), []);
    for pause_ms in [900, 3_500, 60_000] {
        // Of what was said meanwhile the first thing that is read is the replica's.
        now_ns += pause_ms * 1_000_000;
        assert_eq!(run(&mut now_ns, 100, &ids[1..]), [], "after {pause_ms} ms");
        assert_eq!(run(&mut now_ns, 1_000, &ids), [], "after {pause_ms} ms");
    }
    // Who says nothing any more is still found out, a lease after the pause at the latest.
    now_ns += 60_000_000_000;
    assert_eq!(run(&mut now_ns, 2_500, &ids[1..]), []);
    let silent = run(&mut now_ns, 1_000, &ids[1..]);
    assert!(matches!(silent[..], [Notice::Promoting { .. }]), "{silent:?}");
}

#[test]
fn a_worker_that_restarts_is_closed_out_of_what_it_was_granted() {
    let mut world = World::new(network(2, 10, 100), vec![job(2)]);
    world.attach_all();
    world.ask(0, 0);
    world.run_for(1_000_000);
    assert_eq!(world.status(0).counters.granted, 1);
    let rank = weft_wire::Rank::new(0).unwrap();
    world.controller.handle_worker_gone(JobId(0), rank);
    world.controller.handle_worker(JobId(0), rank, 2, None).unwrap();
    world.settle();
    world.run_for(1_000_000);
    let closed = |(_, command): &(String, Command)| matches!(command, Command::CloseMember { .. });
    assert!(world.commands.iter().any(closed));
    // Ids of the new life begin again, and it can send.
    let request = TransferRequest {
        update_id: 1,
        size_bytes: 0,
        version: Version(0),
        norm: 0.0,
        max_abs: 0.0,
    };
    world.ask_with(0, 0, &request).unwrap();
    assert_eq!(world.status(0).counters.requested, 2);
}

#[test]
fn a_worker_that_goes_takes_only_what_it_was_not_granted_along() {
    let mut world = World::new(network(4, 100, 100), vec![job(4)]);
    world.attach_all();
    for rank in 0..4 {
        world.ask(0, rank);
    }
    world.run_for(60_000);
    let granted = |world: &World| world.status(0).counters.granted;
    world.run_for(200_000);
    let before = granted(&world);
    for rank in 0..4 {
        let rank = weft_wire::Rank::new(rank).unwrap();
        world.controller.handle_worker_gone(JobId(0), rank);
    }
    world.run_for(10_000_000_000);
    let counters = world.status(0).counters;
    assert!(counters.cancelled > 0);
    // Every group that has an order number is granted and decided.
    assert!(counters.granted >= before);
    assert_eq!(counters.committed + counters.cancelled, 4);
}

#[test]
fn a_late_transfer_leads_to_a_new_plan_and_is_not_taken_back() {
    let mut world = World::new(network(4, 100, 100), vec![job(4)]);
    world.attach_all();
    world.slow.insert("w0".into(), 0.3);
    for rank in 0..4 {
        world.ask(0, rank);
    }
    world.run_for(20_000_000_000);
    let counters = world.status(0).counters;
    assert_eq!(counters.committed, 4);
    assert!(counters.replans_late > 0, "{counters:?}");
}

#[test]
fn a_restarted_controller_learns_the_order_from_the_server() {
    let mut config = network(4, 100, 100);
    let mut world = World::new(config.clone(), vec![job(4)]);
    world.attach_all();
    for rank in 0..4 {
        world.ask(0, rank);
    }
    world.run_for(60_000_000);
    let before = world.controller.server_state(JobId(0)).unwrap();
    assert!(before.1.0 > 0);
    // Some are decided, some are on their way, some are not granted.
    let saved = world.controller.poll_saved().unwrap();
    config.jobs.clear();
    world.restart_controller(config, &saved);
    for rank in 0..4 {
        world.ask(0, rank);
    }
    // The world asserts that no order number comes twice and no id is open twice.
    world.run_for(20_000_000_000);
    let after = world.controller.server_state(JobId(0)).unwrap();
    assert!(after.1 > before.1 && after.0 > before.0, "{before:?} {after:?}");
    assert_eq!(world.status(0).counters.committed, world.status(0).version - before.0.0.min(4));
    assert_eq!(world.status(0).in_flight, 0);
}

fn open_groups(world: &World, name: &str) -> Vec<OpenGroup> {
    let installs = world.commands.iter().filter_map(|(to, command)| match command {
        Command::Install(group) if to == name => Some(group),
        _ => None,
    });
    installs
        .map(|group| OpenGroup { group: group.group, order: group.order, members: group.mask() })
        .collect()
}

/// Its acknowledgement was lost with its stream; else the group would wait until it is VOID.
#[test]
fn a_server_that_comes_back_with_a_group_has_acknowledged_it() {
    let mut world = World::new(network(2, 100, 100), vec![job(2)]);
    world.attach_all();
    world.dead.insert("s0".into());
    world.ask(0, 0);
    world.run_for(1_000_000);
    assert_eq!(world.status(0).counters.granted, 0);
    world.detach("s0");
    let mut hello = world.hello("s0", 1);
    hello.roles[0].open_groups = open_groups(&world, "s0");
    world.controller.handle_node(world.now_ns, &hello).unwrap();
    world.settle();
    assert_eq!(world.status(0).counters.granted, 1);
}

/// The group was given up while its server was away, which must not keep it.
#[test]
fn a_server_that_comes_back_is_told_of_what_was_given_up() {
    let (network, job) = with_aggregator(6);
    let mut world = World::new(network, vec![job]);
    world.attach_all();
    world.dead.insert("a0".into());
    for rank in 0..6 {
        world.ask(0, rank);
    }
    world.run_for(10_000_000);
    world.detach("s0");
    world.detach("a0");
    world.run_for(3_000_000_000);
    world.commands.clear();
    let hello = world.hello("s0", 1);
    let open_groups = hello.roles[0].open_groups.clone();
    assert!(!open_groups.is_empty());
    world.controller.handle_node(world.now_ns, &hello).unwrap();
    world.settle();
    world.run_for(100_000);
    let is_removed = |open: &OpenGroup| {
        world.commands.iter().any(|(to, command)| {
            to == "s0" && matches!(command, Command::Remove { group, .. } if *group == open.group)
        })
    };
    assert!(open_groups.iter().any(is_removed), "{:?}", world.commands);
}

/// A server whose log is past what its replica has cannot bound the distance: it says so, and is
/// heard.
#[test]
fn a_bound_that_the_server_cannot_tell_is_heard() {
    use weft_control::{Event, OrderNumber};
    let mut network = network(2, 100, 100);
    network.hosts.push(world::host("r0", 100, 100));
    let mut job = job(2);
    job.replica = Some("r0".into());
    let mut world = World::new(network, vec![job]);
    world.attach_all();
    for (divergence_bound, is_held) in [(1.5, true), (f64::INFINITY, false)] {
        let order = OrderNumber(0);
        world.report("s0", 0, Event::ReplicaAt { order, divergence_bound, is_held });
        world.run_for(1_000_000);
        let replica = world.status(0).replica.unwrap();
        assert_eq!((replica.divergence_bound, replica.is_held), (divergence_bound, is_held));
    }
}

/// A group that is judged for the age of one member may be sent anew by the others.
#[test]
fn only_who_was_too_old_is_told_that_he_is_dropped() {
    use weft_control::{Decision, Event, OrderNumber};
    use weft_wire::Members;
    let (network, mut job) = with_aggregator(4);
    job.tau_max = Some(3);
    let mut world = World::new(network, vec![job]);
    world.attach_all();
    for rank in 0..4 {
        world.ask(0, rank);
    }
    world.run_for(400_000);
    let group = world.commands.iter().find_map(|(_, command)| match command {
        Command::Install(group) if group.order.0 == 0 => Some(group.clone()),
        _ => None,
    });
    let group = group.unwrap();
    let decision = Decision::Dropped;
    let (order, members) = (OrderNumber(0), Members::EMPTY);
    let (norm, momentum_norm) = (0.0, 0.0);
    let event =
        Event::Decided { group: group.group, order, decision, members, norm, momentum_norm };
    world.report("s0", 0, event);
    world.run_for(200_000);
    // All were computed on the version that the model still has.
    assert_eq!(world.delivered.len(), group.members.len());
    assert!(world.delivered.iter().all(|(_, outcome)| *outcome == Decision::Void));
    assert_eq!(world.status(0).counters.dropped, 0);
}

#[test]
fn a_box_that_comes_back_is_used_again() {
    let (network, job) = with_aggregator(6);
    let mut world = World::new(network, vec![job]);
    world.attach_all();
    world.detach("a0");
    world.run_for(3_000_000_000);
    for rank in 0..6 {
        world.ask(0, rank);
    }
    world.run_for(60_000_000_000);
    assert_eq!(world.status(0).counters.aggregated, 0);
    world.attach("a0", 2);
    for rank in 0..6 {
        world.ask(0, rank);
    }
    world.run_for(60_000_000_000);
    assert!(world.status(0).counters.aggregated > 0);
    assert_eq!(world.status(0).counters.committed, 12);
}

#[test]
fn a_server_that_restarts_is_given_its_open_groups_again() {
    let mut world = World::new(network(2, 10, 100), vec![job(2)]);
    world.attach_all();
    world.ask(0, 0);
    world.run_for(1_000_000);
    assert_eq!(world.status(0).counters.granted, 1);
    world.detach("s0");
    let mut hello = world.hello("s0", 2);
    hello.roles[0].open_groups.clear();
    world.commands.clear();
    world.controller.handle_node(world.now_ns, &hello).unwrap();
    world.settle();
    world.run_for(1_000_000);
    let is_install = |(name, command): &(String, Command)| {
        name == "s0" && matches!(command, Command::Install(_))
    };
    assert!(world.commands.iter().any(is_install));
}

#[test]
fn what_must_survive_is_saved() {
    let mut config = network(4, 100, 100);
    let mut late = job(4);
    late.tau_max = Some(3);
    config.jobs = vec![late];
    let mut controller =
        Controller::new(config.clone(), &Saved::fresh(9), built_in_policies()).unwrap();
    let mut more = job(4);
    more.name = "more".into();
    more.index = 5;
    controller.register_job(0, more).unwrap();
    assert!(controller.is_save_urgent());
    let saved = controller.poll_saved().unwrap();
    assert!(!controller.is_save_urgent());
    assert_eq!(controller.poll_saved(), None);
    let text = serde_json::to_string(&saved).unwrap();
    let read: Saved = serde_json::from_str(&text).unwrap();
    let again = Controller::new(config, &read, built_in_policies()).unwrap();
    assert_eq!(again.job_by_name("more"), Some(JobId(5)));
    assert!(read.generation_ceiling >= 9);
}

/// Two jobs of the same two workers, with a server each. The first one's has died, within its
/// lease, before it could decide what it was to be sent; the second's workers ask.
fn one_job_waits_for_a_dead_server() -> World {
    let mut network = network(2, 100, 100);
    network.hosts.push(world::host("s1", 100, 100));
    let mut jobs = vec![job(2), job(2)];
    for (i, job) in jobs.iter_mut().enumerate() {
        job.name = format!("j{i}");
        job.index = i as u16;
        job.server = format!("s{i}");
    }
    let mut world = World::new(network, jobs);
    world.attach_all();
    for rank in 0..2 {
        world.ask(0, rank);
    }
    world.run_for(1_000_000);
    assert!(world.status(0).counters.granted > 0);
    world.dead.insert("s0".into());
    world.detach("s0");
    for rank in 0..2 {
        world.ask(1, rank);
    }
    world.run_for(2_000_000_000);
    assert_eq!(world.status(1).counters.committed, 0, "the links are promised to the first job");
    world
}

/// A job whose server is gone for good waits for it alone (DESIGN I6).
#[test]
fn a_job_whose_server_is_gone_holds_up_no_other() {
    let mut world = one_job_waits_for_a_dead_server();
    world.run_for(5_000_000_000);
    assert_eq!(world.status(1).counters.committed, 2);
}

/// Granted or not: what will not be sent keeps no link.
#[test]
fn what_its_worker_takes_back_holds_up_no_other() {
    let mut world = one_job_waits_for_a_dead_server();
    for rank in 0..2 {
        world.take_back(0, rank);
    }
    world.run_for(200_000_000);
    assert_eq!(world.status(1).counters.committed, 2);
}
