//! What measurements change: rates of links, plans, grants.

use alloc::borrow::ToOwned;
use alloc::vec::Vec;

use weft_control::{TRAIN_CHUNKS_MAX, TrainArrival};
use weft_wire::Rank;

use super::world::{Worker, World, host, job, network, rate};
use super::*;

/// Rates up and down of a host, as plans know them.
fn known(world: &World, name: &str) -> (u64, u64, f64) {
    let status = world.controller.status(world.now_ns);
    let host = status.hosts.iter().find(|host| host.name == name).unwrap();
    (host.up_bytes_per_sec, host.down_bytes_per_sec, host.confidence)
}

fn near(value: u64, truth: u64, share: f64) -> bool {
    (value as f64 / truth as f64 - 1.0).abs() <= share
}

/// Four workers in a loop, on links that can do what is configured.
fn busy_world() -> World {
    let mut world = World::new(network(4, 100, 100), vec![job(4)]);
    world.truth = [("s0.down".to_owned(), rate(100))].into();
    world.truth.extend((0..4).map(|i| (format!("w{i}.up"), rate(100))));
    world.attach_all();
    world.loop_workers(0, Worker { compute_ns: 1_000_000 });
    world
}

/// Rates of the sums that the server was told of since the `from`th command.
fn granted_rates(world: &World, from: usize) -> Vec<u64> {
    let commands = world.commands[from..].iter();
    let rates = commands.filter_map(|(_, command)| match command {
        Command::Install(group) => group.rate_bytes_per_sec,
        _ => None,
    });
    rates.collect()
}

#[test]
fn a_link_that_falls_is_planned_with_what_it_has_left() {
    let mut world = busy_world();
    world.run_for(2_000_000_000);
    assert_eq!(known(&world, "s0").1, rate(100));
    let before = world.status(0).counters;
    assert_eq!(before.replans_bandwidth, 0);
    // No other cause is there: nothing failed.
    world.truth.insert("s0.down".to_owned(), rate(50));
    let step = world.commands.len();
    world.run_for(1_000_000_000);
    let (_, down, confidence) = known(&world, "s0");
    assert!(near(down, rate(50), 0.05), "{down} a second after the step");
    assert!((0.0..1.0).contains(&confidence), "{confidence}");
    assert!(world.status(0).counters.replans_bandwidth > 0);
    assert!(world.controller.status(world.now_ns).trains > 10);
    let later = world.commands.len();
    assert!(later > step);
    world.run_for(1_000_000_000);
    for rate_now in granted_rates(&world, later) {
        assert!(rate_now <= rate(53), "granted {rate_now} on half a link");
    }
    let told = world.commands.iter().rev().find_map(|(_, command)| match command {
        Command::SetRate { rate_bytes_per_sec, .. } => Some(*rate_bytes_per_sec),
        _ => None,
    });
    assert!(told.is_some_and(|told| near(told, rate(50), 0.05)), "{told:?}");
    // And back: trains leave beyond what is granted, so they show it.
    world.truth.insert("s0.down".to_owned(), rate(100));
    world.run_for(2_000_000_000);
    assert!(near(known(&world, "s0").1, rate(100), 0.05), "{:?}", known(&world, "s0"));
}

#[test]
fn nothing_is_believed_above_what_is_configured() {
    let mut world = busy_world();
    for truth in world.truth.values_mut() {
        *truth = rate(250);
    }
    world.run_for(3_000_000_000);
    assert!(world.controller.status(world.now_ns).trains > 10);
    for name in ["w0", "w1", "w2", "w3"] {
        assert_eq!(known(&world, name).0, rate(100));
    }
    assert_eq!(known(&world, "s0").1, rate(100));
}

/// A measurement counts for as long as it is fresh.
#[test]
fn a_measurement_fades_when_nothing_confirms_it() {
    let mut world = busy_world();
    world.truth.insert("s0.down".to_owned(), rate(50));
    // The link had shown its line rate before, or nothing would say which end is slow.
    world.truth.insert("s0.down".to_owned(), rate(100));
    world.run_for(1_000_000_000);
    world.truth.insert("s0.down".to_owned(), rate(50));
    world.run_for(1_000_000_000);
    assert!(known(&world, "s0").1 < rate(60));
    let idle_ns = 60_000_000_000;
    let status = world.controller.status(world.now_ns + idle_ns);
    let server = status.hosts.iter().find(|host| host.name == "s0").unwrap();
    assert_eq!(server.down_bytes_per_sec, rate(100));
}

