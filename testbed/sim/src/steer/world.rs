//! The queue and everybody on it. What the daemons do around the engines is here: state is saved
//! before what depends on it is told, streams are in order, a stream that broke is dialled again.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::net::{Ipv4Addr, SocketAddr};

use siphasher::sip::SipHasher13;
use weft_agent::rounds::Step;
use weft_control::{
    CohortId, Command, Event as BoxEvent, Holding, HoldingCommand, HoldingError, JobState,
    NodeHello, RoundPosition, RoundWord,
};
use weft_controller_engine::{
    Action, Config, Controller, HostConfig, NodeConfig, NodeId, PlaceConfig, ReduceConfig,
    ReduceStatus, Saved, Steerer, built_in_policies,
};
use weft_engine::random::SplitMix64;
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::{JobId, Rank};

use super::judge::Judge;
use super::worker::{Model, Worker};
use super::{Report, Seen};

const JOB: JobId = JobId(0);
const NAME: &str = "digits";
const MS: u64 = 1_000_000;

#[derive(Clone, Debug)]
enum Event {
    // To the controller, on a stream of its life.
    FromBox(u64, BoxEvent),
    Hello(u8),
    FromWorker(u8, u64, Up),
    BoxHello,
    // From it.
    ToBox(u64, HoldingCommand),
    ToWorker(u8, u64, Down),
    // By itself.
    Computed(u8, u64),
    Summed(u8, u64, u64),
    Kept(u8, u64),
    Ask(u8, u64),
    Timer,
    Runner,
    Word(Word),
    Kill(bool),
    Back(bool),
}

#[derive(Clone, Copy, Debug)]
enum Up {
    Begun(u64),
    Position(RoundPosition),
    Gone,
}

#[derive(Clone, Copy, Debug)]
enum Down {
    Word(RoundWord),
    Over,
}

#[derive(Clone, Copy, Debug)]
enum Word {
    Pause,
    Resume,
    Resize(u16),
}

/// The box: a name for what it holds.
#[derive(Debug, Default)]
struct AggregatorBox {
    is_up: bool,
    life: u64,
    stream: Option<u64>,
    has_share: bool,
    row: Option<u16>,
}

pub(super) struct World {
    random: SplitMix64,
    log: bool,
    now_ns: u64,
    queue: BTreeMap<(u64, u64), Event>,
    count: u64,
    streams: u64,
    controller: Option<Controller>,
    saved: Saved,
    node: NodeId,
    box_: AggregatorBox,
    workers: BTreeMap<u8, Worker>,
    cohort: Option<CohortId>,
    disk: Option<Model>,
    /// When the last message of each stream arrives: streams are in order.
    last_ns: BTreeMap<(bool, u64), u64>,
    rounds: u64,
    refuses: u32,
    ends_at_ns: u64,
    judge: Judge,
    seen: Seen,
    transcript: SipHasher13,
}

impl World {
    pub(super) fn new(seed: u64, log: bool) -> Self {
        let mut world = Self {
            random: SplitMix64::new(seed ^ 0x0057_ee12),
            log,
            now_ns: 0,
            queue: BTreeMap::new(),
            count: 0,
            streams: 0,
            controller: None,
            saved: Saved::fresh(7),
            node: NodeId(0),
            box_: AggregatorBox { is_up: true, life: 1, ..AggregatorBox::default() },
            workers: BTreeMap::new(),
            cohort: None,
            disk: None,
            last_ns: BTreeMap::new(),
            rounds: 0,
            refuses: 0,
            ends_at_ns: 0,
            judge: Judge::default(),
            seen: Seen::default(),
            transcript: SipHasher13::new(),
        };
        world.rounds = 40 + world.below(60);
        if world.below(4) == 0 {
            world.refuses = 1;
        }
        world.script();
        world
    }

