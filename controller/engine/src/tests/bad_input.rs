//! Whatever a peer says, it is that peer's error alone.

use alloc::vec::Vec;

use weft_control::{BoxIndex, Decision, Event, Mode, OrderNumber, Role, Version};
use weft_wire::header::ElementType;
use weft_wire::{Members, Rank};

use super::*;

fn good() -> TransferRequest {
    TransferRequest { update_id: 9, size_bytes: 0, version: Version(0), norm: 1.0, max_abs: 1.0 }
}

fn rank(rank: u8) -> Rank {
    Rank::new(rank).unwrap()
}

/// Two jobs; the second must not notice what is done to the first.
fn world() -> World {
    let mut network = network(4, 100, 100);
    network.hosts.push(world::host("s1", 100, 100));
    let mut second = job(4);
    second.name = "other".into();
    second.index = 1;
    second.server = "s1".into();
    let mut world = World::new(network, vec![job(4), second]);
    world.attach_all();
    world
}

#[test]
fn a_bad_request_names_its_field_and_changes_nothing() {
    let table: &[(&str, fn(&mut TransferRequest))] = &[
        ("norm", |request| request.norm = f64::NAN),
        ("norm", |request| request.norm = f64::INFINITY),
        ("norm", |request| request.norm = -1.0),
        ("max_abs", |request| request.max_abs = f64::NAN),
        ("max_abs", |request| request.max_abs = f64::NEG_INFINITY),
        ("max_abs", |request| request.max_abs = -0.5),
        ("size_bytes", |request| request.size_bytes = u64::MAX),
        ("size_bytes", |request| request.size_bytes = 1 << 40),
        ("size_bytes", |request| request.size_bytes = 1),
        ("version", |request| request.version = Version(u64::MAX)),
        ("update_id", |request| request.update_id = 3),
    ];
    let mut world = world();
    world.ask_with(0, 0, &TransferRequest { update_id: 3, ..good() }).unwrap();
    world.run_for(1_000_000_000);
    for (field, change) in table {
        let mut request = good();
        change(&mut request);
        let before = world.status(0);
        let refusal = world.ask_with(0, 0, &request).unwrap_err();
        assert_eq!(refusal.field, *field, "{refusal}");
        assert_eq!(world.status(0), before, "{field}");
    }
    let refused: u64 = world.controller.status(0).refused.values().sum();
    assert_eq!(refused, table.len() as u64);
    // Both jobs go on.
    world.ask_with(0, 0, &good()).unwrap();
    world.ask(1, 2);
    world.run_for(1_000_000_000);
    assert_eq!(world.status(0).counters.committed, 2);
    assert_eq!(world.status(1).counters.committed, 1);
}

/// A size is the job's to know: one that is plausible for its chunks over some network is taken.
#[test]
fn a_size_that_its_chunks_can_take_is_taken() {
    let mut world = world();
    let (least, most) = job(4).update_bytes_range();
    assert_eq!((least, most), (391 * (74 + 1024), 391 * (74 + 64 + 1024)));
    for (update_id, size_bytes) in [(1, least), (2, most), (3, 0)] {
        let request = TransferRequest { update_id, size_bytes, ..good() };
        world.ask_with(0, 0, &request).unwrap();
    }
    for (update_id, size_bytes) in [(4, least - 1), (4, most + 1)] {
        let request = TransferRequest { update_id, size_bytes, ..good() };
        assert_eq!(world.ask_with(0, 0, &request).unwrap_err().field, "size_bytes");
    }
}

