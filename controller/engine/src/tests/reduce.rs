//! Allreduce jobs: before which round their workers stop, and what a resize comes to, one rule at a
//! time. What they come to while everything dies is simulated (tests/tests/steer_simulation.rs).

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};

use weft_control::{
    Cohort, CohortId, Halt, Holding, HoldingCommand, HoldingError, JobState, RoundOrder,
    RoundPosition, RoundWord,
};
use weft_wire::Rank;
use weft_wire::hello::{Integrity, Overflow};

use super::*;

const JOB: JobId = JobId(3);
const MS: u64 = 1_000_000;

fn config(places: u8, workers: u16) -> Config {
    let place = |rank: u8| PlaceConfig {
        host: format!("w{rank}"),
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 23_000 + u16::from(rank))),
    };
    let hosts = (0..places).map(|rank| HostConfig::named(format!("w{rank}")));
    Config {
        hosts: hosts.chain([HostConfig::named("a0")]).collect(),
        reduces: vec![ReduceConfig {
            name: "digits".into(),
            index: JOB.0,
            aggregator: "a0".into(),
            row: 2,
            places: (0..places).map(place).collect(),
            workers,
            window: 64,
            elements: 256,
            chunks_max: 1 << 20,
            exponent: -20,
            rounds: None,
            overflow: Overflow::Clamp,
            integrity: Integrity::Crc32c,
        }],
        ..Config::default()
    }
}

struct Rig {
    controller: Controller,
    node: NodeId,
    now_ns: u64,
    actions: Vec<Action>,
    life: u64,
}

impl Rig {
    fn new(config: Config, saved: &Saved) -> Self {
        let controller = Controller::new(config, saved, built_in_policies()).unwrap();
        Self { controller, node: NodeId(0), now_ns: 0, actions: Vec::new(), life: 1 }
    }

    /// With a lease, and workers that have begun round 0.
    fn running(places: u8, workers: u16) -> Self {
        let mut rig = Self::new(config(places, workers), &Saved::fresh(7));
        rig.attach_box(&[]);
        rig.obey();
        rig.start(0, workers, 0);
        rig
    }

    fn settle(&mut self) {
        self.now_ns += MS;
        self.controller.handle_timeout(self.now_ns);
        while let Some(action) = self.controller.poll_action() {
            self.actions.push(action);
        }
    }

    fn attach_box(&mut self, holdings: &[Holding]) {
        let holdings = holdings.iter().map(|holding| (JOB, *holding)).collect();
        let hello = NodeHello {
            name: "a0".into(),
            life: self.life,
            roles: Vec::new(),
            holdings,
            bands: None,
        };
        self.node = self.controller.handle_node(self.now_ns, &hello).unwrap();
        self.settle();
    }

    /// The box does what it is told, until nothing is; returns what that was.
    fn obey(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        loop {
            let commands = self.actions.extract_if(.., |action| {
                matches!(action, Action::Command { command: Command::Holding(_), .. })
            });
            let Some(Action::Command { command: Command::Holding(command), .. }) =
                commands.collect::<Vec<_>>().into_iter().next()
            else {
                return told;
            };
            let holding = command.holding();
            let event = match &command {
                HoldingCommand::RemoveLease { .. } => Event::HoldingRemoved { holding },
                _ => Event::HoldingInstalled { holding },
            };
            told.push(match &command {
                HoldingCommand::InstallJob(_) => "share".into(),
                HoldingCommand::InstallLease(row) => format!("lease of {}", row.members.len()),
                _ => "remove".into(),
            });
            self.answer(event);
        }
    }

    fn answer(&mut self, event: Event) {
        self.controller.handle_event(self.now_ns, self.node, JOB, &event).unwrap();
        self.settle();
    }

    fn attach(&mut self, rank: u8, cohort: u32, next: u64) -> Result<(), Refusal> {
        let position = RoundPosition { turn: 0, next, halt: Halt::None };
        let rank = Rank::new(rank).unwrap();
        let cohort = (CohortId(cohort), position);
        let attached = self.controller.handle_reducer(JOB, rank, (7, None), cohort);
        self.settle();
        attached
    }