    /// Words and kills, at any moment of the first second; nothing after it.
    fn script(&mut self) {
        self.push(0, Event::Back(true));
        self.push(0, Event::Timer);
        self.push(0, Event::Runner);
        self.push(1, Event::BoxHello);
        let words = 3 + self.below(6);
        for _ in 0..words {
            let word = match self.below(5) {
                0 | 1 => Word::Pause,
                2 => Word::Resume,
                _ => Word::Resize(1 + u16::try_from(self.below(9)).unwrap_or(0)),
            };
            let at_ns = self.below(1000) * MS + self.below(MS);
            self.push(at_ns, Event::Word(word));
        }
        for is_controller in [true, false] {
            for _ in 0..self.below(5) {
                let at_ns = 5 * MS + self.below(1100) * MS + self.below(MS);
                self.push(at_ns, Event::Kill(is_controller));
            }
        }
        // A pause that is left is ended, so that the job can.
        for at_ns in [1400 * MS, 6000 * MS] {
            self.push(at_ns, Event::Word(Word::Resume));
        }
        self.ends_at_ns = 30_000 * MS;
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.next_u64() % limit
    }

    fn push(&mut self, after_ns: u64, event: Event) {
        self.count += 1;
        self.queue.insert((self.now_ns + after_ns, self.count), event);
    }

    /// A message takes its time; those of one stream keep their order.
    fn send(&mut self, stream: (bool, u64), event: Event) {
        let most = if self.below(8) == 0 { 8 * MS } else { MS / 2 };
        let at_ns = self.now_ns + 20_000 + self.below(most);
        let last = self.last_ns.entry(stream).or_default();
        let at_ns = at_ns.max(*last + 1);
        *last = at_ns;
        self.push(at_ns - self.now_ns, event);
    }

    pub(super) fn run(mut self) -> Report {
        let mut steps = 0u64;
        while let Some(((at_ns, _), event)) = self.queue.pop_first() {
            steps += 1;
            if at_ns > self.ends_at_ns || steps > 2_000_000 {
                break;
            }
            self.now_ns = at_ns;
            if self.log {
                println!("{:>12.6} {event:?}", at_ns as f64 / 1e6);
            }
            (at_ns, format!("{event:?}")).hash(&mut self.transcript);
            self.handle(event);
            self.advance();
            if !self.judge.violations.is_empty() || self.is_over() {
                break;
            }
        }
        if self.judge.violations.is_empty() && !self.is_over() {
            let status = self.status();
            let workers: Vec<_> = (self.workers.iter())
                .map(|(rank, w)| (rank, w.cohort, w.rounds.next(), w.within, w.stream))
                .collect();
            self.judge.violations.push(format!(
                "after {} of {} rounds nothing goes on: {status:?}; workers {workers:?}",
                self.judge.rounds(),
                self.rounds
            ));
        }
        Report {
            fingerprint: self.transcript.finish(),
            ended_ns: self.now_ns,
            seen: self.seen,
            violations: self.judge.violations,
        }
    }

    fn is_over(&self) -> bool {
        self.judge.rounds() >= self.rounds
            && self.workers.values().all(|worker| worker.model.rounds >= self.rounds)
    }

    fn status(&self) -> Option<ReduceStatus> {
        let controller = self.controller.as_ref()?;
        controller.status(self.now_ns).reduces.into_iter().next()
    }

    fn state_index(&self) -> usize {
        match self.status().map(|status| status.state) {
            None | Some(JobState::Running) => 0,
            Some(JobState::Pausing) => 1,
            Some(JobState::Paused) => 2,
            Some(JobState::Resizing) => 3,
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Timer => self.push(50 * MS, Event::Timer),
            Event::Back(true) => self.start_controller(),
            Event::Back(false) => {
                self.box_.is_up = true;
                self.box_.life += 1;
                self.push(2 * MS, Event::BoxHello);
            }
            Event::Kill(true) => self.kill_controller(),
            Event::Kill(false) => self.kill_box(),
            Event::BoxHello => self.attach_box(),
            Event::FromBox(stream, event) => {
                if self.box_.stream == Some(stream)
                    && let Some(controller) = &mut self.controller
                {
                    let _ = controller.handle_event(self.now_ns, self.node, JOB, &event);
                }
            }
            Event::ToBox(stream, command) => {
                if self.box_.stream == Some(stream) && self.box_.is_up {
                    let event = self.obey(&command);
                    self.send((true, stream), Event::FromBox(stream, event));
                    self.sum();
                }
            }
            Event::Hello(rank) => self.attach_worker(rank),
            Event::FromWorker(rank, stream, up) => self.hear_worker(rank, stream, up),
            Event::ToWorker(rank, stream, down) => self.tell_worker(rank, stream, down),
            Event::Ask(rank, life) => self.ask(rank, life),
            Event::Computed(rank, life) => {
                if let Some(worker) = self.workers.get_mut(&rank).filter(|w| w.life == life) {
                    let round = worker.rounds.next() - 1;
                    worker.within = Some(round);
                    self.sum();
                }
            }
            Event::Summed(rank, life, round) => self.take_sum(rank, life, round),
            Event::Kept(rank, life) => self.kept(rank, life),
            Event::Runner => self.look_for_work(),
            Event::Word(word) => self.say(word),
        }
    }

