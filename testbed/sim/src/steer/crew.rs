//! The workers, whoever starts them, and their streams.

use weft_agent::rounds::Step;
use weft_control::{CohortId, Halt, Messages, RoundWord};
use weft_controller_engine::BegunRound;
use weft_wire::Rank;

use super::control::address_of;
use super::loss::Absent;
use super::worker::{Model, Worker};
use super::world::{Down, Event, JOB, MS, Up, World};

impl World {
    pub(super) fn look_for_work(&mut self) {
        self.push(20 * MS, Event::Runner);
        let Some(status) = self.status().filter(|status| status.wants_workers) else { return };
        let cohort = CohortId(status.cohort);
        if self.cohort == Some(cohort) || !self.workers.is_empty() {
            return;
        }
        if self.wanted.0 != Some(cohort) {
            self.wanted = (Some(cohort), self.who_is_absent(cohort, status.workers));
        }
        if self.wanted.1 == Absent::All {
            return;
        }
        let model = match (cohort.0, self.disk) {
            (0, _) => Model::FIRST,
            (_, Some(kept)) => kept,
            (_, None) => {
                self.judge.violations.push("a cohort begins without a checkpoint".into());
                return;
            }
        };
        self.judge.check("the disk", model);
        if model.rounds != self.judge.rounds() {
            let (kept, done) = (model.rounds, self.judge.rounds());
            self.judge.violations.push(format!("a cohort begins at {kept}, after {done} rounds"));
        }
        self.cohort = Some(cohort);
        self.forget_dead();
        for (rank, place) in (0u8..).zip(&status.placed) {
            if self.wanted.1 == Absent::One(rank) {
                continue;
            }
            let address = address_of(u8::try_from(*place).unwrap_or(u8::MAX)).into();
            let life = 1 + self.random.next_u64() / 2;
            self.workers.insert(rank, Worker::new(cohort, (life, address), model));
            let after_ns = self.below(20) * MS;
            self.push(after_ns, Event::Hello(rank));
        }
    }

    pub(super) fn attach_worker(&mut self, rank: u8) {
        let Some(worker) = self.workers.get(&rank).filter(|worker| worker.stream.is_none()) else {
            return;
        };
        let Some(controller) = &mut self.controller else {
            let after_ns = 50 * MS + self.below(50) * MS;
            return self.push(after_ns, Event::Hello(rank));
        };
        let (life, from) = (worker.life, Some(worker.address));
        let (cohort, position) = (worker.cohort, worker.rounds.position());
        let id = Rank::new(rank).expect("few workers");
        self.streams += 1;
        let stream = self.streams;
        let worker = self.workers.get_mut(&rank).expect("just seen");
        worker.stream = Some(stream);
        match controller.handle_reducer(JOB, id, (life, from), (cohort, position)) {
            Ok(()) => {}
            Err(refusal) if refusal.problem == "bye" => {
                self.note_moved(rank);
                self.send((false, stream), Event::ToWorker(rank, stream, Down::Over));
            }
            Err(refusal) => {
                self.judge.violations.push(format!("worker {rank} is refused: {refusal}"));
            }
        }
    }

    /// A worker hears that its cohort is over: does its rank belong elsewhere by now?
    fn note_moved(&mut self, rank: u8) {
        let placed = self.status().and_then(|status| status.placed.get(usize::from(rank)).copied());
        let now = placed.and_then(|place| u8::try_from(place).ok()).map(address_of);
        let before = self.workers.get(&rank).map(|worker| worker.address);
        self.seen.moved += u64::from(now.is_some_and(|now| before != Some(now.into())));
    }

    pub(super) fn hear_worker(&mut self, rank: u8, stream: u64, up: Up) {
        let is_current = self.workers.get(&rank).is_some_and(|w| w.stream == Some(stream))
            || self.dead.get(&rank).is_some_and(|dead| dead.stream == Some(stream));
        let id = Rank::new(rank).expect("few workers");
        let (now_ns, is_gone) = (self.now_ns, !self.workers.contains_key(&rank));
        let Some(controller) = &mut self.controller else { return };
        match up {
            Up::Begun(round) if is_current => {
                let begun = BegunRound { round, bytes: 1000, messages: messages() };
                let _ = controller.handle_round(now_ns, JOB, id, begun);
            }
            Up::Position(position) if is_current => {
                let _ = controller.handle_position(now_ns, JOB, id, position);
            }
            Up::Gone if is_gone => controller.handle_reducer_gone(JOB, id),
            _ => {}
        }
    }

