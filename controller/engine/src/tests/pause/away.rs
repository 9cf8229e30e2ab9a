//! Pauses of jobs whose servers are not there: nobody waits without bound.

use super::*;

/// As long as a server without a stream is waited for.
const AWAY_NS: u64 = 10 * SECOND;

fn states(world: &World) -> Vec<JobState> {
    world.states.iter().map(|(_, state, _)| *state).collect()
}

/// Nothing of it is granted, and nothing ever was: it stands. The word waited for its server.
#[test]
fn a_job_whose_server_never_came_is_paused_at_once() {
    let mut world = World::new(network(2, 100, 100), vec![job(2)]);
    pause(&mut world).unwrap();
    assert_eq!(world.status(0).state, JobState::Paused);
    assert_eq!(world.status(0).pauses.pauses, 1);
    world.run_for(SECOND);
    assert_eq!(states(&world), [JobState::Pausing, JobState::Paused]);
    assert_eq!(world.states[1].2, Some(0));
    assert_eq!(world.controller.poll_timeout(), None, "nothing is waited for");
    // When the server has come it is paused still.
    world.attach_all();
    world.ask(0, 0);
    world.run_for(SECOND);
    let status = world.status(0);
    assert_eq!((status.state, status.counters.granted), (JobState::Paused, 0));
    resume(&mut world).unwrap();
    world.run_for(SECOND);
    assert_eq!(world.status(0).counters.committed, 1);
}

/// The next life of the controller knows it by what is saved: of a job that was granted something
/// only its server knows what it has still to decide.
#[test]
fn whether_anything_was_ever_granted_is_saved_before_it_is() {
    let mut world = World::new(network(2, 100, 100), vec![job(2)]);
    let untouched = world.controller.poll_saved().expect("all is new");
    assert!(untouched.jobs["digits"].is_untouched);
    world.attach_all();
    world.controller.poll_saved();
    world.ask(0, 0);
    world.run_for(10_000);
    assert!(world.controller.is_save_urgent());
    let touched = world.controller.poll_saved().expect("something is granted");
    assert!(!touched.jobs["digits"].is_untouched);
    for (saved, state) in [(untouched, JobState::Paused), (touched, JobState::Pausing)] {
        let mut next = World::with_saved(network(2, 100, 100), vec![job(2)], &saved);
        pause(&mut next).unwrap();
        assert_eq!(next.status(0).state, state);
    }
}

/// A controller without a state file does not know what a former one granted. When the server tells
/// it, the job does not stand until that is decided.
#[test]
fn what_a_server_brings_along_is_waited_for() {
    let mut world = busy(false);
    let mut config = network(4, 100, 100);
    config.hosts.push(world::host("a0", 100, 100));
    config.jobs = vec![job(4)];
    let fresh = Saved::fresh(9);
    let mut next = Controller::new(config, &fresh, built_in_policies()).unwrap();
    next.pause_job(0, "digits", Steerer::Operator).unwrap();
    next.handle_timeout(0);
    assert_eq!(next.status(0).jobs[0].state, JobState::Paused);
    world.controller = next;
    world.attach("s0", 1);
    let status = world.status(0);
    assert!(status.in_flight > 0, "the server has none open");
    assert_eq!(status.state, JobState::Pausing);
    world.run_for(SECOND);
    assert_eq!((world.status(0).state, world.status(0).in_flight), (JobState::Paused, 0));
    assert_eq!(world.status(0).pauses.pauses, 1, "it was measured once");
}

#[test]
fn a_pause_that_waits_for_a_server_that_is_away_is_given_up_by_name() {
    let mut world = busy(false);
    world.dead.insert("s0".into());
    world.detach("s0");
    let hello = world.hello("s0", 1);
    world.run_for(SECOND);
    assert!(world.status(0).in_flight > 0);
    world.states.clear();
    pause(&mut world).unwrap();
    world.run_for(AWAY_NS - SECOND);
    assert_eq!((world.status(0).state, world.unpaused.len()), (JobState::Pausing, 0));
    // One that comes again in time is waited for anew.
    world.controller.handle_node(world.now_ns, &hello).unwrap();
    world.settle();
    world.detach("s0");
    world.run_for(AWAY_NS - SECOND);
    assert_eq!((world.status(0).state, world.unpaused.len()), (JobState::Pausing, 0));
    world.run_for(2 * SECOND);
    assert_eq!(world.status(0).state, JobState::Running);
    let [problem] = world.unpaused.as_slice() else { panic!("{:?}", world.unpaused) };
    assert!(problem.contains("server `s0` has had no stream for 10 s"), "{problem}");
    assert!(problem.contains("that were granted are not decided"), "{problem}");
    assert_eq!(states(&world), [JobState::Pausing, JobState::Running]);
    let saved = world.controller.poll_saved().expect("it has changed");
    assert_eq!(saved.jobs["digits"].paused, None);
    // It can be said again, and the job goes on when its server is back.
    world.dead.clear();
    world.attach("s0", 1);
    let before = world.status(0).counters.committed;
    world.run_for(2 * SECOND);
    assert!(world.status(0).counters.committed > before);
    pause(&mut world).unwrap();
    world.run_for(SECOND);
    assert_eq!(world.status(0).state, JobState::Paused);
}

/// A pause that a former life was told stands on: nobody would hear that it does not.
#[test]
fn a_pause_of_a_former_life_is_not_given_up() {
    let mut world = busy(false);
    pause(&mut world).unwrap();
    let saved = world.controller.poll_saved().expect("it has changed");
    let mut next = World::with_saved(network(4, 100, 100), vec![job(4)], &saved);
    next.run_for(5 * AWAY_NS);
    assert_eq!((next.status(0).state, next.unpaused.len()), (JobState::Pausing, 0));
}

/// A word is no failure, also where it takes groups back that nobody was granted yet.
#[test]
fn plans_that_a_word_asks_for_are_counted_apart_from_failures() {
    let mut world = busy(true);
    let before = world.status(0).counters;
    for moment in 0..20 {
        world.run_for(50_000_000 + moment * 1_700_000);
        pause(&mut world).unwrap();
        world.run_for(100_000_000);
        resume(&mut world).unwrap();
    }
    let after = world.status(0).counters;
    assert_eq!(after.replans_failure, before.replans_failure);
    assert!(after.replans_words >= before.replans_words + 15, "{before:?} {after:?}");
}
