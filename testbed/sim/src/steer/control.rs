//! The controller's lives, what it wants done, and what an operator says to it.

use std::net::{Ipv4Addr, SocketAddr};

use weft_control::{Command, JobState, RoundOrder, RoundWord};
use weft_controller_engine::{
    Action, Config, Controller, HostConfig, NodeConfig, PlaceConfig, ReduceConfig, Steerer,
    built_in_policies,
};
use weft_wire::Rank;
use weft_wire::hello::{Integrity, Overflow};

use super::worker::Worker;
use super::world::{Down, Event, JOB, MS, NAME, Word, World};

/// The host of each place: one has half of them.
const PLACES: [&str; 8] = ["w0", "w1", "w2", "w0", "w3", "w0", "w4", "w0"];

/// Where the worker of a place calls from.
pub(super) const fn address_of(place: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, place + 1)
}

impl World {
    pub(super) fn start_controller(&mut self) {
        let host = |name: &str| HostConfig { slots: Some(4), ..HostConfig::named(name.to_owned()) };
        let place = |(index, host): (u8, &&str)| PlaceConfig {
            host: (*host).into(),
            address: SocketAddr::from((address_of(index), 23_000)),
        };
        let config = Config {
            hosts: ["w0", "w1", "w2", "w3", "w4", "a0"].map(host).into(),
            nodes: vec![NodeConfig { name: "a0".into(), ..NodeConfig::default() }],
            reduces: vec![ReduceConfig {
                name: NAME.into(),
                index: JOB.0,
                aggregator: "a0".into(),
                row: 0,
                places: (0..).zip(&PLACES).map(place).collect(),
                workers: 2,
                window: 64,
                elements: 256,
                chunks_max: 1 << 20,
                exponent: -20,
                // Some jobs say how many they have.
                rounds: Some(self.rounds).filter(|rounds| rounds % 2 == 0),
                overflow: Overflow::Clamp,
                placement: self.placement,
                pack_limit: 0.4,
                begin_timeout_s: 0.6,
                stop_timeout_s: 0.8,
                integrity: Integrity::Crc32c,
            }],
            ..Config::default()
        };
        let controller = Controller::new(config, &self.saved, built_in_policies());
        self.controller = Some(controller.expect("the configuration makes sense"));
        // It counts its orders anew.
        self.order = (0, RoundOrder::Go);
    }

    pub(super) fn kill_controller(&mut self) {
        if self.controller.is_none() {
            return;
        }
        self.seen.controllers_killed[self.state_index()] += 1;
        self.controller = None;
        self.break_streams();
        let away_ns = 10 * MS + self.below(400) * MS;
        self.push(away_ns, Event::Back(true));
    }

    pub(super) fn break_streams(&mut self) {
        if self.box_.stream.take().is_some() {
            self.push(20 * MS, Event::BoxHello);
        }
        let now_ns = self.now_ns;
        let mut lost = Vec::new();
        for (rank, worker) in &mut self.workers {
            if worker.stream.take().is_some() {
                worker.rounds.handle_lost(now_ns);
                lost.push(*rank);
            }
        }
        self.dead.values_mut().for_each(|dead| dead.stream = None);
        for rank in lost {
            let after_ns = 5 * MS + self.below(100) * MS;
            self.push(after_ns, Event::Hello(rank));
        }
    }

