//! Allreduce jobs: before which round their workers stop, and what a resize comes to, one rule at a
//! time. What they come to while everything dies is simulated (tests/tests/steer_simulation.rs).

mod leases;
mod overdue;
mod placing;
mod stops;

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
            placement: Placement::Order,
            pack_limit: 0.4,
            begin_timeout_s: 5.0,
            stop_timeout_s: 40.0,
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
        let begun = BegunRound { round, bytes: 4000, messages: None };
        self.controller.handle_round(self.now_ns, JOB, rank, begun).unwrap();
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
        let told = self.controller.resize_job(self.now_ns, "digits", workers.into());
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
    for limit in [-0.1, 1.1, f64::NAN] {
        assert_eq!(refused(&|c| c.reduces[0].pack_limit = limit), "reduce[0].pack_limit");
    }
    for timeout_s in [0.0, -1.0, 1e9, f64::NAN] {
        let change = |c: &mut Config| c.reduces[0].begin_timeout_s = timeout_s;
        assert_eq!(refused(&change), "reduce[0].begin_timeout_s");
        let change = |c: &mut Config| c.reduces[0].stop_timeout_s = timeout_s;
        assert_eq!(refused(&change), "reduce[0].stop_timeout_s");
    }
    let twice = |c: &mut Config| c.reduces[0].places[1].address = c.reduces[0].places[0].address;
    assert_eq!(refused(&twice), "reduce[0].places[1].address");
    let host = |c: &mut Config| c.reduces[0].places[1].host = "w9".into();
    assert_eq!(refused(&host), "reduce[0].places[1].host");
    let again = |c: &mut Config| c.reduces.push(c.reduces[0].clone());
    assert_eq!(refused(&again), "reduce[1].index");
}
