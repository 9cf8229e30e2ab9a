//! Jobs that are paused and go on: nothing is granted meanwhile, what was granted ends, and
//! nobody's update is lost or comes twice.

mod away;

use alloc::string::ToString as _;
use alloc::vec::Vec;

use weft_control::JobState;

use super::*;

const SECOND: u64 = 1_000_000_000;
/// One update on its worker's link or the server's, both of 100 Mb/s.
const TRANSFER_NS: u64 = 35_000_000;
/// Messages, and what a plan leaves of a link.
const SLACK_NS: u64 = 8_000_000;

/// How closely it is looked when updates are committed.
const LOOK_NS: u64 = 500_000;

/// Four workers that ask without end, with or without an aggregator.
fn busy(aggregators: bool) -> World {
    busy_with(4, aggregators)
}

fn busy_with(workers: usize, aggregators: bool) -> World {
    let mut network = network(workers, 100, 100);
    network.hosts.push(world::host("a0", 100, 100));
    let mut job = job(workers);
    if aggregators {
        job.aggregators = vec!["a0".into()];
    }
    let mut world = World::new(network, vec![job]);
    world.attach_all();
    world.loop_workers(0, Worker { compute_ns: 3_000_000 });
    world.run_for(SECOND);
    world
}

fn pause(world: &mut World) -> Result<JobId, SteerError> {
    let told = world.controller.pause_job(world.now_ns, "digits", Steerer::Operator);
    world.settle();
    told
}

fn resume(world: &mut World) -> Result<JobId, SteerError> {
    let told = world.controller.resume_job(world.now_ns, "digits", Steerer::Operator);
    world.settle();
    told
}

/// The word comes at any moment of the plans' rhythm.
#[test]
fn a_paused_job_is_granted_nothing_and_stands_still_one_transfer_behind_what_moves() {
    for (aggregators, hops) in [(false, 1), (true, 2)] {
        let mut worst_ns = 0;
        for moment in 0..40 {
            let mut world = busy(aggregators);
            world.run_for(moment * 1_700_000);
            let granted = world.status(0).counters.granted;
            let asked_ns = world.now_ns;
            pause(&mut world).unwrap();
            world.run_for(2 * SECOND);
            let status = world.status(0);
            assert_eq!((status.counters.granted, status.in_flight), (granted, 0), "at {moment}");
            assert_eq!((status.state, status.pending), (JobState::Paused, 4), "at {moment}");
            let stood = world.states.iter().find(|(_, state, _)| *state == JobState::Paused);
            let (told_ns, _, after_ns) = *stood.expect("it stands still");
            let after_ns = after_ns.expect("it is measured");
            assert_eq!(status.pauses.standstill_last_ns, after_ns);
            assert_eq!(told_ns, asked_ns + after_ns + world::MESSAGE_NS);
            worst_ns = worst_ns.max(after_ns);
        }
        // What moves, and the one that was granted behind it so that the link does not run dry.
        assert!(worst_ns <= (hops + 1) * TRANSFER_NS + SLACK_NS, "{worst_ns} ns, {hops} hops");
        assert!(worst_ns > TRANSFER_NS / 2, "nothing moved when it was paused: {worst_ns} ns");
    }
}

/// When updates were committed after the word, from it on, and how long the standstill took.
fn commits_after_a_pause(world: &mut World) -> (Vec<u64>, u64) {
    let asked_ns = world.now_ns;
    pause(world).unwrap();
    let (mut commits, mut known) = (Vec::new(), world.status(0).counters.committed);
    while world.status(0).state != JobState::Paused {
        assert!(world.now_ns < asked_ns + SECOND, "it never stands");
        world.run_for(LOOK_NS);
        let committed = world.status(0).counters.committed;
        if committed > known {
            commits.push(world.now_ns - asked_ns);
            known = committed;
        }
    }
    (commits, world.status(0).pauses.standstill_last_ns)
}