    /// Lets the controller act: what must be saved is saved before anything is told.
    pub(super) fn advance(&mut self) {
        let Some(controller) = &mut self.controller else { return };
        controller.handle_timeout(self.now_ns);
        if controller.is_save_urgent()
            && let Some(saved) = controller.poll_saved()
        {
            // The machine stops before it is on disk, or right behind.
            let stops = if self.is_wild() { self.below(60) } else { u64::MAX };
            if stops == 0 {
                self.seen.killed_at_save[0] += 1;
                return self.kill_controller();
            }
            self.saved = saved;
            if stops == 1 {
                self.seen.killed_at_save[1] += 1;
                return self.kill_controller();
            }
        }
        let mut actions = Vec::new();
        if let Some(controller) = &mut self.controller {
            while let Some(action) = controller.poll_action() {
                actions.push(action);
            }
        }
        for action in actions {
            self.act(action);
        }
    }

    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Command { command: Command::Holding(command), .. } => {
                if let Some(stream) = self.box_.stream {
                    self.send((false, stream), Event::ToBox(stream, command));
                }
            }
            Action::Settled { .. } => {
                if let Some(stream) = self.box_.stream {
                    self.send((false, stream), Event::Settled(stream));
                }
            }
            Action::Rounds { rank, word, .. } => {
                if let RoundWord::Order(turn, order) = word {
                    self.check_order(turn, order);
                }
                self.tell(rank, Down::Word(word));
            }
            Action::State { state: JobState::Paused, .. } => {
                self.seen.pauses += 1;
                let boundary = self.status().and_then(|status| status.boundary).unwrap_or(0);
                let at: Vec<(u64, Option<u64>)> =
                    self.workers.values().map(|w| (w.rounds.next(), w.within)).collect();
                self.judge.stands(boundary, &at);
            }
            Action::Unpaused { problem, .. } => self.note_given_up(&problem),
            Action::Resized { outcome: Ok(_), .. } => self.seen.resizes += 1,
            Action::Resized { outcome: Err(problem), .. } if problem.contains("refuses") => {
                self.seen.reverts += 1;
            }
            Action::Resized { outcome: Err(problem), .. } if problem.contains("not begun") => {
                self.note_overdue();
                let workers = 1 + u16::try_from(self.below(8)).unwrap_or(0);
                self.push(20 * MS, Event::Word(Word::Resize(workers)));
            }
            Action::Resized { outcome: Err(problem), .. } => self.note_given_up(&problem),
            _ => {}
        }
    }

    /// A boundary is told when all have answered to the order to hold, and is beyond nobody.
    fn check_order(&mut self, turn: u32, order: RoundOrder) {
        let (before, was) = std::mem::replace(&mut self.order, (turn, order));
        let RoundOrder::Stop(boundary) = order else { return };
        let known = self.status().map_or(0, |status| status.next_round);
        if boundary < known {
            let problem = format!("all are to stop before {boundary}, and one has begun {known}");
            self.judge.violations.push(problem);
        }
        if was == RoundOrder::Hold && before != turn {
            let heard = |worker: &Worker| worker.rounds.position().turn >= before;
            if !self.workers.values().all(heard) {
                let problem = format!("order {turn} comes before all have heard order {before}");
                self.judge.violations.push(problem);
            }
        }
    }

    pub(super) fn tell(&mut self, rank: Rank, down: Down) {
        let rank = u8::try_from(rank.index()).unwrap_or(u8::MAX);
        if let Some(stream) = self.workers.get(&rank).and_then(|worker| worker.stream) {
            self.send((false, stream), Event::ToWorker(rank, stream, down));
        }
    }

    pub(super) fn say(&mut self, word: Word) {
        let now_ns = self.now_ns;
        let Some(controller) = &mut self.controller else {
            // An operator calls again.
            return self.push(100 * MS, Event::Word(word));
        };
        let told = match word {
            Word::Pause => controller.pause_job(now_ns, NAME, Steerer::Operator),
            Word::Resume => controller.resume_job(now_ns, NAME, Steerer::Operator),
            Word::Resize(workers) => controller.resize_job(now_ns, NAME, workers.into()),
        };
        self.seen.refusals += u64::from(told.is_err());
        self.note_ending(told.as_ref().err());
        // Two operators at once: one word of a kind counts.
        let is_heeded = told.is_ok();
        let (at_ns, before, was_heeded) =
            self.said.replace((now_ns, word, is_heeded)).unwrap_or((u64::MAX, word, false));
        if at_ns == now_ns && core::mem::discriminant(&before) == core::mem::discriminant(&word) {
            self.seen.races += u64::from(was_heeded != is_heeded);
            if was_heeded && is_heeded {
                self.judge.violations.push(format!("{before:?} and {word:?} are both heeded"));
            }
        }
    }
}
