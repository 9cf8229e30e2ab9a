//! The world around the rules: who calls what when, what arrives, what must hold.
//!
//! A state is a few numbers: of each process, of each box and of each frame in flight, as they were
//! met first ([`super::tables`]).

use super::directory::Directory;
use super::history::RESTORE_COUNT_MAX;
use super::list::List;
use super::message::{Epoch, Frame, Message, Number, PROCESS_COUNT, Row, Value, ops_of};
use super::process::{Kind, Local, Process};
use super::tables::{Effect, Met, Receiver, number_of};
use super::turn::Turn;
use super::{Action, Keys, Rules};
use crate::model::network::Network;
use crate::model::search::{Lossy, Model};

/// One moment of a table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State<const K: usize> {
    pub(super) processes: [u32; PROCESS_COUNT],
    pub(super) boxes: [u32; K],
    network: Network<u32>,
    /// What is left of the budgets: sets, pushes, pulls, localizes, restarts, deaths, checkpoints,
    /// intents, clocks.
    pub(super) left: [u8; 9],
    /// The processes that do nothing any more, and those that are declared dead, as bitmaps.
    pub(super) crashed: u8,
    pub(super) dead: u8,
    /// Ghost: in which life each restore of a key, or copy that was taken back, set it to what.
    pub(super) restores: [List<(u8, Value), RESTORE_COUNT_MAX>; K],
}

impl<const K: usize> Model for Keys<K> {
    type State = State<K>;
    type Action = Action;

    fn initial(&self) -> State<K> {
        let met = &mut *self.tables.0.borrow_mut();
        let living = (1 << self.processes) - 1;
        let mut process = Process {
            count: 0,
            floors: [[Number::NONE; PROCESS_COUNT]; K],
            keys: [Local { life: 1, living, ..Local::default() }; K],
        };
        let other = number_of(&mut met.processes, process);
        for local in &mut process.keys {
            local.row = Row { epoch: Epoch::born(1), lineage: 1, ..Row::default() };
        }
        let owner = number_of(&mut met.processes, process);
        let directory = Directory::new(living, 0, Epoch::born(1));
        let budgets = [self.sets, self.pushes, self.pulls, self.localizes];
        let (restarts, deaths) = (self.restart_count_max, self.deaths.count);
        let (intents, clocks) = (self.intents.count, self.clocks.count);
        let checkpoints = self.checkpoint_count_max;
        let [sets, pushes, pulls, localizes] = budgets.map(|budget| budget.count);
        State {
            processes: [owner, other, other],
            boxes: [number_of(&mut met.boxes, directory); K],
            network: Network::empty(),
            left: [sets, pushes, pulls, localizes, restarts, deaths, checkpoints, intents, clocks],
            crashed: 0,
            dead: !living,
            restores: [List::default(); K],
        }
    }

    fn steps(&self, state: &State<K>, steps: &mut Vec<(Action, State<K>)>) {
        let met = &mut *self.tables.0.borrow_mut();
        let mut steps = Steps { model: self, state, steps };
        for message in state.network.in_flight() {
            steps.offer_arrival(met, message);
        }
        for process in (0..self.processes).filter(|&process| !state.has_crashed(process)) {
            steps.offer_calls(met, process);
            steps.offer_intents(met, process);
            steps.offer_again(met, process);
            for directory in 0..self.directories {
                steps.offer_join(met, process, directory);
            }
            if self.rules == Rules::LocalizeGivenUp {
                steps.offer_giving_up(met, process);
            }
        }
        for directory in (0..self.directories).filter(|_| state.left[4] > 0) {
            steps.offer(met, Action::Restart(directory), |met, next| {
                next.left[4] -= 1;
                next.begin_life(met, |key| self.directory_of(key) == directory);
            });
        }
        for key in (0..).take(K).filter(|_| state.left[6] > 0) {
            steps.offer(met, Action::Checkpoint(key), |met, next| {
                next.left[6] -= 1;
                next.write_checkpoint(met, self.rules, usize::from(key));
            });
        }
        let living = (0..self.processes).filter(|&process| !state.is_dead(process));
        for process in living.filter(|process| self.deaths.by >> process & 1 == 1) {
            if state.left[5] > 0 {
                steps.offer(met, Action::Declare(process), |met, next| {
                    next.left[5] -= 1;
                    if matches!(self.rules, Rules::ReturnsAsKnown | Rules::ReturnIsWelcome) {
                        next.return_empty(met, self.rules, process);
                        return;
                    }
                    next.dead |= 1 << process;
                    next.begin_life(met, |_| true);
                    if !self.zombies {
                        next.crash(met, process);
                    }
                });
            }
        }
    }