    // The controller.

    fn start_controller(&mut self) {
        let host = |name: String| HostConfig { slots: Some(1), ..HostConfig::named(name) };
        let place = |rank: u8| PlaceConfig {
            host: format!("w{rank}"),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 23_000 + u16::from(rank))),
        };
        let config = Config {
            hosts: (0..8).map(|rank| host(format!("w{rank}"))).chain([host("a0".into())]).collect(),
            nodes: vec![NodeConfig { name: "a0".into(), ..NodeConfig::default() }],
            reduces: vec![ReduceConfig {
                name: NAME.into(),
                index: JOB.0,
                aggregator: "a0".into(),
                row: 0,
                places: (0..8).map(place).collect(),
                workers: 2,
                window: 64,
                elements: 256,
                chunks_max: 1 << 20,
                exponent: -20,
                rounds: None,
                overflow: Overflow::Clamp,
                integrity: Integrity::Crc32c,
            }],
            ..Config::default()
        };
        let controller = Controller::new(config, &self.saved, built_in_policies());
        self.controller = Some(controller.expect("the configuration makes sense"));
    }

    fn kill_controller(&mut self) {
        if self.controller.is_none() {
            return;
        }
        self.seen.controllers_killed[self.state_index()] += 1;
        self.controller = None;
        self.break_streams();
        let away_ns = 10 * MS + self.below(400) * MS;
        self.push(away_ns, Event::Back(true));
    }

    fn break_streams(&mut self) {
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
        for rank in lost {
            let after_ns = 5 * MS + self.below(100) * MS;
            self.push(after_ns, Event::Hello(rank));
        }
    }

    /// Lets the controller act: what must be saved is saved before anything is told.
    fn advance(&mut self) {
        let Some(controller) = &mut self.controller else { return };
        controller.handle_timeout(self.now_ns);
        if controller.is_save_urgent()
            && let Some(saved) = controller.poll_saved()
        {
            self.saved = saved;
            // The machine stops right behind it.
            if self.now_ns < 1200 * MS && self.below(40) == 0 {
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

    fn act(&mut self, action: Action) {
        match action {
            Action::Command { command: Command::Holding(command), .. } => {
                if let Some(stream) = self.box_.stream {
                    self.send((false, stream), Event::ToBox(stream, command));
                }
            }
            Action::Rounds { rank, word, .. } => self.tell(rank, Down::Word(word)),
            Action::State { state: JobState::Paused, .. } => {
                self.seen.pauses += 1;
                let boundary = self.status().and_then(|status| status.boundary).unwrap_or(0);
                let at: Vec<(u64, Option<u64>)> =
                    self.workers.values().map(|w| (w.rounds.next(), w.within)).collect();
                self.judge.stands(boundary, &at);
            }
            Action::Resized { outcome: Ok(_), .. } => self.seen.resizes += 1,
            Action::Resized { outcome: Err(_), .. } => self.seen.reverts += 1,
            _ => {}
        }
    }

    fn tell(&mut self, rank: Rank, down: Down) {
        let rank = u8::try_from(rank.index()).unwrap_or(u8::MAX);
        if let Some(stream) = self.workers.get(&rank).and_then(|worker| worker.stream) {
            self.send((false, stream), Event::ToWorker(rank, stream, down));
        }
    }

    fn say(&mut self, word: Word) {
        let now_ns = self.now_ns;
        let Some(controller) = &mut self.controller else {
            // An operator calls again.
            return self.push(100 * MS, Event::Word(word));
        };
        let told = match word {
            Word::Pause => controller.pause_job(now_ns, NAME, Steerer::Operator),
            Word::Resume => controller.resume_job(now_ns, NAME, Steerer::Operator),
            Word::Resize(workers) => controller.resize_job(now_ns, NAME, workers),
        };
        self.seen.refusals += u64::from(told.is_err());
    }

    // The box.

    fn kill_box(&mut self) {
        if !self.box_.is_up {
            return;
        }
        self.seen.boxes_killed[self.state_index()] += 1;
        let life = self.box_.life;
        if self.box_.stream.is_some()
            && let Some(controller) = &mut self.controller
        {
            controller.handle_node_gone(self.now_ns, self.node);
        }
        self.box_ = AggregatorBox { life, ..AggregatorBox::default() };
        let away_ns = 5 * MS + self.below(300) * MS;
        self.push(away_ns, Event::Back(false));
    }

    fn attach_box(&mut self) {
        if !self.box_.is_up || self.box_.stream.is_some() {
            return;
        }
        let Some(controller) = &mut self.controller else {
            return self.push(50 * MS, Event::BoxHello);
        };
        let mut holdings = Vec::new();
        holdings.extend(self.box_.has_share.then_some((JOB, Holding::Job)));
        holdings.extend(self.box_.row.map(|_| (JOB, Holding::Row(0))));
        let hello = NodeHello {
            name: "a0".into(),
            life: self.box_.life,
            roles: Vec::new(),
            holdings,
            bands: None,
        };
        self.node = controller.handle_node(self.now_ns, &hello).expect("it is configured");
        self.streams += 1;
        self.box_.stream = Some(self.streams);
    }

    fn obey(&mut self, command: &HoldingCommand) -> BoxEvent {
        let holding = command.holding();
        let refused = |error| BoxEvent::HoldingRefused { holding, error };
        match command {
            HoldingCommand::InstallJob(_) if self.box_.has_share => refused(HoldingError::Taken),
            HoldingCommand::InstallJob(_) => {
                self.box_.has_share = true;
                BoxEvent::HoldingInstalled { holding }
            }
            HoldingCommand::InstallLease(_) if !self.box_.has_share => {
                refused(HoldingError::UnknownJob)
            }
            HoldingCommand::InstallLease(_) if self.box_.row.is_some() => {
                refused(HoldingError::Taken)
            }
            HoldingCommand::InstallLease(row) if row.members.len() > 4 && self.refuses > 0 => {
                self.refuses -= 1;
                refused(HoldingError::Full)
            }
            HoldingCommand::InstallLease(row) => {
                self.box_.row = u16::try_from(row.members.len()).ok();
                BoxEvent::HoldingInstalled { holding }
            }
            HoldingCommand::RemoveLease { .. } if self.box_.row.is_none() => {
                refused(HoldingError::Missing)
            }
            HoldingCommand::RemoveLease { .. } => {
                self.box_.row = None;
                BoxEvent::HoldingRemoved { holding }
            }
            _ => refused(HoldingError::Role),
        }
    }

    /// A round that all have begun, whose lease is there, ends.
    fn sum(&mut self) {
        let Some(members) = self.box_.row.filter(|_| self.box_.is_up) else { return };
        let Some(cohort) = self.cohort else { return };
        let of_it: Vec<(u8, u64, u64)> = (self.workers.iter())
            .filter(|(_, worker)| worker.cohort == cohort)
            .filter_map(|(rank, worker)| Some((*rank, worker.life, worker.within?)))
            .collect();
        let Some((_, _, round)) = of_it.first().copied() else { return };
        let is_whole = of_it.len() == usize::from(members)
            && of_it.iter().all(|(_, _, within)| *within == round);
        if !is_whole || round < self.judge.rounds() {
            return;
        }
        self.judge.summed(round, cohort, members);
        for (rank, life, round) in of_it {
            let after_ns = 10_000 + self.below(MS);
            self.push(after_ns, Event::Summed(rank, life, round));
        }
    }

    // The workers.

    fn look_for_work(&mut self) {
        self.push(20 * MS, Event::Runner);
        let Some(status) = self.status().filter(|status| status.wants_workers) else { return };
        let cohort = CohortId(status.cohort);
        if self.cohort == Some(cohort) || !self.workers.is_empty() {
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
        for rank in 0..u8::try_from(status.workers).unwrap_or(u8::MAX) {
            let life = 1 + self.random.next_u64() / 2;
            self.workers.insert(rank, Worker::new(cohort, life, model));
            let after_ns = self.below(20) * MS;
            self.push(after_ns, Event::Hello(rank));
        }
    }

    fn attach_worker(&mut self, rank: u8) {
        let Some(worker) = self.workers.get(&rank).filter(|worker| worker.stream.is_none()) else {
            return;
        };
        let Some(controller) = &mut self.controller else {
            let after_ns = 50 * MS + self.below(50) * MS;
            return self.push(after_ns, Event::Hello(rank));
        };
        let (life, cohort, position) = (worker.life, worker.cohort, worker.rounds.position());
        let id = Rank::new(rank).expect("few workers");
        self.streams += 1;
        let stream = self.streams;
        let worker = self.workers.get_mut(&rank).expect("just seen");
        worker.stream = Some(stream);
        match controller.handle_reducer(JOB, id, (life, None), (cohort, position)) {
            Ok(()) => {}
            Err(refusal) if refusal.problem == "bye" => {
                self.send((false, stream), Event::ToWorker(rank, stream, Down::Over));
            }
            Err(refusal) => {
                self.judge.violations.push(format!("worker {rank} is refused: {refusal}"));
            }
        }
    }

    fn hear_worker(&mut self, rank: u8, stream: u64, up: Up) {
        let is_current = self.workers.get(&rank).is_some_and(|w| w.stream == Some(stream));
        let id = Rank::new(rank).expect("few workers");
        let (now_ns, is_gone) = (self.now_ns, !self.workers.contains_key(&rank));
        let Some(controller) = &mut self.controller else { return };
        match up {
            Up::Begun(round) if is_current => {
                let _ = controller.handle_round(now_ns, JOB, id, (round, 1000));
            }
            Up::Position(position) if is_current => {
                let _ = controller.handle_position(now_ns, JOB, id, position);
            }
            Up::Gone if is_gone => controller.handle_reducer_gone(JOB, id),
            _ => {}
        }
    }

    fn tell_worker(&mut self, rank: u8, stream: u64, down: Down) {
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
                    self.push(1, Event::Ask(rank, life));
                }
            }
            Down::Word(RoundWord::Order(turn, order)) => worker.rounds.handle_order(turn, order),
            Down::Over => worker.rounds.handle_over(),
        }
        self.report(rank);
    }

    /// Says where a worker is, if there is news.
    fn report(&mut self, rank: u8) {
        let Some(worker) = self.workers.get_mut(&rank) else { return };
        let Some(stream) = worker.stream else { return };
        // Within a round from its beginning until its sum is in the model.
        let is_between = worker.rounds.next() == worker.model.rounds;
        if let Some(position) = worker.rounds.poll_position(is_between) {
            let up = Event::FromWorker(rank, stream, Up::Position(position));
            self.send((true, stream), up);
        }
    }

    /// Between two rounds: what is next?
    fn ask(&mut self, rank: u8, life: u64) {
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
                let after_ns = if rank == 0 { MS + self.below(10 * MS) } else { 1 };
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

    fn kept(&mut self, rank: u8, life: u64) {
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

    fn take_sum(&mut self, rank: u8, life: u64, round: u64) {
        let members = self.workers.values().filter(|w| Some(w.cohort) == self.cohort).count();
        let Some(worker) = self.workers.get_mut(&rank).filter(|w| w.life == life) else { return };
        if worker.within != Some(round) {
            return;
        }
        worker.within = None;
        worker.model = worker.model.after(round, u16::try_from(members).unwrap_or(u16::MAX));
        let model = worker.model;
        self.judge.check("a worker", model);
        self.report(rank);
        self.push(1, Event::Ask(rank, life));
    }
}