#[test]
fn names_have_a_maximum() {
    let mut controller = world().controller;
    let long = "n".repeat(3 << 20);
    let registered = |change: &dyn Fn(&mut JobConfig)| {
        let mut job = JobConfig { name: "third".into(), index: 2, ..job(4) };
        change(&mut job);
        job
    };
    let table: &[(&str, &dyn Fn(&mut JobConfig))] = &[
        ("name", &|job| job.name.clone_from(&long)),
        ("name", &|job| job.name = "two\nlines".into()),
        ("name", &|job| job.name = "n".repeat(129)),
        ("policy", &|job| job.policy = Some(long.clone())),
        ("server", &|job| job.server.clone_from(&long)),
        ("workers[0]", &|job| job.workers[0] = WorkerConfig::Host(long.clone())),
    ];
    for (field, change) in table {
        let error = controller.register_job(0, registered(change)).unwrap_err();
        assert_eq!(error.field, *field);
        assert!(error.problem.len() < 400, "what is wrong is said, not repeated");
    }
    controller.register_job(0, registered(&|job| job.name = "n".repeat(128))).unwrap();
    let hello = NodeHello { name: long, ..NodeHello::default() };
    let refusal = controller.handle_node(0, &hello).unwrap_err();
    assert!(refusal.field == "name" && refusal.problem.len() < 400);
}

#[test]
fn requests_of_strangers_are_refused() {
    let mut world = world();
    let controller = &mut world.controller;
    let field = |outcome: Result<(), Refusal>| outcome.unwrap_err().field;
    assert_eq!(field(controller.handle_request(0, JobId(7), rank(0), &good())), "job");
    assert_eq!(field(controller.handle_request(0, JobId(0), rank(4), &good())), "rank");
    controller.handle_worker_gone(JobId(0), rank(3));
    assert_eq!(field(controller.handle_request(0, JobId(0), rank(3), &good())), "hello");
    assert_eq!(field(controller.handle_cancel(0, JobId(0), rank(0), 1)), "update_id");
    assert_eq!(field(controller.handle_worker(JobId(9), rank(0), 1, None)), "job");
}

#[test]
fn a_worker_with_an_address_must_call_from_it() {
    let mut config = network(1, 100, 100);
    let mut job = job(1);
    let address = "10.0.0.1".parse().unwrap();
    job.workers = vec![WorkerConfig::At { host: "w0".into(), address }];
    config.jobs = vec![job];
    let mut controller = Controller::new(config, &Saved::fresh(0), built_in_policies()).unwrap();
    let mut call =
        |from: &str| controller.handle_worker(JobId(0), rank(0), 1, Some(from.parse().unwrap()));
    assert_eq!(call("10.0.0.2").unwrap_err().field, "rank");
    call("10.0.0.1").unwrap();
    call("::ffff:10.0.0.1").unwrap();
}

#[test]
fn a_worker_can_only_have_so_many_updates_under_way() {
    let mut world = world();
    for update_id in 1..=8 {
        world.ask_with(0, 0, &TransferRequest { update_id, ..good() }).unwrap();
    }
    let refusal = world.ask_with(0, 0, &good()).unwrap_err();
    assert_eq!(refusal.field, "update_id");
    world.run_for(5_000_000_000);
    world.ask_with(0, 0, &good()).unwrap();
}

fn open(hello: &mut NodeHello, order: u64, members: u64) {
    let (order, members) = (OrderNumber(order), Members(members));
    hello.roles[0].open_groups.push(OpenGroup { group: GroupId::new(3, 3), order, members });
}