/// What ends first is what moved at the word; behind it one was granted at most. Through an
/// aggregator that takes its time on both links.
#[test]
fn the_last_commit_is_one_largest_transfer_behind_the_end_of_what_moved_at_the_word() {
    for (aggregators, hops) in [(false, 1), (true, 2)] {
        let mut most_ns = 0;
        for moment in 0..40 {
            let mut world = busy(aggregators);
            world.run_for(moment * 1_700_000);
            let (commits, stood_ns) = commits_after_a_pause(&mut world);
            // One that had arrived as the word came was only to be decided.
            let moved: Vec<u64> = commits.into_iter().filter(|at| *at > SLACK_NS).collect();
            let [first_ns, .., last_ns] = moved.as_slice() else { continue };
            let behind_ns = last_ns - first_ns;
            assert!(behind_ns <= hops * TRANSFER_NS + SLACK_NS, "{behind_ns} ns, at {moment}");
            assert!(stood_ns <= last_ns + SLACK_NS, "{stood_ns} ns, last commit at {last_ns} ns");
            most_ns = most_ns.max(behind_ns);
        }
        assert!(most_ns > TRANSFER_NS / 2, "none was ever granted behind another: {most_ns} ns");
    }
}

/// Nothing is granted behind what moves where nobody else asks: then the bound is from the word.
#[test]
fn where_one_transfer_is_granted_at_a_time_the_last_commit_is_one_behind_the_word() {
    let mut most_ns = 0;
    for moment in 0..40 {
        let mut world = busy_with(1, false);
        world.run_for(moment * 1_700_000);
        let (commits, _) = commits_after_a_pause(&mut world);
        assert!(commits.len() <= 1, "{commits:?}, at {moment}");
        most_ns = commits.iter().copied().chain([most_ns]).max().unwrap_or(0);
    }
    assert!(most_ns <= TRANSFER_NS + SLACK_NS, "{most_ns} ns");
    assert!(most_ns > TRANSFER_NS / 2, "nothing moved when it was paused: {most_ns} ns");
}

#[test]
fn a_resumed_job_goes_on_where_it_was_and_loses_nothing() {
    for aggregators in [false, true] {
        let mut world = busy(aggregators);
        for _ in 0..3 {
            pause(&mut world).unwrap();
            world.run_for(SECOND / 3);
            let before = world.status(0).counters;
            resume(&mut world).unwrap();
            world.run_for(SECOND);
            let after = world.status(0).counters;
            assert!(after.committed > before.committed + 8, "{before:?} {after:?}");
        }
        let counters = world.status(0).counters;
        let ended = counters.committed + counters.dropped;
        let under_way = world.status(0).pending as u64 + world.status(0).in_flight;
        assert_eq!(counters.requested, ended + under_way, "{counters:?}");
        assert_eq!(world.status(0).version, counters.committed);
        assert_eq!((counters.voided, counters.unknown), (0, 0));
    }
}

/// A group that its boxes have and nobody was granted is taken back; its updates go later.
#[test]
fn what_was_installed_and_not_granted_waits() {
    let mut world = World::new(network(2, 100, 100), vec![job(2)]);
    world.attach_all();
    world.ask(0, 0);
    world.ask(0, 1);
    // The boxes have been told, and have not answered.
    world.run_for(10_000);
    assert_eq!(world.status(0).counters.granted, 0);
    assert!(world.status(0).in_flight > 0);
    pause(&mut world).unwrap();
    world.run_for(SECOND);
    let status = world.status(0);
    assert_eq!((status.counters.granted, status.pending), (0, 2));
    assert_eq!((status.state, status.in_flight), (JobState::Paused, 0));
    resume(&mut world).unwrap();
    world.run_for(SECOND);
    let status = world.status(0);
    assert_eq!((status.counters.committed, status.version), (2, 2));
}

#[test]
fn a_word_that_changes_nothing_is_refused_and_says_why() {
    let mut world = busy(false);
    let unknown = world.controller.pause_job(world.now_ns, "none", Steerer::Operator);
    assert_eq!(unknown, Err(SteerError::Unknown));
    assert_eq!(resume(&mut world), Err(SteerError::NotPaused(JobState::Running)));
    pause(&mut world).unwrap();
    assert_eq!(pause(&mut world), Err(SteerError::Paused(JobState::Pausing)));
    world.run_for(SECOND);
    assert_eq!(pause(&mut world), Err(SteerError::Paused(JobState::Paused)));
    resume(&mut world).unwrap();
    assert_eq!(resume(&mut world), Err(SteerError::NotPaused(JobState::Running)));
    let states: Vec<JobState> = world.states.iter().map(|(_, state, _)| *state).collect();
    assert_eq!(states, [JobState::Pausing, JobState::Paused]);
    let told = SteerError::Paused(JobState::Pausing).to_string();
    assert!(told.contains("pausing already"), "{told}");
}

