//! Jobs under a policy that lets the network share itself: nobody waits for anybody.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weft_config::controller::BandsConfig;
use weft_jobs::bands::BandPolicy;

use super::*;

/// Jobs with four workers each, whose servers share a host, and whose models have one size: so many
/// that some share a band, if there are more than seven.
fn jobs(policy: &str, count: u16, worker_up: u64) -> World {
    let mut network = network(4, worker_up, 100);
    network.bands = Some(BandsConfig { policy: BandPolicy::One, ..BandsConfig::default() });
    let servers = (0..count).map(|i| world::node(&format!("p{i}"), "s0"));
    network.nodes = servers.chain([world::node("agent", "s0")]).collect();
    let jobs: Vec<JobConfig> = (0..count)
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
    world
}

/// Two jobs; every worker of the first `asking` asks, and 10 ms pass, in which no update is sent
/// whole.
fn all_ask(policy: &str, asking: u16) -> World {
    let mut world = jobs(policy, 2, 100);
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

/// What moves into a job's server, or is about to, was promised so much of its link.
fn promised(world: &World, job: u16) -> u64 {
    let controller = &world.controller;
    let host = controller.host_of(controller.jobs[&JobId(job)].server);
    let of_job = |(group, _): &(GroupId, u64)| controller.groups[group].job == JobId(job);
    controller.flights.promised(host).filter(of_job).map(|(_, rate)| rate).sum()
}

/// Where better bands were promised more than a link has now: a job keeps what it was promised
/// itself, and a part of the link in any case.
#[test]
fn a_job_behind_better_ones_keeps_what_it_was_promised_and_a_part_of_the_link() {
    let world = all_ask("mlfabric", 2);
    let controller = &world.controller;
    let host = controller.host_of(controller.jobs[&JobId(1)].server);
    let beside = |job, link| controller.rate_beside_better(JobId(job), host, link);
    let (better, own) = (promised(&world, 0), promised(&world, 1));
    assert!(better > 0, "{better} {own}");
    assert_eq!(beside(1, better), own.max(better / 20).min(better));
    assert_eq!(beside(0, own.max(1)), own.max(1), "nobody is before it");
    let world = all_ask("mlfabric", 1);
    let controller = &world.controller;
    assert_eq!(controller.rate_beside_better(JobId(1), host, 1000), 50);
}

/// What a job was promised before a better one came it keeps: nothing under way is pre-empted.
#[test]
fn what_moves_keeps_its_rate_when_a_better_band_comes() {
    let mut world = jobs("mlfabric", 2, 50);
    world.ask(1, 0);
    world.run_for(5_000_000);
    world.ask(0, 1);
    world.run_for(5_000_000);
    let controller = &world.controller;
    let host = controller.host_of(controller.jobs[&JobId(1)].server);
    let (better, own) = (promised(&world, 0), promised(&world, 1));
    assert!(better > 0 && own > 0, "{better} {own}");
    let beside = |link| controller.rate_beside_better(JobId(1), host, link);
    // The link has become narrower than what it was promised for.
    assert_eq!(beside(better + own / 2), own);
    assert_eq!(beside(better + 2 * own), 2 * own);
}

/// What a server is told to receive follows what is promised to better jobs, down and up again.
#[test]
fn rates_under_way_follow_the_bands() {
    let mut world = jobs("mlfabric", 2, 50);
    let told = |world: &World| {
        let rate = |(to, command): &(String, Command)| match command {
            Command::SetRate { job: JobId(1), rate_bytes_per_sec } if to == "p1" => {
                Some(*rate_bytes_per_sec)
            }
            _ => None,
        };
        world.commands.iter().rev().find_map(rate).expect("it was told")
    };
    world.ask(1, 0);
    world.run_for(5_000_000);
    let alone = told(&world);
    world.ask(0, 1);
    world.run_for(5_000_000);
    let (better, own) = (promised(&world, 0), promised(&world, 1));
    assert!(better > 0 && own > 0, "{better} {own}");
    let beside = told(&world);
    assert!((own..=alone - better / 2).contains(&beside), "{own}, {beside}, {alone}");
    world.run_for(2_000_000_000);
    assert_eq!(told(&world), alone, "the better job's transfers are over");
}

/// Of equal bands neither goes before the other.
#[test]
fn only_better_bands_take_of_a_link() {
    const LINK: u64 = 12_500_000;
    let mut world = jobs("mlfabric", 8, 100);
    (0..4).for_each(|rank| world.ask(0, rank));
    world.run_for(10_000_000);
    assert!(promised(&world, 0) > 0);
    let bands: Vec<u8> = (0..3).map(|job| world.controller.bands.rank(JobId(job))).collect();
    assert_eq!(bands, [0, 0, 1]);
    let controller = &world.controller;
    let host = controller.host_of(controller.jobs[&JobId(0)].server);
    let beside = |job| controller.rate_beside_better(JobId(job), host, LINK);
    assert_eq!((beside(0), beside(1)), (LINK, LINK));
    assert!(beside(2) < LINK);
}

/// Order by (band, fairness): the better band first, however much it was served, and within a band
/// whoever was served least.
#[test]
fn the_better_band_is_planned_first_and_within_it_the_least_served() {
    let first_of = |count: u16, others: u16| {
        let mut world = jobs("mlfabric", count, 100);
        for _ in 0..3 {
            (0..4).for_each(|rank| world.ask(0, rank));
            world.run_for(1_000_000_000);
        }
        // As much is on its way as is granted at a time, so that these wait. The one that was
        // served asks last.
        let under_way = [(others, 0), (0, 0)];
        let waiting = [(others, 2), (others, 3), (0, 2), (0, 3)];
        under_way.into_iter().chain(waiting).for_each(|(job, rank)| world.ask(job, rank));
        let served = world.commands.len();
        world.run_for(1_000_000);
        let granted = world.commands[served..].iter().filter_map(job_of).count();
        assert!(granted <= 2, "{granted} do not wait");
        let served = world.commands.len();
        world.run_for(1_000_000_000);
        world.commands[served..].iter().find_map(job_of).expect("something is granted")
    };
    assert_eq!(first_of(2, 1), 0, "of band 0 and 1, band 0");
    assert_eq!(first_of(8, 1), 1, "of two of band 0, the one that was not served");
}

/// The job of a group that is installed.
fn job_of((_, command): &(String, Command)) -> Option<u16> {
    match command {
        Command::Install(group) => Some(group.job.0),
        _ => None,
    }
}
