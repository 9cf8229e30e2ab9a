//! The queue and everybody on it. What the daemons do around the engines is here: state is saved
//! before what depends on it is told, streams are in order, a stream that broke is dialled again.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use siphasher::sip::SipHasher13;
use weft_control::{
    CohortId, Event as BoxEvent, HoldingCommand, JobState, RoundOrder, RoundPosition, RoundWord,
};
use weft_controller_engine::{Controller, NodeId, Placement, ReduceStatus, Saved};
use weft_engine::random::SplitMix64;
use weft_wire::JobId;

use super::aggregator::AggregatorBox;
use super::aggregator::{answered_step, told_step};
use super::judge::Judge;
use super::loss::{Absent, Dead, Dies};
use super::worker::{Model, Worker};
use super::{Report, Seen};

pub(super) const JOB: JobId = JobId(0);
pub(super) const NAME: &str = "digits";
pub(super) const MS: u64 = 1_000_000;
/// How long a worker waits for a sum before it asks the box who it is.
const SILENCE_NS: u64 = 10 * MS;

#[derive(Clone, Debug)]
pub(super) enum Event {
    // To the controller, on a stream of its life.
    FromBox(u64, BoxEvent),
    Hello(u8),
    FromWorker(u8, u64, Up),
    BoxHello,
    // From it.
    ToBox(u64, HoldingCommand),
    Settled(u64),
    ToWorker(u8, u64, Down),
    // By itself.
    Connect(u8, u64),
    Computed(u8, u64),
    AskBox(u8, u64, u64),
    Summed(u8, u64, (u64, u16)),
    Kept(u8, u64),
    Ask(u8, u64),
    Timer,
    Runner,
    Word(Word),
    Kill(bool),
    KillWorker,
    /// Whoever asks for the job while one of its workers is lost asks again.
    Press(u64),
    Back(bool),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Up {
    Begun(u64),
    Position(RoundPosition),
    Gone,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Down {
    Word(RoundWord),
    Over,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    Pause,
    Resume,
    Resize(u16),
}

/// The one that a seed's job has.
const fn placement(seed: u64) -> Placement {
    match seed % 4 {
        0 => Placement::Order,
        1 => Placement::Consolidate,
        2 => Placement::Fragments,
        _ => Placement::Skew,
    }
}

pub(super) struct World {
    pub(super) random: SplitMix64,
    pub(super) log: bool,
    pub(super) now_ns: u64,
    pub(super) queue: BTreeMap<(u64, u64), Event>,
    pub(super) count: u64,
    pub(super) streams: u64,
    pub(super) controller: Option<Controller>,
    pub(super) saved: Saved,
    pub(super) node: NodeId,
    pub(super) box_: AggregatorBox,
    pub(super) workers: BTreeMap<u8, Worker>,
    pub(super) cohort: Option<CohortId>,
    /// The last cohort that workers were wanted for, and who does not come of it.
    pub(super) wanted: (Option<CohortId>, Absent),
    /// Workers that were killed, of the cohort that there is.
    pub(super) dead: BTreeMap<u8, Dead>,
    /// One of them is to die while it leaves.
    pub(super) dies: Dies,
    /// The last cohort that did not begin in time.
    pub(super) overdue: Option<CohortId>,
    /// Whoever asked has heard that the job has lost a worker; it does not go on.
    pub(super) is_lost: bool,
    /// The last word, when it was said, and whether it was heeded.
    pub(super) said: Option<(u64, Word, bool)>,
    pub(super) disk: Option<Model>,
    /// When the last message of each stream arrives: streams are in order.
    pub(super) last_ns: BTreeMap<(bool, u64), u64>,
    pub(super) rounds: u64,
    /// Where its workers go, which moves ranks from host to host.
    pub(super) placement: Placement,
    pub(super) refuses: u32,
    pub(super) ends_at_ns: u64,
    /// The order that workers were given last, with its number.
    pub(super) order: (u32, RoundOrder),
    pub(super) judge: Judge,
    pub(super) seen: Seen,
    pub(super) transcript: SipHasher13,
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
            wanted: (None, Absent::Nobody),
            dead: BTreeMap::new(),
            dies: Dies::Never,
            overdue: None,
            is_lost: false,
            said: None,
            disk: None,
            last_ns: BTreeMap::new(),
            rounds: 0,
            placement: placement(seed),
            refuses: 0,
            ends_at_ns: 0,
            order: (0, RoundOrder::Go),
            judge: Judge::default(),
            seen: Seen::default(),
            transcript: SipHasher13::new(),
        };
        world.rounds = 60 + world.below(80);
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
        let words = 4 + self.below(6);
        for _ in 0..words {
            let at_ns = self.below(1000) * MS + self.below(MS);
            match self.below(8) {
                7 => {
                    // Two operators at the same instant.
                    let widths = [0; 2].map(|_| 1 + u16::try_from(self.below(8)).unwrap_or(0));
                    let is_pause = self.below(2) == 0;
                    for workers in widths {
                        let word = if is_pause { Word::Pause } else { Word::Resize(workers) };
                        self.push(at_ns, Event::Word(word));
                    }
                }
                0 | 1 => self.script_pause(at_ns),
                2 => self.push(at_ns, Event::Word(Word::Resume)),
                3 => {
                    // Words on each other's heels: answers to one cross the next on their way.
                    self.push(at_ns, Event::Word(Word::Pause));
                    let at_ns = at_ns + self.below(10 * MS);
                    self.push(at_ns, Event::Word(Word::Resume));
                    let at_ns = at_ns + self.below(10 * MS);
                    self.script_pause(at_ns);
                }
                _ => {
                    let workers = 1 + u16::try_from(self.below(9)).unwrap_or(0);
                    self.push(at_ns, Event::Word(Word::Resize(workers)));
                }
            }
        }
        for is_controller in [true, false] {
            for _ in 0..self.below(5) {
                let at_ns = 5 * MS + self.below(1100) * MS + self.below(MS);
                self.push(at_ns, Event::Kill(is_controller));
            }
        }
        self.script_loss();
        // A pause that is left is ended, so that the job can.
        for at_ns in [1400 * MS, 6000 * MS] {
            self.push(at_ns, Event::Word(Word::Resume));
        }
        self.ends_at_ns = 30_000 * MS;
    }