    fn broken_property(&self, state: &State<K>) -> Option<String> {
        let met = &mut *self.tables.0.borrow_mut();
        (0..K).find_map(|key| self.broken_at(met, state, key))
    }

    fn is_done(&self, state: &State<K>) -> bool {
        state.is_done(&self.tables.0.borrow())
    }

    fn describe(&self, state: &State<K>) -> String {
        let met = &*self.tables.0.borrow();
        let mut texts = Vec::new();
        for (rank, process) in state.living(met) {
            for (key, local) in process.keys.iter().enumerate() {
                if local.localize.is_some() {
                    texts.push(format!("p{rank} for k{key}"));
                } else if local.ops.iter().any(|op| op.answered == 0) {
                    texts.push(format!("p{rank} for an answer of k{key}"));
                } else if !local.kept.is_empty() {
                    texts.push(format!("p{rank} with a copy of k{key}"));
                }
            }
        }
        texts.join(", ")
    }
}

impl<const K: usize> Lossy for Keys<K> {
    fn lose_all(&self, state: &State<K>) -> State<K> {
        let mut next = state.clone();
        next.network.lose_all();
        self.settle(&mut self.tables.0.borrow_mut(), None, &mut next);
        next
    }

    fn is_owed(&self, action: &Action) -> bool {
        matches!(action, Action::Arrives(_) | Action::Join(..) | Action::Again(..))
    }
}

impl<const K: usize> Keys<K> {
    /// Lets everybody send whatever its state allows, and every message arrive that changes nobody.
    ///
    /// Both hide no behaviour, because a message may wait in the network as long as it could have
    /// waited in the box; see [`crate::model::network`]. What a receiver sends without changing (a
    /// forwarded frame, an answer again) is then in the network as soon as it can be.
    fn settle(&self, met: &mut Met<K>, before: Option<&State<K>>, state: &mut State<K>) {
        let is_new = |receiver: Receiver| {
            before.is_none_or(|before| before.number(receiver) != state.number(receiver))
        };
        let mut sent: Vec<u32> = Vec::new();
        for rank in (0..self.processes).filter(|&rank| is_new(Receiver::Process(rank))) {
            if !state.has_crashed(rank) {
                sent.extend(met.sent_by_process(self, rank, state.processes[usize::from(rank)]));
            }
        }
        for key in (0..).take(K).filter(|&key| is_new(Receiver::Box(key))) {
            sent.extend(met.sent_by_box(self.rules, key, state.boxes[usize::from(key)]));
        }
        let old = before.map(|before| &before.network);
        let mut pending: Vec<u32> = state.network.in_flight().collect();
        pending.retain(|&message| {
            is_new(met.receivers[message as usize]) || old.is_none_or(|old| !old.contains(message))
        });
        pending.extend(sent.into_iter().filter(|&message| state.network.send(message)));
        let mut spent = Vec::new();
        while let Some(message) = pending.pop() {
            if self.is_spent(met, state, message) {
                spent.push(message);
                continue;
            }
            let number = state.number(met.receivers[message as usize]);
            let effect = met.effect(self, state, message);
            if effect.after == number {
                let sent = effect.sent.iter().copied();
                pending.extend(sent.filter(|&message| state.network.send(message)));
            }
        }
        if !spent.is_empty() {
            state.network.retain(|message| !spent.contains(message));
        }
    }
}

/// Collects the steps that are possible from a state.
struct Steps<'a, const K: usize> {
    model: &'a Keys<K>,
    state: &'a State<K>,
    steps: &'a mut Vec<(Action, State<K>)>,
}