    fn start(&mut self, cohort: u32, workers: u16, next: u64) {
        for rank in 0..u8::try_from(workers).unwrap() {
            self.attach(rank, cohort, next).unwrap();
        }
        for rank in 0..u8::try_from(workers).unwrap() {
            self.begin(rank, next);
        }
    }

    fn begin(&mut self, rank: u8, round: u64) {
        let rank = Rank::new(rank).unwrap();
        self.controller.handle_round(self.now_ns, JOB, rank, (round, 4000)).unwrap();
        self.settle();
    }

    /// The last order of each worker, with its number.
    fn orders(&self, workers: u8) -> Vec<(u32, RoundOrder)> {
        let of = |rank: u8| {
            let last = self.actions.iter().rev().find_map(|action| match action {
                Action::Rounds { rank: to, word: RoundWord::Order(turn, order), .. }
                    if to.index() == usize::from(rank) =>
                {
                    Some((*turn, *order))
                }
                _ => None,
            });
            last.expect("it was told something")
        };
        (0..workers).map(of).collect()
    }

    fn says(&mut self, rank: u8, next: u64, halt: Halt) {
        let (turn, _) = self.orders(rank + 1)[usize::from(rank)];
        let rank = Rank::new(rank).unwrap();
        let position = RoundPosition { turn, next, halt };
        self.controller.handle_position(self.now_ns, JOB, rank, position).unwrap();
        self.settle();
    }

    fn all_say(&mut self, workers: u8, next: u64, halt: Halt) {
        (0..workers).for_each(|rank| self.says(rank, next, halt));
    }

    fn status(&self) -> ReduceStatus {
        self.controller.status(self.now_ns).reduces.remove(0)
    }

    fn pause(&mut self) -> Result<JobId, SteerError> {
        let told = self.controller.pause_job(self.now_ns, "digits", Steerer::Operator);
        self.settle();
        told
    }

    fn resume(&mut self) -> Result<JobId, SteerError> {
        let told = self.controller.resume_job(self.now_ns, "digits", Steerer::Operator);
        self.settle();
        told
    }

    fn resize(&mut self, workers: u16) -> Result<JobId, SteerError> {
        let told = self.controller.resize_job(self.now_ns, "digits", workers);
        self.settle();
        told
    }

    /// Until the new lease is wanted.
    fn leave(&mut self, from: u8, to: u16, boundary: u64) {
        self.resize(to).unwrap();
        self.all_say(from, boundary, Halt::Held);
        self.all_say(from, boundary, Halt::Stopped);
        self.all_say(from, boundary, Halt::Left);
    }
}

#[test]
fn workers_are_welcomed_when_their_lease_is_in() {
    let mut rig = Rig::new(config(4, 2), &Saved::fresh(7));
    rig.attach(0, 0, 0).unwrap();
    let is_welcome =
        |rig: &Rig| rig.actions.iter().any(|action| matches!(action, Action::Rounds { .. }));
    assert!(!is_welcome(&rig));
    rig.attach_box(&[]);
    assert!(!is_welcome(&rig));
    assert_eq!(rig.obey(), ["share", "lease of 2"]);
    let cohort = Cohort { id: CohortId(0), workers: 2, workers_first: 2, from_round: 0 };
    let rank = Rank::new(0).unwrap();
    let word = RoundWord::Cohort(cohort);
    assert!(rig.actions.contains(&Action::Rounds { job: JOB, rank, word }));
    assert_eq!(rig.orders(1)[0].1, RoundOrder::Go);
    assert!(rig.status().wants_workers, "the other one is missing");
}

