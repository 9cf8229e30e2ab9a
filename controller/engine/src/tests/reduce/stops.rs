//! Before which round all stop, and what becomes of a stop that cannot be.

use super::*;

/// Whoever is ahead makes the boundary, and those behind come up to it.
#[test]
fn all_stop_before_the_first_round_that_nobody_has_begun() {
    let mut rig = Rig::running(4, 3);
    rig.begin(0, 1);
    rig.pause().unwrap();
    assert!(rig.orders(3).iter().all(|(_, order)| *order == RoundOrder::Hold));
    rig.says(0, 2, Halt::Held);
    rig.says(1, 1, Halt::Held);
    assert!(rig.orders(3).iter().all(|(_, order)| *order == RoundOrder::Hold));
    rig.says(2, 1, Halt::Held);
    assert!(rig.orders(3).iter().all(|(_, order)| *order == RoundOrder::Stop(2)));
    rig.says(0, 2, Halt::Stopped);
    rig.says(1, 2, Halt::Stopped);
    assert_eq!(rig.status().state, JobState::Pausing);
    rig.says(2, 2, Halt::Stopped);
    let status = rig.status();
    assert_eq!((status.state, status.boundary), (JobState::Paused, Some(2)));
    assert_eq!(status.pauses.pauses, 1);
    assert!(status.pauses.standstill_last_ns > 0);
    rig.resume().unwrap();
    assert!(rig.orders(3).iter().all(|(_, order)| *order == RoundOrder::Go));
    assert_eq!(rig.status().state, JobState::Running);
}

/// What was said in answer to an order before this one is no answer to this one.
#[test]
fn an_answer_to_an_earlier_order_does_not_count() {
    let mut rig = Rig::running(4, 2);
    rig.pause().unwrap();
    let (old, _) = rig.orders(1)[0];
    rig.resume().unwrap();
    rig.pause().unwrap();
    rig.says(1, 1, Halt::Held);
    let rank = Rank::new(0).unwrap();
    let stale = RoundPosition { turn: old, next: 1, halt: Halt::Held };
    rig.controller.handle_position(rig.now_ns, JOB, rank, stale).unwrap();
    rig.settle();
    assert_eq!(rig.orders(1)[0].1, RoundOrder::Hold);
    rig.says(0, 5, Halt::Held);
    assert_eq!(rig.orders(1)[0].1, RoundOrder::Stop(5));
}

/// A worker that held for a controller that had gone went on.
#[test]
fn a_boundary_that_was_passed_moves_up() {
    let mut rig = Rig::running(4, 2);
    rig.pause().unwrap();
    rig.all_say(2, 1, Halt::Held);
    rig.says(0, 1, Halt::Stopped);
    rig.says(1, 2, Halt::Held);
    assert!(rig.orders(2).iter().all(|(_, order)| *order == RoundOrder::Stop(2)));
    rig.all_say(2, 2, Halt::Stopped);
    assert_eq!((rig.status().state, rig.status().boundary), (JobState::Paused, Some(2)));
}

/// Its last word may be one that it has gone on from.
#[test]
fn a_worker_whose_stream_is_gone_does_not_stand() {
    let mut rig = Rig::running(4, 2);
    rig.pause().unwrap();
    rig.all_say(2, 1, Halt::Held);
    rig.says(0, 1, Halt::Stopped);
    rig.controller.handle_reducer_gone(JOB, Rank::new(0).unwrap());
    rig.says(1, 1, Halt::Stopped);
    assert_eq!(rig.status().state, JobState::Pausing);
    rig.attach(0, 0, 1).unwrap();
    assert_eq!(rig.status().state, JobState::Pausing, "it has not said so on this stream");
    rig.says(0, 1, Halt::Stopped);
    assert_eq!(rig.status().state, JobState::Paused);
}

#[test]
fn what_an_operator_paused_of_an_allreduce_no_policy_resumes_and_a_standstill_is_saved() {
    let mut rig = Rig::running(4, 2);
    let pause = |rig: &mut Rig, by| {
        let told = rig.controller.pause_job(rig.now_ns, "digits", by);
        rig.settle();
        told
    };
    let resume = |rig: &mut Rig, by| {
        let told = rig.controller.resume_job(rig.now_ns, "digits", by);
        rig.settle();
        told
    };
    pause(&mut rig, Steerer::Policy).unwrap();
    assert!(pause(&mut rig, Steerer::Policy).is_err());
    pause(&mut rig, Steerer::Operator).unwrap();
    rig.all_say(2, 1, Halt::Held);
    rig.says(0, 1, Halt::Stopped);
    rig.controller.poll_saved();
    rig.says(1, 1, Halt::Stopped);
    assert_eq!(rig.status().state, JobState::Paused);
    let saved = rig.controller.poll_saved().expect("a standstill is news");
    assert!(saved.reduces["digits"].stands);
    let mut next = Rig::new(config(4, 2), &saved);
    assert_eq!(next.status().state, JobState::Paused);
    for rig in [&mut rig, &mut next] {
        assert_eq!(resume(rig, Steerer::Policy), Err(SteerError::Operators));
        assert_eq!(rig.status().state, JobState::Paused);
        resume(rig, Steerer::Operator).unwrap();
        assert_eq!(rig.status().state, JobState::Running);
    }
}