#[test]
fn a_racks_uplink_is_found_and_its_hosts_are_cleared() {
    let mut config = network(4, 100, 1000);
    config.racks = vec![RackConfig { name: "r0".into(), ..RackConfig::default() }];
    config.racks.push(RackConfig { name: "r1".into(), ..RackConfig::default() });
    config.hosts.push(host("a0", 1000, 1000));
    for host in &mut config.hosts {
        let is_inside = ["w0", "w1", "a0"].contains(&host.name.as_str());
        host.rack = Some(if is_inside { "r0" } else { "r1" }.into());
    }
    let mut job = job(4);
    job.aggregators = vec!["a0".into()];
    let mut world = World::new(config, vec![job]);
    for host in &world.controller.config.hosts {
        world.rack_of.insert(host.name.clone(), host.rack.clone().unwrap());
    }
    for worker in 0..4 {
        world.truth.insert(format!("w{worker}.up"), rate(100));
    }
    world.truth.insert("r0.up".to_owned(), rate(40));
    world.attach_all();
    world.loop_workers(0, Worker { compute_ns: 1_000_000 });
    world.run_for(5_000_000_000);
    let uplink = known_rack(&world, "r0");
    assert!(near(uplink.0, rate(40), 0.05), "{uplink:?}");
    for name in ["w0", "w1", "w2", "w3"] {
        let up = known(&world, name).0;
        assert!(near(up, rate(100), 0.05), "{name} {up}");
    }
    assert!(world.status(0).counters.committed > 20);
}

/// Rates up and down of a rack.
fn known_rack(world: &World, name: &str) -> (u64, u64) {
    let status = world.controller.status(world.now_ns);
    let rack = status.racks.iter().find(|rack| rack.name == name).unwrap();
    (rack.up_bytes_per_sec, rack.down_bytes_per_sec)
}

#[test]
fn what_others_send_is_not_planned_with() {
    let mut world = busy_world();
    world.run_for(1_000_000_000);
    let node = NodeId(0);
    let (mut own, mut all) = (0, 0);
    for _ in 0..30 {
        world.run_for(100_000_000);
        // A third of the link is others'.
        (own, all) = (own + rate(60) / 10, all + rate(90) / 10);
        let telemetry = Telemetry {
            at_ns: world.now_ns,
            rx_bytes: own,
            tx_bytes: 0,
            nic_rx_bytes: Some(all),
            nic_tx_bytes: None,
        };
        world.controller.handle_telemetry(world.now_ns, node, &telemetry).unwrap();
        world.settle();
    }
    let down = known(&world, "s0").1;
    assert!(near(down, rate(70), 0.05), "{down} beside 30 of others");
    assert!(world.status(0).counters.replans_bandwidth > 0);
}

#[test]
fn trains_that_make_no_sense_change_no_rate() {
    let mut world = busy_world();
    world.run_for(5_000_000);
    let group = world.grants.last().expect("somebody was granted").group;
    let make = |at: &dyn Fn(u64) -> u64, rx: &dyn Fn(u64) -> u64, frame_len: u32| {
        let arrival = |i| TrainArrival { at_ns: at(i), rx_bytes: rx(i) };
        let arrivals = (0..u64::from(TRAIN_CHUNKS_MAX)).map(arrival).collect();
        Train { job: JobId(0), group, rank: Rank::new(0), frame_len, arrivals }
    };
    let even = |i: u64| i * 1_000_000;
    let absurd = [
        make(&|_| 0, &|i| i, 1098),
        make(&|_| u64::MAX, &|i| i, 1098),
        make(&|i| u64::MAX - i, &|i| i, 1098),
        make(&|i| u64::MAX / 200 * i, &|i| i, 1098),
        make(&even, &|i| u64::MAX / 200 * i, u32::MAX),
        make(&even, &|i| u64::MAX - i, 0),
        make(&|i| i, &|i| i, u32::MAX),
        Train { arrivals: [].into_iter().collect(), ..make(&even, &even, 1098) },
    ];
    let rates = |world: &World| {
        ["w0", "w1", "w2", "w3", "s0"].map(|name| {
            let (up, down, _) = known(world, name);
            (up, down)
        })
    };
    let before = rates(&world);
    for train in &absurd {
        world.controller.handle_train(world.now_ns, NodeId(0), train).unwrap();
    }
    assert_eq!(before, rates(&world));
    assert!(world.controller.status(world.now_ns).samples_refused >= 6);
    let foreign = Train { job: JobId(9), ..make(&even, &even, 1098) };
    let refusal = world.controller.handle_train(world.now_ns, NodeId(0), &foreign).unwrap_err();
    assert_eq!(refusal.field, "job");
    world.run_for(1_000_000_000);
    assert!(world.status(0).counters.committed > 10);
}

#[test]
fn trains_are_a_small_part_of_what_they_begin() {
    let trains = |dimension: u64, train_us: u64| -> Vec<u16> {
        let mut config = network(2, 100, 100);
        config.tuning.train_us = train_us;
        let mut world = World::new(config, vec![JobConfig { dimension, ..job(2) }]);
        world.attach_all();
        world.ask(0, 0);
        world.ask(0, 1);
        world.run_for(10_000_000_000);
        world.grants.iter().map(|grant| grant.train_chunks).collect()
    };
    // 3 ms of 100 Mb/s are 34 chunks of 391.
    assert_eq!(trains(100_000, 3000), [34, 34]);
    assert_eq!(trains(100_000, 1), [24, 24]);
    assert_eq!(trains(100_000, 1_000_000), [128, 128]);
    assert_eq!(trains(80 * 256, 3000), [26, 26], "a third of the update");
    assert_eq!(trains(70 * 256, 3000), [0, 0], "too small an update for a train");
    assert_eq!(trains(100_000, 0), [0, 0]);
}