/// Before that it does not say of a lease that it has none, and workers ask on.
#[test]
fn a_box_is_told_that_it_has_all_once_it_has_every_jobs_lease() {
    let settled = |rig: &Rig| {
        let told = |action: &&Action| matches!(action, Action::Settled { .. });
        rig.actions.iter().filter(told).count()
    };
    let mut rig = Rig::new(config(4, 2), &Saved::fresh(7));
    rig.attach_box(&[]);
    assert_eq!(settled(&rig), 0);
    rig.answer(Event::HoldingInstalled { holding: Holding::Job });
    assert_eq!(settled(&rig), 0, "it has the share, and not the lease");
    rig.actions.clear();
    rig.answer(Event::HoldingInstalled { holding: Holding::Row(2) });
    assert_eq!(settled(&rig), 1);
    rig.start(0, 2, 0);
    // It is killed when the lease is just taken away, and has none of the next one's either.
    rig.leave(2, 4, 1);
    rig.actions.clear();
    rig.controller.handle_node_gone(rig.now_ns, rig.node);
    rig.life += 1;
    rig.attach_box(&[]);
    assert_eq!(settled(&rig), 0);
    assert_eq!(rig.obey(), ["share", "lease of 4"]);
    assert_eq!(settled(&rig), 1);
    // One that only lost its stream is told on the new one; one that refuses is told too.
    rig.controller.handle_node_gone(rig.now_ns, rig.node);
    rig.attach_box(&[Holding::Job, Holding::Row(2)]);
    assert_eq!(settled(&rig), 2);
    rig.controller.handle_node_gone(rig.now_ns, rig.node);
    rig.life += 1;
    rig.attach_box(&[]);
    let error = HoldingError::Full;
    rig.answer(Event::HoldingRefused { holding: Holding::Job, error });
    assert_eq!(settled(&rig), 3);
}

/// The workers use it: to take it away would end their sessions.
#[test]
fn a_lease_whose_answer_the_controller_did_not_live_to_hear_stays() {
    let mut rig = Rig::running(4, 2);
    rig.controller.handle_node_gone(rig.now_ns, rig.node);
    rig.life += 1;
    rig.attach_box(&[Holding::Job]);
    rig.actions.clear();
    rig.settle();
    let saved = rig.controller.poll_saved().expect("there is news");
    let mut next = Rig::new(config(4, 2), &saved);
    next.attach_box(&[Holding::Job, Holding::Row(2)]);
    assert_eq!(next.obey(), Vec::<String>::new());
    assert!(next.status().is_leased);
    // Of a lease that was there before, nothing is known.
    let mut other = Rig::new(config(4, 2), &Saved::fresh(7));
    other.attach_box(&[Holding::Job, Holding::Row(2)]);
    assert_eq!(other.obey(), ["remove", "lease of 2"]);
}

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