/// Whoever has begun the last round needs the others there, and nothing comes after it.
#[test]
fn a_job_in_its_last_round_is_not_stopped_and_whoever_asks_hears_so() {
    let mut ending = config(4, 2);
    ending.reduces[0].rounds = Some(3);
    let started = || {
        let mut rig = Rig::new(ending.clone(), &Saved::fresh(7));
        rig.attach_box(&[]);
        rig.obey();
        rig.start(0, 2, 0);
        rig
    };
    let problem = SteerError::Ending { rounds: 3 };
    // Before the last one it stops, and after that goes on to it.
    let mut rig = started();
    rig.begin(0, 1);
    rig.pause().unwrap();
    rig.says(0, 2, Halt::Held);
    rig.says(1, 1, Halt::Held);
    rig.all_say(2, 2, Halt::Stopped);
    assert_eq!(rig.status().state, JobState::Paused);
    rig.resume().unwrap();
    rig.begin(1, 2);
    assert_eq!(rig.pause(), Err(problem.clone()));
    assert_eq!(rig.resize(4), Err(problem.clone()));
    assert_eq!(rig.status().state, JobState::Running);
    // The word crosses the beginning of the last round, and a worker that ended has no stream.
    for resizes in [false, true] {
        let mut rig = started();
        rig.begin(0, 1);
        rig.begin(1, 1);
        rig.actions.clear();
        let told = if resizes { rig.resize(4) } else { rig.pause() };
        told.unwrap();
        rig.begin(0, 2);
        rig.controller.handle_reducer_gone(JOB, Rank::new(0).unwrap());
        rig.settle();
        assert_eq!(rig.status().state, JobState::Running);
        assert_eq!(rig.orders(2)[1].1, RoundOrder::Go, "the other one goes on to its end");
        let is_answer = |action: &Action| match action {
            Action::Resized { outcome: Err(why), .. } => resizes && *why == problem.to_string(),
            Action::Unpaused { problem: why, .. } => !resizes && *why == problem.to_string(),
            _ => false,
        };
        let is_running =
            |action: &Action| matches!(action, Action::State { state: JobState::Running, .. });
        let at = |is_it: &dyn Fn(&Action) -> bool| rig.actions.iter().position(is_it);
        assert!(at(&is_answer).is_some() && at(&is_answer) < at(&is_running), "{:?}", rig.actions);
    }
}

#[test]
fn a_stop_that_waits_for_a_worker_that_is_gone_is_given_up_in_time() {
    const MISSING_MAX_NS: u64 = 10_000_000_000;
    let gone = |rig: &mut Rig, rank: u8| {
        rig.controller.handle_reducer_gone(JOB, Rank::new(rank).unwrap());
        rig.settle();
    };
    let told = |rig: &Rig| {
        rig.actions.iter().find_map(|action| match action {
            Action::Unpaused { problem, .. } => Some(problem.clone()),
            Action::Resized { outcome: Err(problem), .. } => Some(problem.clone()),
            _ => None,
        })
    };
    for resizes in [false, true] {
        let mut rig = Rig::running(4, 2);
        let word = if resizes { rig.resize(4) } else { rig.pause() };
        word.unwrap();
        gone(&mut rig, 1);
        let due_ns = rig.controller.poll_timeout().unwrap();
        assert_eq!(due_ns, rig.now_ns + MISSING_MAX_NS);
        // One that calls again in time is waited for anew.
        rig.now_ns = due_ns - 2 * MS;
        rig.attach(1, 0, 1).unwrap();
        gone(&mut rig, 0);
        let due_ns = rig.now_ns + MISSING_MAX_NS;
        rig.now_ns = due_ns - 2 * MS;
        rig.settle();
        assert_eq!(told(&rig), None);
        rig.settle();
        let problem = told(&rig).expect("it is given up");
        assert!(problem.contains("rank 0 had no stream for 10 s"), "{problem}");
        assert_eq!(rig.status().state, JobState::Running);
        assert_eq!(rig.orders(2)[1].1, RoundOrder::Go);
    }
    // While they keep a checkpoint too; what was kept then is not that of a later boundary.
    let mut rig = Rig::running(4, 2);
    rig.resize(4).unwrap();
    rig.all_say(2, 1, Halt::Held);
    rig.all_say(2, 1, Halt::Stopped);
    gone(&mut rig, 1);
    rig.now_ns += MISSING_MAX_NS;
    rig.settle();
    assert!(told(&rig).is_some());
    assert_eq!((rig.status().state, rig.status().cohort), (JobState::Running, 0));
    // A pause that a former life was told stands: nobody would hear that it does not.
    let mut rig = Rig::running(4, 2);
    rig.pause().unwrap();
    let saved = rig.controller.poll_saved().expect("there is news");
    let mut next = Rig::new(config(4, 2), &saved);
    next.attach_box(&[Holding::Job, Holding::Row(2)]);
    next.now_ns += 3 * MISSING_MAX_NS;
    next.settle();
    assert_eq!((told(&next), next.status().state), (None, JobState::Pausing));
}

