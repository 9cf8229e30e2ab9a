//! Jobs under a policy that lets the network share itself: nobody waits for anybody.

use alloc::format;
use alloc::vec::Vec;

use weft_config::controller::BandsConfig;
use weft_jobs::bands::BandPolicy;

use super::*;

/// Two jobs with four workers each, whose servers share a host; every worker of the first `asking`
/// asks, and 10 ms pass, in which no update is sent whole.
fn all_ask(policy: &str, asking: u16) -> World {
    let mut network = network(4, 100, 100);
    network.bands = Some(BandsConfig { policy: BandPolicy::One, ..BandsConfig::default() });
    network.nodes = ["p0", "p1", "agent"].map(|name| world::node(name, "s0")).into();
    let jobs: Vec<JobConfig> = (0..2u16)
        .map(|i| JobConfig {
            name: format!("j{i}"),
            index: i,
            server: format!("p{i}"),
            policy: Some(policy.into()),
            ..job(4)
        })
        .collect();
    let mut world = World::new(network, jobs);
    world.attach_all();
    for (job, rank) in (0..asking).flat_map(|job| (0..4).map(move |rank| (job, rank))) {
        world.ask(job, rank);
    }
    world.run_for(10_000_000);
    world
}

#[test]
fn where_the_network_shares_itself_nobody_waits_for_another_job_or_member() {
    let granted = |world: &World| [0, 1].map(|job| world.status(job).counters.granted);
    let world = all_ask("fair", 2);
    assert_eq!(granted(&world), [4, 4]);
    let groups = world.controller.groups.values();
    assert!(groups.map(|group| group.descriptor.after).all(|after| after.is_none()));
    // Somebody who plans has most of them wait.
    let planned = granted(&all_ask("mlfabric", 2));
    assert!(planned.iter().sum::<u64>() < 8, "{planned:?}");
}

/// Bands order what leaves a host with servers; what comes in under a plan follows them, too.
#[test]
fn a_server_without_a_plan_is_told_its_whole_link_whatever_its_band() {
    const LINK: u64 = 12_500_000;
    let told = |policy| {
        let world = all_ask(policy, 1);
        let controller = &world.controller;
        let host = controller.host_of(controller.jobs[&JobId(1)].server);
        controller.rate_beside_better(JobId(1), host, LINK)
    };
    assert_eq!(told("fair"), LINK);
    assert!(told("mlfabric") < LINK, "the better job's transfers go first");
}

/// Where better bands were promised more than a link has now: a job keeps what it was promised
/// itself, and a part of the link in any case.
#[test]
fn a_job_behind_better_ones_keeps_what_it_was_promised_and_a_part_of_the_link() {
    let world = all_ask("mlfabric", 2);
    let controller = &world.controller;
    let host = controller.host_of(controller.jobs[&JobId(1)].server);
    let promised = |job| {
        let of_job = |(group, _): &(GroupId, u64)| controller.groups[group].job == JobId(job);
        controller.flights.promised(host).filter(of_job).map(|(_, rate)| rate).sum::<u64>()
    };
    let beside = |job, link| controller.rate_beside_better(JobId(job), host, link);
    let (better, own) = (promised(0), promised(1));
    assert!(better > 0, "{better} {own}");
    assert_eq!(beside(1, better), own.max(better / 20).min(better));
    assert_eq!(beside(0, own.max(1)), own.max(1), "nobody is before it");
    let world = all_ask("mlfabric", 1);
    let controller = &world.controller;
    assert_eq!(controller.rate_beside_better(JobId(1), host, 1000), 50);
}
