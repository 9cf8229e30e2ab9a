//! All threads of all processes, each at its place in its script; the gates between their steps;
//! what they leave. A gate takes no time: what is measured is the table.

use weft_engine::role::keys::Presence;
use weft_sim::keys::timed::{Application, Site};
use weft_wire::Nanos;

use super::call::{Call, Wish, number};
use super::process::{Doing, Process, Then, Thread, Times};
use crate::run::factorisation::message::TableSummary;
use crate::run::factorisation::script::{Action, in_calls, script};
use crate::scenario::{CostsSection, FactorisationSection};
use crate::workload::factorisation::Matrix;

/// All threads.
pub(super) struct Crew<'a> {
    section: &'a FactorisationSection,
    matrix: &'a Matrix,
    costs: CostsSection,
    interrupted: &'a dyn Fn() -> bool,
    processes: Vec<Process<'a>>,
    /// Processes of which all threads are at the gate.
    waiting: usize,
    left: Left,
}

/// What threads leave.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) epochs: Vec<(u8, u32, u64)>,
    pub(super) factors: Option<Vec<f32>>,
    pub(super) problems: Vec<String>,
    pub(super) summaries: Vec<TableSummary>,
    /// All threads came to their end.
    pub(super) is_done: bool,
}

/// What comes after a thread has done something.
enum Next {
    /// So much time passes.
    Took(u64),
    /// Somebody wakes it.
    Waits,
}

impl<'a> Crew<'a> {
    pub(super) fn new(
        section: &'a FactorisationSection,
        matrix: &'a Matrix,
        costs: CostsSection,
        interrupted: &'a dyn Fn() -> bool,
    ) -> Self {
        let thread = |node, thread| Thread {
            script: Box::new(script(section, matrix, (node, thread))),
            doing: Doing::Next,
            coming: Vec::new(),
            later: Vec::new(),
            due: None,
            is_over: false,
        };
        let process = |node| Process {
            has_joined: false,
            threads: (0..section.threads).map(|number| thread(node, number)).collect(),
            waiting: 0,
            is_settling: false,
            times: Times::default(),
            begun: Nanos(0),
            carried: [None; 2],
        };
        let processes = (0..section.nodes).map(process).collect();
        let left = Left::default();
        Self { section, matrix, costs, interrupted, processes, waiting: 0, left }
    }

    /// What they have left.
    pub(super) fn left(self) -> Left {
        let Self { processes, mut left, .. } = self;
        left.is_done = processes.iter().flat_map(|it| &it.threads).all(|thread| thread.is_over);
        if !left.is_done && left.problems.is_empty() {
            left.problems.push("threads wait for ever".to_owned());
        }
        left.summaries = processes.iter().map(Process::summary).collect();
        left
    }

    /// A thread does what it has to until time passes or it has to wait.
    fn step(&mut self, thread: usize, site: &mut Site<'_>) -> (Next, bool) {
        let mut has_called = false;
        loop {
            let worker = &mut self.processes[site.place].threads[thread];
            let next = match std::mem::replace(&mut worker.doing, Doing::Next) {
                Doing::Calling(call, then) => {
                    self.go_on(call, then, (thread, &mut has_called), site)
                }
                Doing::Learning(call, entry) => {
                    let mut change = vec![0.0; call.values.len()];
                    self.matrix.descend(entry.value, &call.values, &mut change);
                    let keys = self.matrix.keys(entry);
                    let push = Call::new(Wish::Push, keys, change, site.now);
                    worker.doing = Doing::Calling(push, Then::Nothing);
                    Next::Took(0)
                }
                Doing::Awaiting if worker.coming.iter().all(Call::is_done) => {
                    worker.coming.clear();
                    Next::Took(0)
                }
                Doing::Awaiting => {
                    worker.doing = Doing::Awaiting;
                    has_called |= self.go_on_coming(thread, site);
                    Next::Waits
                }
                Doing::Next => self.begin(thread, &mut has_called, site),
            };
            if !matches!(next, Next::Took(0)) {
                return (next, has_called);
            }
        }
    }