impl<const K: usize> Steps<'_, K> {
    fn offer(
        &mut self,
        met: &mut Met<K>,
        action: Action,
        change: impl FnOnce(&mut Met<K>, &mut State<K>),
    ) {
        let mut next = self.state.clone();
        change(met, &mut next);
        self.model.settle(met, Some(self.state), &mut next);
        if next != *self.state {
            self.steps.push((action, next));
        }
    }

    fn offer_arrival(&mut self, met: &mut Met<K>, message: u32) {
        let Message { key, frame } = met.messages[message as usize];
        let before = self.state.number(met.receivers[message as usize]);
        let effect = met.effect(self.model, self.state, message).clone();
        if effect.after != before {
            let action = Action::Arrives(Message { key, frame });
            let rules = self.model.rules;
            self.offer(met, action, |met, next| {
                next.take(key, frame.receiver(), effect);
                if let (Frame::Claim { from, .. }, Rules::PartIsWhole) = (frame, rules) {
                    next.take_part_for_whole(met, key, from);
                }
            });
        }
        if self.model.rules == Rules::AckBeforeStoring
            && let Frame::Row { from, kept } = frame
        {
            let process = *self.state.process(met, kept.to);
            let mut turn = Turn::new(self.model, process, kept.to, key);
            turn.acknowledge(from, kept.row.epoch);
            let effect = met.effect_of(turn);
            let action = Action::AckedOnly(Message { key, frame });
            self.offer(met, action, |_, next| next.take(key, Some(kept.to), effect));
        }
    }

    fn offer_calls(&mut self, met: &mut Met<K>, process: u8) {
        let model = self.model;
        let calls = [
            (0, Some(Kind::Set), model.sets),
            (1, Some(Kind::Push), model.pushes),
            (2, Some(Kind::Pull), model.pulls),
            (3, None, model.localizes),
        ];
        let keys = u8::try_from(K).expect("few keys");
        for (place, kind, budget) in calls {
            if self.state.left[place] == 0 || budget.by >> process & 1 == 0 {
                continue;
            }
            for key in 0..keys {
                let action = match kind {
                    Some(kind) => Action::Call(process, key, kind),
                    None => Action::Localize(process, key),
                };
                self.offer_call(met, (action, place), kind, process, &[key]);
            }
            if model.batches {
                let action = kind
                    .map_or(Action::LocalizeAll(process), |kind| Action::CallAll(process, kind));
                let keys: Vec<u8> = (0..keys).collect();
                self.offer_call(met, (action, place), kind, process, &keys);
            }
        }
    }

    fn offer_call(
        &mut self,
        met: &mut Met<K>,
        (action, budget): (Action, usize),
        kind: Option<Kind>,
        process: u8,
        keys: &[u8],
    ) {
        let model = self.model;
        self.offer(met, action, |met, next| {
            next.left[budget] -= 1;
            let mut number = Number::NONE;
            for &key in keys {
                let turn = Turn::new(model, *next.process(met, process), process, key);
                let mut turn = Turn { number, ..turn };
                let after = if model.in_flight > 1 { self.state.done(met, key) } else { 0 };
                match kind {
                    Some(kind) => turn.call(kind, after),
                    None => turn.localize(),
                }
                number = if model.directories == 1 { turn.number } else { Number::NONE };
                next.take(key, Some(process), met.effect_of(turn));
            }
        });
    }

    fn offer_intents(&mut self, met: &mut Met<K>, process: u8) {
        let (model, left) = (self.model, self.state.left);
        let budgets = [(7, model.intents), (8, model.clocks)];
        let [may_mean, may_tick] =
            budgets.map(|(place, budget)| left[place] > 0 && budget.by >> process & 1 == 1);
        for key in (0..).take(K) {
            let has_intent = self.state.process(met, process).keys[usize::from(key)].has_intent;
            if has_intent {
                self.offer(met, Action::EndIntent(process, key), |met, next| {
                    next.turn(met, model, (process, key), |turn| turn.end_intent());
                });
            } else if may_mean {
                self.offer(met, Action::Intent(process, key), |met, next| {
                    next.left[7] -= 1;
                    next.turn(met, model, (process, key), |turn| turn.begin_intent());
                });
            }
        }
        if may_tick {
            self.offer(met, Action::Clock(process), |met, next| {
                next.left[8] -= 1;
                for key in (0..).take(K) {
                    let answered = next.answered(met, usize::from(key));
                    next.turn(met, model, (process, key), |turn| turn.begin_clock(answered));
                }
            });
        }
    }

    fn offer_again(&mut self, met: &mut Met<K>, process: u8) {
        let model = self.model;
        if model.open_count_max >= OPEN_COUNT_MAX {
            return;
        }
        for key in (0..).take(K) {
            self.offer(met, Action::Again(process, key), |met, next| {
                next.turn(met, model, (process, key), |turn| turn.try_again());
            });
        }
    }

    /// A step of a wrong variant.
    fn offer_giving_up(&mut self, met: &mut Met<K>, process: u8) {
        for key in (0..).take(K) {
            let mut after = *self.state.process(met, process);
            after.keys[usize::from(key)].localize = Number::NONE;
            self.offer(met, Action::GiveUp(process, key), |met, next| {
                next.processes[usize::from(process)] = number_of(&mut met.processes, after);
            });
        }
    }

    fn offer_join(&mut self, met: &mut Met<K>, process: u8, box_of: u8) {
        let mut after = *self.state.process(met, process);
        let keys = (0..).zip(after.keys.iter_mut().zip(self.state.boxes));
        for (_, (local, number)) in keys.filter(|(key, _)| self.model.directory_of(*key) == box_of)
        {
            let directory = &met.boxes[number as usize];
            if local.life < directory.life && directory.is_living(process) {
                local.join(directory.life, directory.living);
                local.renew_claim();
            }
        }
        let after = number_of(&mut met.processes, after);
        if after != self.state.processes[usize::from(process)] {
            self.offer(met, Action::Join(process, box_of), |_, next| {
                next.processes[usize::from(process)] = after;
            });
        }
    }
}