    /// A pause, which mostly somebody ends before long.
    fn script_pause(&mut self, at_ns: u64) {
        self.push(at_ns, Event::Word(Word::Pause));
        if self.below(4) > 0 {
            let until_ns = at_ns + self.below(120) * MS;
            self.push(until_ns, Event::Word(Word::Resume));
        }
    }

    /// Whether things still die.
    pub(super) const fn is_wild(&self) -> bool {
        self.now_ns < 1200 * MS
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.random.next_u64() % limit
    }

    pub(super) fn push(&mut self, after_ns: u64, event: Event) {
        self.count += 1;
        self.queue.insert((self.now_ns + after_ns, self.count), event);
    }

    /// A message takes its time; those of one stream keep their order.
    pub(super) fn send(&mut self, stream: (bool, u64), event: Event) {
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
        self.is_lost
            || self.judge.rounds() >= self.rounds
                && self.workers.values().all(|worker| worker.model.rounds >= self.rounds)
    }

    pub(super) fn status(&self) -> Option<ReduceStatus> {
        let controller = self.controller.as_ref()?;
        controller.status(self.now_ns).reduces.into_iter().next()
    }

    pub(super) fn state_index(&self) -> usize {
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
            Event::KillWorker => self.kill_any_worker(),
            Event::Press(count) => self.press(count),
            Event::BoxHello => self.attach_box(),
            Event::FromBox(stream, event) => {
                if self.box_.stream == Some(stream)
                    && let Some(controller) = &mut self.controller
                {
                    let _ = controller.handle_event(self.now_ns, self.node, JOB, &event);
                    if let Some(step) = answered_step(&event) {
                        self.may_kill_box(step, 2);
                    }
                }
            }
            Event::ToBox(stream, command) => {
                let step = told_step(&command);
                if self.box_.stream == Some(stream)
                    && self.box_.is_up
                    && !self.may_kill_box(step, 0)
                {
                    let event = self.obey(&command);
                    if !self.may_kill_box(step, 1) {
                        self.send((true, stream), Event::FromBox(stream, event));
                        self.sum();
                    }
                }
            }
            Event::Settled(stream) => {
                self.box_.is_settled |= self.box_.stream == Some(stream) && self.box_.is_up;
            }
            Event::Connect(rank, life) => self.connect(rank, life),
            Event::AskBox(rank, life, round) => self.ask_box(rank, life, round),
            Event::Hello(rank) => self.attach_worker(rank),
            Event::FromWorker(rank, stream, up) => self.hear_worker(rank, stream, up),
            Event::ToWorker(rank, stream, down) => self.tell_worker(rank, stream, down),
            Event::Ask(rank, life) => self.ask(rank, life),
            Event::Computed(rank, life) => {
                if let Some(worker) = self.workers.get_mut(&rank).filter(|w| w.life == life) {
                    let round = worker.rounds.next() - 1;
                    worker.within = Some(round);
                    self.push(SILENCE_NS, Event::AskBox(rank, life, round));
                    self.sum();
                }
            }
            Event::Summed(rank, life, sum) => self.take_sum(rank, life, sum),
            Event::Kept(rank, life) => self.kept(rank, life),
            Event::Runner => self.look_for_work(),
            Event::Word(word) => self.say(word),
        }
    }
}