    /// Goes on with a call, until it is done.
    fn go_on(
        &mut self,
        mut call: Call,
        then: Then<'a>,
        (thread, has_called): (usize, &mut bool),
        site: &mut Site<'_>,
    ) -> Next {
        match call.enter(number(thread, 0), site) {
            Ok(is_far) => *has_called |= is_far,
            Err(error) => return self.fail(site.place, &error.to_string()),
        }
        let worker = &mut self.processes[site.place].threads[thread];
        if !call.is_done() {
            worker.doing = Doing::Calling(call, then);
            return Next::Waits;
        }
        match then {
            Then::Nothing => Next::Took(0),
            Then::Learn(entry) => {
                worker.doing = Doing::Learning(call, entry);
                Next::Took(self.costs.entry_ns)
            }
            Then::Keep => {
                let factors = self.left.factors.get_or_insert_default();
                factors.extend(call.values);
                if let Some(keys) = worker.later.pop() {
                    let room = vec![0.0; keys.len() * usize::from(self.section.row_len())];
                    let call = Call::new(Wish::Pull, keys, room, site.now);
                    worker.doing = Doing::Calling(call, Then::Keep);
                }
                Next::Took(0)
            }
        }
    }

    /// Localizes that found no room enter now. True if any has to wait for a frame.
    fn go_on_coming(&mut self, thread: usize, site: &mut Site<'_>) -> bool {
        let coming = &mut self.processes[site.place].threads[thread].coming;
        let mut has_called = false;
        for (place, call) in coming.iter_mut().enumerate().filter(|(_, call)| call.is_held_up()) {
            match call.enter(number(thread, 1 + place), site) {
                Ok(is_far) => has_called |= is_far,
                Err(error) => {
                    self.fail(site.place, &error.to_string());
                    break;
                }
            }
        }
        has_called
    }

    /// Begins what the script has next.
    fn begin(&mut self, thread: usize, has_called: &mut bool, site: &mut Site<'_>) -> Next {
        let row_len = usize::from(self.section.row_len());
        let operations = |keys: &[u64], ns: u64| Next::Took(keys.len() as u64 * ns);
        let each = self.costs.operation_ns;
        let matrix = self.matrix;
        let process = &mut self.processes[site.place];
        let worker = &mut process.threads[thread];
        let call = |wish, keys: Vec<u64>, values| Call::new(wish, keys, values, site.now);
        match worker.script.next() {
            None => {
                worker.is_over = true;
                Next::Waits
            }
            Some(Action::Set(keys)) => {
                let values = keys.iter().flat_map(|key| matrix.first_factor(*key)).collect();
                let took = operations(&keys, each);
                worker.doing = Doing::Calling(call(Wish::Set, keys, values), Then::Nothing);
                took
            }
            Some(Action::Intend(keys, ahead)) => {
                let clock = site.process.clock() + ahead;
                for key in &keys {
                    if let Err(error) = site.process.intend(*key, clock, clock + 1) {
                        return self.fail(site.place, &error.to_string());
                    }
                }
                *has_called = true;
                operations(&keys, each)
            }
            Some(Action::Localize(keys)) => {
                let took = operations(&keys, each);
                worker.doing = Doing::Calling(call(Wish::Localize, keys, vec![]), Then::Nothing);
                took
            }
            Some(Action::Begin(keys)) => {
                let took = operations(&keys, each);
                worker.coming.push(call(Wish::Localize, keys, vec![]));
                *has_called |= self.go_on_coming(thread, site);
                took
            }
            Some(Action::Learn(entry)) => {
                let keys = matrix.keys(entry);
                let room = vec![0.0; keys.len() * row_len];
                worker.doing = Doing::Calling(call(Wish::Pull, keys, room), Then::Learn(entry));
                Next::Took(0)
            }
            Some(Action::Await) => {
                worker.doing = Doing::Awaiting;
                Next::Took(0)
            }
            Some(Action::Pass) => {
                process.waiting += 1;
                if process.waiting == process.threads.len() {
                    *has_called = true;
                    self.arrive(site);
                }
                Next::Waits
            }
            Some(Action::EpochBegins) => {
                if thread == 0 {
                    process.begun = site.now;
                    process.carried[0].get_or_insert(site.carried);
                }
                Next::Took(0)
            }
            Some(Action::EpochEnds(epoch)) => {
                if thread == 0 {
                    process.carried[1] = Some(site.carried);
                    let took_ns = site.now.since(process.begun).0;
                    let node = u8::try_from(site.place).unwrap_or(u8::MAX);
                    self.left.epochs.push((node, epoch, took_ns));
                }
                Next::Took(0)
            }
            Some(Action::Keep) => {
                let keys: Vec<u64> = (0..self.section.key_count().into()).collect();
                worker.later = in_calls(&keys).collect();
                worker.later.reverse();
                let keys = worker.later.pop().unwrap_or_default();
                let room = vec![0.0; keys.len() * row_len];
                worker.doing = Doing::Calling(call(Wish::Pull, keys, room), Then::Keep);
                Next::Took(0)
            }
        }
    }