#[test]
fn a_hello_must_fit_the_configuration() {
    let mut world = world();
    let hello = world.hello("s0", 1);
    let table: &[(&str, fn(&mut NodeHello))] = &[
        ("name", |hello| hello.name = "nobody".into()),
        ("roles", |hello| hello.roles[0].role = Role::Aggregator),
        ("roles", |hello| hello.roles[0].job = JobId(1)),
        ("roles", |hello| hello.roles.push(hello.roles[0].clone())),
        ("momentum_norm", |hello| hello.roles[0].momentum_norm = f64::NAN),
        ("next_order", |hello| hello.roles[0].next_order = OrderNumber(u64::MAX)),
        ("next_order", |hello| hello.roles[0].version = Version(u64::MAX)),
        ("open_groups", |hello| open(hello, u64::MAX, 1)),
        ("open_groups", |hello| open(hello, 5, 0)),
        ("open_groups", |hello| open(hello, 5, 1 << 4)),
        ("open_groups", |hello| (0..1025).for_each(|_| open(hello, 5, 1))),
        ("address", |hello| hello.roles[0].address = "1".repeat(300)),
        ("roles", |hello| {
            let role = hello.roles[0].clone();
            let more = (100..400).map(|job| RoleState { job: JobId(job), ..role.clone() });
            hello.roles.extend(more);
        }),
    ];
    for (field, change) in table {
        let mut hello = hello.clone();
        change(&mut hello);
        let refusal = world.controller.handle_node(0, &hello).unwrap_err();
        assert_eq!(refusal.field, *field, "{refusal}");
    }
    // A job that the controller does not have may be another controller's.
    let mut other = hello;
    other.roles[0].job = JobId(77);
    other.roles[0].box_index = BoxIndex(3);
    world.controller.handle_node(0, &other).unwrap();
}

#[test]
fn events_of_strangers_are_refused() {
    let mut world = world();
    world.ask(0, 0);
    world.run_for(150_000);
    let group = *world.controller.groups.keys().next().unwrap();
    let [s0, s1] = ["s0", "s1"].map(|name| {
        NodeId(world.controller.nodes.iter().position(|node| node.name() == name).unwrap() as u16)
    });
    let decided = |norm, order| Event::Decided {
        group,
        order: OrderNumber(order),
        decision: Decision::Committed(Version(1)),
        members: Members(1),
        norm,
        momentum_norm: 0.0,
    };
    let mut event = |node, job, event| {
        let outcome = world.controller.handle_event(0, node, JobId(job), &event);
        outcome.unwrap_err().field
    };
    assert_eq!(event(s0, 7, Event::Staged { group }), "job");
    assert_eq!(event(s1, 0, Event::Staged { group }), "event");
    assert_eq!(event(s0, 0, Event::Gathered { group, rank: rank(0) }), "event");
    assert_eq!(event(s1, 1, Event::Staged { group }), "group");
    assert_eq!(event(s0, 0, decided(f64::NAN, 0)), "norm");
    assert_eq!(event(s0, 0, decided(-1.0, 0)), "norm");
    assert_eq!(event(s0, 0, decided(1.0, u64::MAX)), "order");
    let beyond = Event::Decided {
        group,
        order: OrderNumber(0),
        decision: Decision::Committed(Version(u64::MAX)),
        members: Members(1),
        norm: 1.0,
        momentum_norm: 0.0,
    };
    assert_eq!(event(s0, 0, beyond), "order");
    // Of the job that it names outside, and of no other.
    assert_eq!(event(s0, 0, Event::MemberLost { job: JobId(1), rank: rank(0) }), "event");
    // A group that nobody knows is one that has ended.
    let unknown = Event::Installed { group: GroupId::new(1000, 1) };
    world.controller.handle_event(0, s0, JobId(0), &unknown).unwrap();
    world.run_for(1_000_000_000);
    assert_eq!(world.status(0).counters.committed, 1);
}

#[test]
fn absurd_bandwidth_is_refused_and_plans_go_on() {
    let mut network = network(2, 100, 100);
    for host in &mut network.hosts {
        (host.up_bytes_per_sec, host.down_bytes_per_sec) = (None, None);
    }
    network.jobs = vec![job(2)];
    let mut controller = Controller::new(network, &Saved::fresh(0), built_in_policies()).unwrap();
    let hello = NodeHello {
        name: "s0".into(),
        life: 1,
        roles: Vec::new(),
        holdings: Vec::new(),
        bands: None,
    };
    let node = controller.handle_node(0, &hello).unwrap();
    for nic_rx_bytes in [0, u64::MAX, 1, u64::MAX - 1] {
        let telemetry =
            Telemetry { at_ns: u64::MAX, nic_rx_bytes: Some(nic_rx_bytes), ..Telemetry::default() };
        let _ = controller.handle_telemetry(1, node, &telemetry);
        for host in controller.status(1).hosts {
            assert!(host.up_bytes_per_sec > 0 && host.down_bytes_per_sec > 0);
        }
    }
    let stranger = NodeId(99);
    assert!(controller.handle_telemetry(1, stranger, &Telemetry::default()).is_err());
}