/// Resumed before it stands still, it never says that it did.
#[test]
fn a_pause_that_is_ended_early_comes_to_no_standstill() {
    let mut world = busy(false);
    pause(&mut world).unwrap();
    world.run_for(1_000_000);
    resume(&mut world).unwrap();
    world.run_for(SECOND);
    assert_eq!(world.status(0).pauses, PauseStatus::default());
    let states: Vec<JobState> = world.states.iter().map(|(_, state, _)| *state).collect();
    assert_eq!(states, [JobState::Pausing, JobState::Running]);
}

#[test]
fn what_an_operator_paused_no_policy_resumes() {
    let mut world = busy(false);
    let mut steer = |is_pause: bool, by| {
        let now_ns = world.now_ns;
        let told = match is_pause {
            true => world.controller.pause_job(now_ns, "digits", by),
            false => world.controller.resume_job(now_ns, "digits", by),
        };
        told.map(drop)
    };
    assert_eq!(steer(true, Steerer::Policy), Ok(()));
    assert_eq!(steer(true, Steerer::Operator), Ok(()), "a greater authority takes it over");
    assert_eq!(steer(true, Steerer::Policy), Err(SteerError::Paused(JobState::Pausing)));
    assert_eq!(steer(false, Steerer::Policy), Err(SteerError::Operators));
    assert_eq!(steer(false, Steerer::Operator), Ok(()));
    assert_eq!(steer(true, Steerer::Policy), Ok(()));
    assert_eq!(steer(false, Steerer::Operator), Ok(()), "a person may end a policy's pause");
}

#[test]
fn a_pause_outlives_the_controller() {
    let mut world = busy(true);
    world.controller.poll_saved();
    pause(&mut world).unwrap();
    assert!(world.controller.is_save_urgent(), "it is told before it is saved");
    world.run_for(SECOND);
    let saved = world.controller.poll_saved().expect("it has changed");
    assert_eq!(saved.jobs["digits"].paused, Some(Steerer::Operator));
    let mut config = network(4, 100, 100);
    config.hosts.push(world::host("a0", 100, 100));
    // Nobody knows before the server has said it what that has still to decide.
    let mut alone = Controller::new(
        Config {
            jobs: vec![JobConfig { aggregators: vec!["a0".into()], ..job(4) }],
            ..config.clone()
        },
        &saved,
        built_in_policies(),
    )
    .unwrap();
    alone.handle_timeout(SECOND);
    assert_eq!(alone.status(SECOND).jobs[0].state, JobState::Pausing);
    world.restart_controller(config, &saved);
    world.run_for(2 * SECOND);
    let status = world.status(0);
    assert_eq!((status.counters.granted, status.state), (0, JobState::Paused));
    let version = world.version(0);
    resume(&mut world).unwrap();
    for rank in 0..4 {
        world.ask(0, rank);
    }
    world.run_for(SECOND);
    assert!(world.version(0) > version);
    let saved = world.controller.poll_saved().expect("it has changed");
    assert_eq!(saved.jobs["digits"].paused, None);
}

/// Another job on the same server's link uses what a paused one leaves.
#[test]
fn a_paused_job_holds_up_no_other() {
    let mut network = network(8, 100, 100);
    network.nodes = vec![world::node("p0", "s0"), world::node("p1", "s0")];
    let jobs: Vec<JobConfig> = (0..2u16)
        .map(|i| JobConfig {
            name: if i == 0 { "digits".into() } else { "other".into() },
            index: i,
            server: alloc::format!("p{i}"),
            ..job(8)
        })
        .collect();
    let mut world = World::new(network, jobs);
    world.attach_all();
    world.loop_workers(0, Worker { compute_ns: 0 });
    world.loop_workers(1, Worker { compute_ns: 0 });
    world.run_for(2 * SECOND);
    let shared = world.status(1).counters.committed;
    pause(&mut world).unwrap();
    world.run_for(SECOND / 5);
    let before = world.status(1).counters.committed;
    world.run_for(2 * SECOND);
    let alone = world.status(1).counters.committed - before;
    assert!(alone as f64 > 1.5 * shared as f64, "{shared} beside it, {alone} alone");
}