impl<const K: usize> State<K> {
    pub(super) const fn has_crashed(&self, process: u8) -> bool {
        self.crashed >> process & 1 == 1
    }

    pub(super) const fn is_dead(&self, process: u8) -> bool {
        self.dead >> process & 1 == 1
    }

    pub(super) fn process<'a>(&self, met: &'a Met<K>, process: u8) -> &'a Process<K> {
        &met.processes[self.processes[usize::from(process)] as usize]
    }

    pub(super) fn living<'a>(&self, met: &'a Met<K>) -> impl Iterator<Item = (u8, &'a Process<K>)> {
        let processes = self.processes.map(|number| &met.processes[number as usize]);
        let dead = self.dead;
        (0..).zip(processes).filter(move |(rank, _)| dead >> rank & 1 == 0)
    }

    const fn number(&self, receiver: Receiver) -> u32 {
        match receiver {
            Receiver::Process(process) => self.processes[process as usize],
            Receiver::Box(key) => self.boxes[key as usize],
        }
    }

    fn turn(
        &mut self,
        met: &mut Met<K>,
        model: &Keys<K>,
        (process, key): (u8, u8),
        step: impl FnOnce(&mut Turn<'_, K>),
    ) {
        let mut turn = Turn::new(model, *self.process(met, process), process, key);
        step(&mut turn);
        let effect = met.effect_of(turn);
        self.take(key, Some(process), effect);
    }

    /// The pushes to `key` that are answered, as a bitmap.
    fn answered(&self, met: &Met<K>, key: usize) -> u16 {
        let mut answered = 0;
        for (rank, process) in self.living(met) {
            let ops = process.keys[key].ops.iter().zip(ops_of(rank));
            for (_, (_, op)) in ops.filter(|(item, _)| item.kind == Kind::Push && item.answered > 0)
            {
                answered |= 1 << op;
            }
        }
        answered
    }

    /// The operations on `key` that are done, as a bitmap.
    fn done(&self, met: &Met<K>, key: u8) -> u16 {
        let ops = (0..).zip(&self.processes).flat_map(|(rank, number)| {
            let process = &met.processes[*number as usize];
            process.keys[usize::from(key)].ops.iter().zip(ops_of(rank))
        });
        let done = ops.filter(|(item, _)| item.answered > 0);
        done.fold(0, |done, (_, (_, op))| done | 1 << op)
    }

    /// Takes what happened to `receiver`, or to the box of `key`.
    fn take(&mut self, key: u8, receiver: Option<u8>, effect: Effect) {
        match receiver {
            Some(process) => self.processes[usize::from(process)] = effect.after,
            None => self.boxes[usize::from(key)] = effect.after,
        }
        if let Some(value) = effect.restored {
            // A dead process that knows nothing of a later life may do this after it.
            let restores = &mut self.restores[usize::from(key)];
            restores.push(value);
            restores.as_mut_slice().sort_unstable();
        }
        for message in effect.sent {
            self.network.send(message);
        }
    }

    pub(super) fn is_done(&self, met: &Met<K>) -> bool {
        self.living(met).all(|(_, process)| process.keys.iter().all(Local::is_idle))
    }
}

/// Nobody has as many numbers open.
pub(super) const OPEN_COUNT_MAX: usize = 15;