#[test]
fn a_bad_configuration_names_its_field() {
    let table: &[(&str, fn(&mut Config))] = &[
        ("host[1].name", |config| config.hosts[1].name = "w0".into()),
        ("host[0].up_bytes_per_sec", |config| config.hosts[0].up_bytes_per_sec = Some(0)),
        ("host[0].down_bytes_per_sec", |config| {
            config.hosts[0].down_bytes_per_sec = Some(u64::MAX)
        }),
        ("host[0].rack", |config| config.hosts[0].rack = Some("nowhere".into())),
        ("node[0].host", |config| config.nodes = vec![world::node("x", "nowhere")]),
        ("job[0].workers", |config| config.jobs[0].workers.clear()),
        ("job[0].workers[1]", |config| {
            config.jobs[0].workers[1] = WorkerConfig::Host("nobody".into());
        }),
        ("job[0].server", |config| config.jobs[0].server = "nobody".into()),
        ("job[0].aggregators[0]", |config| config.jobs[0].aggregators = vec!["s0".into()]),
        ("job[0].replica", |config| config.jobs[0].replica = Some("s0".into())),
        ("job[0].tau_max", |config| config.jobs[0].tau_max = Some(2)),
        ("job[0].div_max", |config| config.jobs[0].div_max = Some(-1.0)),
        ("job[0].div_max", |config| config.jobs[0].div_max = Some(f64::NAN)),
        ("job[0].div_max", |config| config.jobs[0].div_max = Some(1.0)),
        ("job[0].momentum", |config| config.jobs[0].momentum = 1.0),
        ("job[0].weight", |config| config.jobs[0].weight = f64::INFINITY),
        ("job[0].dimension", |config| config.jobs[0].dimension = u64::MAX),
        ("job[0].dimension", |config| config.jobs[0].dimension = 0),
        ("job[0].element", |config| config.jobs[0].element = ElementType::Bf16),
        ("job[0].policy", |config| config.jobs[0].policy = Some("wishful".into())),
        ("job[0].partial_count", |config| config.jobs[0].mode = Mode::Partial),
        ("job[0].partial_count", |config| config.jobs[0].partial_count = Some(1)),
        ("job[1].index", |config| {
            let mut again = config.jobs[0].clone();
            again.name = "again".into();
            config.jobs.push(again);
        }),
        ("job[1].name", |config| {
            let mut again = config.jobs[0].clone();
            again.index = 5;
            config.jobs.push(again);
        }),
        ("tuning.gather_window_us", |config| config.tuning.gather_window_us = 0),
        ("tuning.planned_share", |config| config.tuning.planned_share = f64::NAN),
        ("tuning.batch_max", |config| config.tuning.batch_max = 0),
    ];
    for (field, change) in table {
        let mut config = network(4, 100, 100);
        config.jobs = vec![job(4)];
        change(&mut config);
        let error = Controller::new(config, &Saved::fresh(0), built_in_policies()).unwrap_err();
        assert_eq!(error.field, *field, "{error}");
    }
}

#[test]
fn a_job_registered_twice_is_refused_and_the_first_goes_on() {
    let mut world = world();
    let mut third = job(4);
    let error = world.controller.register_job(0, third.clone()).unwrap_err();
    assert_eq!(error.field, "index");
    third.index = 2;
    assert_eq!(world.controller.register_job(0, third.clone()).unwrap_err().field, "name");
    third.name = "third".into();
    third.server = "nobody".into();
    assert_eq!(world.controller.register_job(0, third).unwrap_err().field, "server");
    world.ask(0, 0);
    world.run_for(1_000_000_000);
    assert_eq!(world.status(0).counters.committed, 1);
}