/// A worker that has just come may be calling the box yet, and keeps nothing before it answers.
#[test]
fn a_box_that_comes_back_while_workers_leave_gets_their_lease() {
    let mut rig = Rig::running(4, 2);
    rig.resize(4).unwrap();
    rig.all_say(2, 1, Halt::Held);
    rig.all_say(2, 1, Halt::Stopped);
    rig.controller.handle_node_gone(rig.now_ns, rig.node);
    rig.life += 1;
    rig.attach_box(&[]);
    assert_eq!(rig.obey(), ["share", "lease of 2"]);
    rig.all_say(2, 1, Halt::Left);
    assert_eq!(rig.obey(), ["remove", "lease of 4"]);
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

#[test]
fn a_resize_keeps_a_checkpoint_and_replaces_the_lease_and_the_workers() {
    let mut rig = Rig::running(4, 2);
    rig.resize(4).unwrap();
    assert_eq!(rig.status().state, JobState::Resizing);
    rig.all_say(2, 1, Halt::Held);
    rig.all_say(2, 1, Halt::Stopped);
    assert!(rig.orders(2).iter().all(|(_, order)| *order == RoundOrder::Leave(1)));
    rig.says(0, 1, Halt::Left);
    assert_eq!(rig.obey(), Vec::<String>::new(), "one has not kept it");
    assert_eq!(rig.status().cohort, 0);
    rig.says(1, 1, Halt::Left);
    assert!(rig.orders(2).iter().all(|(_, order)| *order == RoundOrder::Bye));
    assert_eq!((rig.status().cohort, rig.status().workers), (1, 4));
    assert!(!rig.status().wants_workers);
    assert_eq!(rig.obey(), ["remove", "lease of 4"]);
    assert!(rig.status().wants_workers);
    // A worker of the former cohort is told that it is over.
    let late = rig.attach(0, 0, 1).unwrap_err();
    assert_eq!((late.field, late.problem.as_str()), ("cohort", "bye"));
    let early = rig.attach(0, 2, 1).unwrap_err();
    assert_eq!(early.field, "cohort");
    rig.start(1, 4, 1);
    let status = rig.status();
    assert_eq!((status.state, status.next_round), (JobState::Running, 2));
    let resize = status.resizes[0];
    assert_eq!((resize.from, resize.to, resize.round), (2, 4, 1));
    let parts = [resize.stop_ns, resize.checkpoint_ns, resize.lease_ns, resize.start_ns];
    assert!(parts.iter().all(|part_ns| *part_ns > 0), "{resize:?}");
    let told = rig.actions.iter().any(
        |action| matches!(action, Action::Resized { outcome: Ok(told), .. } if *told == resize),
    );
    assert!(told);
}

#[test]
fn a_resize_that_has_no_room_changes_nothing() {
    let mut config = config(4, 2);
    config.hosts[2].slots = Some(0);
    let mut rig = Rig::new(config, &Saved::fresh(7));
    rig.attach_box(&[]);
    rig.obey();
    rig.start(0, 2, 0);
    let before = rig.status();
    for (workers, problem) in [
        (0, "there are 4 places"),
        (5, "the job has 4 places"),
        (3, "host `w2` has 0 slots free"),
        (2, "has 2 already"),
    ] {
        let refused = rig.resize(workers).unwrap_err().to_string();
        assert!(refused.contains(problem) || workers == 0, "{workers}: {refused}");
        assert_eq!(rig.status(), before, "{workers}");
    }
    assert_eq!(rig.resize(1), Ok(JOB), "with fewer it needs no room");
    let told = rig.controller.resize_job(rig.now_ns, "none", 2);
    assert_eq!(told, Err(SteerError::Unknown));
}

#[test]
fn two_operators_at_once_get_one_answer_each() {
    let mut rig = Rig::running(4, 2);
    rig.pause().unwrap();
    assert_eq!(rig.pause(), Err(SteerError::Paused(JobState::Pausing)));
    assert_eq!(rig.resize(4), Err(SteerError::Paused(JobState::Pausing)));
    rig.resume().unwrap();
    assert_eq!(rig.resume(), Err(SteerError::NotPaused(JobState::Running)));
    rig.resize(4).unwrap();
    assert_eq!(rig.resize(1), Err(SteerError::Resizing));
    assert_eq!(rig.pause(), Err(SteerError::Resizing));
    assert_eq!(rig.resume(), Err(SteerError::Resizing));
    rig.all_say(2, 1, Halt::Held);
    rig.all_say(2, 1, Halt::Stopped);
    rig.all_say(2, 1, Halt::Left);
    rig.obey();
    assert_eq!(rig.resize(1), Err(SteerError::Resizing), "the new workers have not begun");
}

#[test]
fn a_lease_that_is_refused_brings_the_former_width_back() {
    let mut rig = Rig::running(4, 2);
    rig.leave(2, 4, 1);
    let removed = Event::HoldingRemoved { holding: Holding::Row(2) };
    rig.actions.clear();
    rig.answer(removed);
    let (holding, error) = (Holding::Row(2), HoldingError::Full);
    rig.answer(Event::HoldingRefused { holding, error });
    let told = rig.actions.iter().find_map(|action| match action {
        Action::Resized { outcome: Err(problem), .. } => Some(problem.clone()),
        _ => None,
    });
    assert!(told.expect("it is told").contains("goes on with 2"));
    // The first command is that of the lease that was refused.
    let wanted = rig.actions.iter().rev().find_map(|action| match action {
        Action::Command {
            command: Command::Holding(HoldingCommand::InstallLease(row)), ..
        } => Some(row.members.len()),
        _ => None,
    });
    assert_eq!(wanted, Some(2));
    rig.answer(Event::HoldingInstalled { holding });
    assert_eq!((rig.status().cohort, rig.status().workers), (2, 2));
    rig.start(2, 2, 1);
    assert_eq!(rig.status().state, JobState::Running);
}

#[test]
fn a_box_that_comes_back_with_nothing_gets_its_lease_again() {
    let mut rig = Rig::running(4, 2);
    rig.controller.handle_node_gone(rig.now_ns, rig.node);
    rig.life = 2;
    rig.attach_box(&[]);
    assert_eq!(rig.obey(), ["share", "lease of 2"]);
    assert_eq!(rig.status().state, JobState::Running);
}

/// One that was installed and not acknowledged may be of the cohort before.
#[test]
fn a_lease_of_which_nothing_is_known_is_replaced() {
    let mut rig = Rig::new(config(4, 2), &Saved::fresh(7));
    rig.attach_box(&[Holding::Job, Holding::Row(2)]);
    assert_eq!(rig.obey(), ["remove", "lease of 2"]);
}

#[test]
fn a_controller_that_comes_back_goes_on_in_the_middle() {
    let mut rig = Rig::running(4, 2);
    rig.controller.poll_saved();
    rig.controller.resize_job(rig.now_ns, "digits", 4).unwrap();
    assert!(rig.controller.is_save_urgent(), "it is told before it is saved");
    rig.settle();
    rig.all_say(2, 1, Halt::Held);
    rig.all_say(2, 1, Halt::Stopped);
    let saved = rig.controller.poll_saved().expect("it has changed");
    let mut rig = Rig::new(config(4, 2), &saved);
    rig.attach_box(&[Holding::Job, Holding::Row(2)]);
    assert_eq!(rig.obey(), Vec::<String>::new(), "the lease is known to be right");
    for rank in 0..2 {
        rig.attach(rank, 0, 1).unwrap();
    }
    assert!(rig.orders(2).iter().all(|(_, order)| *order == RoundOrder::Stop(1)));
    rig.all_say(2, 1, Halt::Stopped);
    assert!(rig.orders(2).iter().all(|(_, order)| *order == RoundOrder::Leave(1)));
    rig.all_say(2, 1, Halt::Left);
    let saved = rig.controller.poll_saved().expect("it has changed");
    let mut rig = Rig::new(config(4, 2), &saved);
    rig.attach_box(&[Holding::Job, Holding::Row(2)]);
    assert_eq!(rig.obey(), ["remove", "lease of 4"], "that of the cohort before");
    let late = rig.attach(0, 0, 1).unwrap_err();
    assert_eq!((late.field, late.problem.as_str()), ("cohort", "bye"));
}

#[test]
fn service_is_counted_from_what_ran() {
    let mut rig = Rig::running(4, 2);
    for round in 1..5 {
        rig.now_ns += 10 * MS;
        rig.begin(0, round);
        rig.begin(1, round);
    }
    let status = rig.status();
    assert_eq!((status.rounds, status.bytes), (4, 10 * 4000));
    let ran_ns = status.service_ns;
    assert!((80 * MS..120 * MS).contains(&ran_ns), "{ran_ns}");
    rig.pause().unwrap();
    rig.now_ns += 1000 * MS;
    rig.all_say(2, 5, Halt::Held);
    rig.all_say(2, 5, Halt::Stopped);
    rig.now_ns += 1000 * MS;
    rig.resume().unwrap();
    rig.begin(0, 5);
    assert_eq!(rig.status().service_ns, ran_ns, "nobody worked");
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused_by_field() {
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = config(4, 2);
        change(&mut config);
        Controller::new(config, &Saved::fresh(7), built_in_policies()).unwrap_err().field
    };
    assert_eq!(refused(&|c| c.reduces[0].aggregator = "a9".into()), "reduce[0].aggregator");
    assert_eq!(refused(&|c| c.reduces[0].workers = 5), "reduce[0].workers");
    assert_eq!(refused(&|c| c.reduces[0].workers = 0), "reduce[0].workers");
    assert_eq!(refused(&|c| c.reduces[0].places.clear()), "reduce[0].places");
    assert_eq!(refused(&|c| c.reduces[0].exponent = 127), "reduce[0].exponent");
    assert_eq!(refused(&|c| c.reduces[0].elements = 0), "reduce[0].elements");
    let twice = |c: &mut Config| c.reduces[0].places[1].address = c.reduces[0].places[0].address;
    assert_eq!(refused(&twice), "reduce[0].places[1].address");
    let host = |c: &mut Config| c.reduces[0].places[1].host = "w9".into();
    assert_eq!(refused(&host), "reduce[0].places[1].host");
    let again = |c: &mut Config| c.reduces.push(c.reduces[0].clone());
    assert_eq!(refused(&again), "reduce[1].index");
}