    pub(super) fn tell_worker(&mut self, rank: u8, stream: u64, down: Down) {
        let Some(worker) = self.workers.get_mut(&rank).filter(|w| w.stream == Some(stream)) else {
            return;
        };
        let life = worker.life;
        match down {
            Down::Word(RoundWord::Cohort(cohort)) => {
                worker.rounds.handle_attached();
                if !worker.is_welcome && cohort.from_round != worker.model.rounds {
                    let problem = format!("{cohort:?} welcomes a worker at {:?}", worker.model);
                    self.judge.violations.push(problem);
                }
                if !worker.is_welcome {
                    worker.is_welcome = true;
                    self.push(1, Event::Connect(rank, life));
                }
            }
            Down::Word(RoundWord::Order(turn, order)) => worker.rounds.handle_order(turn, order),
            Down::Over => worker.rounds.handle_over(),
        }
        self.report(rank);
    }

    /// A worker opens its session with the box, as often as that takes.
    pub(super) fn connect(&mut self, rank: u8, life: u64) {
        if self.workers.get(&rank).is_none_or(|worker| worker.life != life) {
            return;
        }
        match self.has_lease(rank) {
            true => self.push(1, Event::Ask(rank, life)),
            false => self.push(5 * MS, Event::Connect(rank, life)),
        }
    }

    /// A worker has waited for the sum of a round: it asks the box who it is.
    pub(super) fn ask_box(&mut self, rank: u8, life: u64, round: u64) {
        let is_it = |worker: &Worker| worker.life == life && worker.within == Some(round);
        if self.workers.get(&rank).is_some_and(is_it) {
            self.has_lease(rank);
            let after_ns = 5 * MS + self.below(15) * MS;
            self.push(after_ns, Event::AskBox(rank, life, round));
        }
    }

    /// Says where a worker is, if there is news.
    pub(super) fn report(&mut self, rank: u8) {
        let Some(worker) = self.workers.get_mut(&rank) else { return };
        let Some(stream) = worker.stream else { return };
        // Within a round from its beginning until its sum is in the model.
        let is_between = worker.rounds.next() == worker.model.rounds;
        if let Some(position) = worker.rounds.poll_position(is_between) {
            let is_left = position.halt == Halt::Left;
            if is_left && self.may_kill_worker(rank, 1) {
                return;
            }
            let up = Event::FromWorker(rank, stream, Up::Position(position));
            self.send((true, stream), up);
            if is_left {
                self.may_kill_worker(rank, 2);
            }
        }
    }

    /// Between two rounds: what is next?
    pub(super) fn ask(&mut self, rank: u8, life: u64) {
        let now_ns = self.now_ns;
        let Some(worker) = self.workers.get_mut(&rank).filter(|w| w.life == life) else { return };
        if worker.rounds.next() > worker.model.rounds || worker.is_keeping {
            return;
        }
        if worker.model.rounds >= self.rounds {
            return;
        }
        let stream = worker.stream;
        match worker.rounds.step(now_ns) {
            Step::Begin => {
                let round = worker.rounds.next();
                worker.rounds.handle_begin();
                let compute_ns = MS + self.below(4 * MS);
                self.push(compute_ns, Event::Computed(rank, life));
                if let Some(stream) = stream {
                    let up = Event::FromWorker(rank, stream, Up::Begun(round));
                    self.send((true, stream), up);
                }
            }
            Step::Wait => self.push(2 * MS, Event::Ask(rank, life)),
            Step::Keep => {
                worker.is_keeping = true;
                let mut after_ns = if rank == 0 { MS + self.below(10 * MS) } else { 1 };
                if rank == 0 && self.below(30) == 0 {
                    // Longer than a stop may take.
                    self.seen.slow_keeps += 1;
                    after_ns += 1000 * MS;
                }
                self.push(after_ns, Event::Kept(rank, life));
            }
            Step::End => {
                self.workers.remove(&rank);
                if let Some(stream) = stream {
                    self.send((true, stream), Event::FromWorker(rank, stream, Up::Gone));
                }
            }
        }
        self.report(rank);
    }

    pub(super) fn kept(&mut self, rank: u8, life: u64) {
        let Some(worker) = self.workers.get_mut(&rank).filter(|w| w.life == life) else { return };
        worker.is_keeping = false;
        worker.rounds.handle_kept();
        let model = worker.model;
        if rank == 0 {
            self.judge.check("a checkpoint", model);
            self.disk = Some(model);
        }
        self.report(rank);
        self.push(1, Event::Ask(rank, life));
    }

    pub(super) fn take_sum(&mut self, rank: u8, life: u64, (round, members): (u64, u16)) {
        let Some(worker) = self.workers.get_mut(&rank).filter(|w| w.life == life) else { return };
        if worker.within != Some(round) {
            return;
        }
        worker.within = None;
        worker.model = worker.model.after(round, members);
        let model = worker.model;
        self.judge.check("a worker", model);
        self.report(rank);
        self.push(1, Event::Ask(rank, life));
    }
}

/// The tensors of a round: alike, so that a job that is placed by its skew begins on few hosts, and
/// goes to others once they are known.
fn messages() -> Option<Messages> {
    let mut messages = Messages::default();
    (0..4).for_each(|_| messages.note(250));
    Some(messages)
}
