//! The controller against simulated boxes and workers in virtual time.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::type_complexity,
    reason = "small numbers and tables of changes"
)]

mod bad_input;
mod bandwidth;
mod closed_loop;
mod counters;
mod failures;
mod fair;
mod figures;
mod fingerprints;
mod holdings;
mod job;
mod own_policy;
mod pause;
mod probes;
mod promotion;
mod properties;
mod reduce;
mod registration;
mod world;

use alloc::vec::Vec;

use own_policy::policies;
use weft_control::Mode;
use world::{Worker, World, job, network};

use super::*;

/// Two updates asked for at once on an idle network: one order number each, granted after both
/// boxes' acknowledgements, committed in order.
#[test]
fn an_idle_network_is_planned_at_once() {
    let mut world = World::new(network(2, 100, 100), vec![job(2)]);
    world.attach_all();
    world.ask(0, 0);
    world.ask(0, 1);
    world.run_for(1_000_000_000);
    let status = world.status(0);
    assert_eq!((status.counters.granted, status.counters.committed), (2, 2));
    // Asking, installing and granting take three messages of 50 us each.
    assert!(world.first_grant_ns.unwrap() <= 3 * 50_000, "{:?}", world.first_grant_ns);
}

#[test]
fn requests_are_gathered_while_their_destination_is_busy() {
    let mut world = World::new(network(8, 100, 100), vec![job(8)]);
    world.attach_all();
    for rank in 0..8 {
        world.ask(0, rank);
        world.run_for(10_000);
    }
    world.run_for(1_000_000);
    // The first was planned alone; the others wait for the gather window to pass.
    assert_eq!(world.controller.status(world.now_ns).plans, 1);
    world.run_for(2_000_000);
    assert_eq!(world.controller.status(world.now_ns).plans, 2);
    world.run_for(10_000_000_000);
    assert_eq!(world.status(0).counters.committed, 8);
}

/// 8 KB take 0.6 ms of a link of 100 Mb/s, 400 KB take 32 ms; gathering takes 2 ms.
#[test]
fn what_is_sooner_there_than_gathered_goes_direct_and_at_once() {
    for (size, direct) in [(2_000, true), (100_000, false)] {
        let mut network = network(4, 100, 100);
        network.hosts.push(world::host("a0", 100, 100));
        let mut job = job(4);
        job.dimension = size;
        job.aggregators = vec!["a0".into()];
        let mut world = World::new(network, vec![job]);
        world.attach_all();
        for rank in 0..2 {
            world.ask(0, rank);
            world.run_for(10_000);
        }
        let plans = world.controller.status(world.now_ns).plans;
        assert_eq!(plans, if direct { 2 } else { 1 }, "{size} elements");
        world.ask(0, 2);
        world.ask(0, 3);
        world.run_for(10_000_000_000);
        let counters = world.status(0).counters;
        assert_eq!(counters.committed, 4);
        assert_eq!(counters.aggregated == 0, direct, "{size} elements: {counters:?}");
    }
}

#[test]
fn aggregated_members_wait_for_their_gates() {
    let mut network = network(6, 100, 100);
    network.hosts.push(world::host("a0", 100, 100));
    let mut job = job(6);
    job.aggregators = vec!["a0".into()];
    let mut world = World::new(network, vec![job]);
    world.attach_all();
    for rank in 0..6 {
        world.ask(0, rank);
    }
    world.run_for(60_000_000_000);
    let counters = world.status(0).counters;
    assert_eq!(counters.committed, 6);
    assert!(counters.aggregated >= 2, "{counters:?}");
    assert!(world.releases > 0);
    assert!(world.load_max <= 1.01, "a link carried {} of its rate", world.load_max);
}

/// A closed loop keeps the server's link busy.
#[test]
fn a_busy_servers_downlink_is_used() {
    let mut world = World::new(network(8, 1000, 1000), vec![job(8)]);
    world.attach_all();
    world.loop_workers(0, Worker { compute_ns: 1_000_000 });
    world.run_for(1_000_000_000);
    let before = world.bytes_into_server;
    let span_ns = 2_000_000_000;
    world.run_for(span_ns);
    let carried = (world.bytes_into_server - before) as f64;
    let share = carried * 1e9 / span_ns as f64 / world::rate(1000) as f64;
    assert!(share > 0.95, "the downlink was used to {share}");
}