/// What was told of stops that came to nothing.
fn given_up(rig: &Rig) -> Vec<String> {
    let told = |action: &Action| match action {
        Action::Unpaused { problem, .. } | Action::Resized { outcome: Err(problem), .. } => {
            Some(problem.clone())
        }
        _ => None,
    };
    rig.actions.iter().filter_map(told).collect()
}

/// All have streams, and one does not do what it was told: it is named, with what is missing.
#[test]
fn a_stop_that_waits_for_a_worker_that_is_there_is_given_up_in_time_and_says_for_what() {
    type Word = fn(&mut Rig);
    let pause: Word = |rig| assert_eq!(rig.pause(), Ok(JOB));
    let resize: Word = |rig| assert_eq!(rig.resize(4), Ok(JOB));
    let silent: (Word, &str) =
        (|rig| rig.says(0, 1, Halt::Held), "rank 1 has not said where it is");
    let behind: (Word, &str) = (
        |rig| {
            rig.all_say(2, 1, Halt::Held);
            rig.says(1, 1, Halt::Stopped);
        },
        "rank 0 does not stand before round 1",
    );
    let keeping: (Word, &str) = (
        |rig| {
            rig.all_say(2, 1, Halt::Held);
            rig.all_say(2, 1, Halt::Stopped);
            rig.says(1, 1, Halt::Left);
        },
        "rank 0 has not kept the checkpoint of round 1",
    );
    let cases = [(pause, silent), (pause, behind), (resize, silent), (resize, behind)];
    for (word, (goes, what)) in cases.into_iter().chain([(resize, keeping)]) {
        let mut rig = Rig::running(4, 2);
        word(&mut rig);
        goes(&mut rig);
        let due_ns = rig.controller.poll_timeout().expect("it is waited for");
        assert!(due_ns > rig.now_ns + STOP_NS - 10 * MS, "{what}: {due_ns}");
        rig.now_ns = due_ns - 2 * MS;
        rig.settle();
        assert_eq!(given_up(&rig), Vec::<String>::new(), "{what}: there is time");
        rig.settle();
        let problem =
            format!("name: `digits` did not stop within 40 s: {what}; it goes on as it was");
        assert_eq!(given_up(&rig), [problem]);
        // All of it is as before: workers, lease, places; and it can be said again.
        let status = rig.status();
        assert_eq!((status.state, status.workers, status.cohort), (JobState::Running, 2, 0));
        assert!(rig.orders(2).iter().all(|(_, order)| *order == RoundOrder::Go));
        assert_eq!(rig.obey(), Vec::<String>::new());
        let saved = rig.controller.poll_saved().expect("it has changed");
        let saved = &saved.reduces["digits"];
        assert_eq!((saved.paused, saved.resizing, saved.boundary), (None, None, None));
        rig.now_ns += 10 * STOP_NS;
        rig.settle();
        assert_eq!(given_up(&rig).len(), 1, "it is told once");
        rig.leave(2, 4, 1);
        assert_eq!(rig.obey(), ["remove", "lease of 4"]);
    }
}

/// The checkpoint has as long again as the standstill.
#[test]
fn what_all_keep_at_the_boundary_has_a_time_of_its_own() {
    let mut rig = Rig::running(4, 2);
    rig.resize(4).unwrap();
    rig.all_say(2, 1, Halt::Held);
    rig.now_ns += STOP_NS - 100 * MS;
    rig.all_say(2, 1, Halt::Stopped);
    rig.now_ns += STOP_NS - 100 * MS;
    rig.all_say(2, 1, Halt::Left);
    assert_eq!(given_up(&rig), Vec::<String>::new());
    assert_eq!((rig.status().cohort, rig.status().workers), (1, 4));
}

/// Workers are told nothing while their lease is not in: it is the box that is waited for.
#[test]
fn a_stop_of_workers_without_a_lease_names_their_aggregator() {
    let mut rig = Rig::running(4, 2);
    rig.controller.handle_node_gone(rig.now_ns, rig.node);
    rig.life = 2;
    rig.attach_box(&[]);
    rig.pause().unwrap();
    rig.all_say(2, 1, Halt::None);
    rig.now_ns += STOP_NS;
    rig.settle();
    let told = given_up(&rig);
    let has_not = "their aggregator `a0` has not answered about the lease";
    assert!(told.len() == 1 && told[0].contains(has_not), "{told:?}");
    assert_eq!(rig.status().state, JobState::Running);
}

/// As `config` has it.
const STOP_NS: u64 = 40_000_000_000;