    /// All threads of a process have done their step: the next clock begins, if steps are clocks.
    fn arrive(&mut self, site: &mut Site<'_>) {
        if self.section.mode.has_copies() {
            site.process.advance_clock();
        }
        self.processes[site.place].is_settling = true;
        self.settle(site);
    }

    /// All that was pushed in earlier clocks is at its rows: the process is at the gate. The last
    /// one opens it.
    fn settle(&mut self, site: &mut Site<'_>) {
        let process = &mut self.processes[site.place];
        if !process.is_settling || site.process.open_adds()[0] > 0 {
            return;
        }
        (process.is_settling, process.waiting) = (false, 0);
        self.waiting += 1;
        if self.waiting == self.processes.len() {
            self.waiting = 0;
            for (place, process) in self.processes.iter_mut().enumerate() {
                process.wake_all(place, site.now, site.next);
            }
        }
    }

    fn fail(&mut self, place: usize, problem: &str) -> Next {
        self.left.problems.push(format!("process {place}: {problem}"));
        Next::Waits
    }
}

impl Application for Crew<'_> {
    fn run(&mut self, thread: usize, site: &mut Site<'_>) -> bool {
        let due = &mut self.processes[site.place].threads[thread].due;
        if due.take_if(|at| *at == site.now).is_none() {
            return false;
        }
        let (next, has_called) = self.step(thread, site);
        if let Next::Took(ns) = next {
            let at = site.now.saturating_add(Nanos(ns));
            self.processes[site.place].threads[thread].wake((site.place, thread), at, site.next);
        }
        has_called
    }

    fn turned(&mut self, site: &mut Site<'_>) -> bool {
        let wakes_at = site.now.saturating_add(Nanos(self.costs.wake_ns));
        let process = &mut self.processes[site.place];
        if !process.has_joined && site.process.presence() == Presence::Present {
            process.has_joined = true;
            process.wake_all(site.place, wakes_at, site.next);
        }
        for (name, value) in std::mem::take(&mut site.heard.done) {
            process.take_done(name, value, site.now);
        }
        for (number, worker) in process.threads.iter_mut().enumerate() {
            if worker.can_go_on() {
                worker.wake((site.place, number), wakes_at, site.next);
            }
        }
        if !site.heard.lost.is_empty() {
            let count = site.heard.lost.len();
            self.fail(site.place, &format!("{count} rows are lost"));
        }
        self.settle(site);
        false
    }

    fn is_over(&self) -> bool {
        let mut threads = self.processes.iter().flat_map(|process| &process.threads);
        !self.left.problems.is_empty()
            || threads.all(|thread| thread.is_over)
            || (self.interrupted)()
    }
}