#[test]
fn two_jobs_share_a_link_by_weight() {
    let mut network = network(8, 1000, 1000);
    network.hosts[8] = world::host("s0", 1000, 1000);
    network.nodes = vec![world::node("p0", "s0"), world::node("p1", "s0")];
    let mut jobs = vec![job(8), job(8)];
    for (i, job) in jobs.iter_mut().enumerate() {
        job.name = format!("j{i}");
        job.index = i as u16;
        job.server = format!("p{i}");
    }
    jobs[1].weight = 3.0;
    let mut world = World::new(network, jobs);
    world.attach_all();
    world.loop_workers(0, Worker { compute_ns: 0 });
    world.loop_workers(1, Worker { compute_ns: 0 });
    world.run_for(4_000_000_000);
    let done = [0, 1].map(|job| world.status(job).counters.committed as f64);
    assert!(done[0] > 10.0, "the light job starved: {done:?}");
    assert!(done[1] / done[0] > 1.3, "weights 1 and 3 gave {done:?}");
    assert!(world.load_max <= 1.01, "a link carried {} of its rate", world.load_max);
}

/// Where bands are, the better one is planned first; the other one gets what is left and never
/// nothing, and what its server may receive follows.
#[test]
fn two_jobs_share_a_link_by_band() {
    let done = |policy| {
        let mut network = network(8, 1000, 1000);
        network.hosts[8] = world::host("s0", 1000, 1000);
        network.nodes = vec![world::node("p0", "s0"), world::node("p1", "s0")];
        network.bands = Some(BandsConfig { policy, interval_s: 20 });
        let mut jobs = vec![job(8), job(8)];
        for (i, job) in jobs.iter_mut().enumerate() {
            job.name = format!("j{i}");
            job.index = i as u16;
            job.server = format!("p{i}");
        }
        let mut world = World::new(network, jobs);
        world.attach_all();
        world.loop_workers(0, Worker { compute_ns: 0 });
        world.loop_workers(1, Worker { compute_ns: 0 });
        world.run_for(4_000_000_000);
        assert!(world.load_max <= 1.01, "a link carried {} of its rate", world.load_max);
        let rates = world.commands.iter().filter_map(|(node, command)| match command {
            Command::SetRate { rate_bytes_per_sec, .. } if node == "p1" => {
                Some(*rate_bytes_per_sec)
            }
            _ => None,
        });
        let least = rates.min().unwrap_or(u64::MAX);
        ([0, 1].map(|job| world.status(job).counters.committed as f64), least)
    };
    let (fifo, all) = done(weft_control::BandPolicy::Fifo);
    assert!((fifo[0] / fifo[1] - 1.0).abs() < 0.2, "{fifo:?}");
    let (one, least) = done(weft_control::BandPolicy::One);
    assert!(one[0] / one[1] > 1.5, "bands 0 and 1 gave {one:?}");
    assert!(one[1] > 10.0, "band 1 starved: {one:?}");
    assert!(least < all, "what server 1 may receive followed: {least} of {all}");
}

#[test]
fn a_round_of_partial_updates_takes_the_first_and_drops_the_rest() {
    let mut job = job(4);
    job.mode = Mode::Partial;
    job.partial_count = Some(3);
    let mut world = World::new(network(4, 100, 100), vec![job]);
    world.attach_all();
    for rank in 0..4 {
        world.ask(0, rank);
    }
    world.run_for(5_000_000_000);
    let status = world.status(0);
    assert_eq!((status.counters.committed, status.counters.dropped), (3, 1));
    assert_eq!(status.version, 3);
    // The next round begins at version 3.
    for rank in 0..4 {
        world.ask(0, rank);
    }
    world.run_for(5_000_000_000);
    let status = world.status(0);
    assert_eq!((status.counters.committed, status.counters.dropped), (6, 2));
}

#[test]
fn rounds_of_all_workers_drop_nobody() {
    let mut job = job(4);
    job.mode = Mode::Sync;
    let mut world = World::new(network(4, 100, 100), vec![job]);
    world.attach_all();
    for _ in 0..3 {
        for rank in 0..4 {
            world.ask(0, rank);
        }
        world.run_for(10_000_000_000);
    }
    let status = world.status(0);
    assert_eq!((status.counters.committed, status.counters.dropped, status.version), (12, 0, 12));
}

#[test]
fn an_exponent_covers_the_largest_element_of_its_group() {
    let mut world = World::new(network(1, 100, 100), vec![job(1)]);
    world.attach_all();
    for (update_id, max_abs) in [(1, 0.0), (2, 1.0), (3, 3.0e38), (4, 1e300)] {
        let request = TransferRequest {
            update_id,
            size_bytes: 0,
            version: world.version(0),
            norm: 1.0,
            max_abs,
        };
        world.ask_with(0, 0, &request).unwrap();
        world.run_for(10_000_000_000);
    }
    let exponents: Vec<i8> = world.grants.iter().map(|grant| grant.exponent).collect();
    let fits = weft_wire::quant::exponent_for;
    assert_eq!(exponents[1], fits(1.0f32.next_up(), 1));
    assert_eq!(exponents[2], fits(3.0e38f32.next_up(), 1));
    assert_eq!(exponents[3], fits(f32::INFINITY, 1));
    assert!(exponents[0] < exponents[1]);
}
