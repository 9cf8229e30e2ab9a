//! What the aggregator does with each message (rules 1 to 3): banks, tags, claims, formation.
//!
//! Each slot has two banks; step n lives in bank n mod 2. A bank may be claimed for step n only if
//! the other bank holds step n-1 complete. A formation seeds each slot with a predecessor that is
//! complete and has no data, so that the first claim needs no rule of its own.

use super::message::{Layout, Length, Message, Parts, Sum};
use super::{Allreduce, Rules, State};

/// The aggregator: an epoch, and slots that are only a cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Aggregator {
    pub(crate) epoch: u8,
    phase: Phase,
    slots: Vec<[Bank; 2]>,
}

/// Where the epoch stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    /// Waits for the joins of all members; what each that joined has had, as a bitmap of chunks.
    Forming([Option<u8>; 3]),
    /// Sums. `wanted`: the chunks that a member is to hand over; `closing`: the members that have
    /// every sum.
    Open { wanted: u8, closing: u8 },
}

/// One bank of a slot. `step` is the tag (the epoch and the group are the aggregator's).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Bank {
    Empty,
    Collecting {
        step: i8,
        seen: u8,
        parts: Parts,
        length: Length,
    },
    /// Contributions to it differ in their lengths: there will be no sum.
    Refused {
        step: i8,
    },
    /// Complete. Without a sum: the predecessor that a formation seeded, which all members hold.
    Answered {
        step: i8,
        seen: u8,
        sum: Option<Sum>,
    },
}

impl Bank {
    const fn holds(self, wanted: i8) -> bool {
        match self {
            Self::Empty => false,
            Self::Collecting { step, .. }
            | Self::Refused { step }
            | Self::Answered { step, .. } => step == wanted,
        }
    }

    const fn holds_complete(self, wanted: i8) -> bool {
        matches!(self, Self::Answered { .. }) && self.holds(wanted)
    }
}

impl Aggregator {
    /// Returns an aggregator whose first epoch is open and whose members hold nothing.
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            epoch: 1,
            phase: Phase::Open { wanted: 0, closing: 0 },
            slots: vec![seeded(0); usize::from(layout.window)],
        }
    }

    /// Forgets everything, and comes back as somebody else.
    pub(super) fn restart(&mut self) {
        self.epoch += 1;
        self.phase = Phase::Forming([None; 3]);
        self.slots.fill([Bank::Empty; 2]);
    }
}

impl Allreduce {
    /// Lets `message` arrive at the aggregator.
    pub(super) fn at_aggregator(&self, state: &mut State, message: Message) {
        let current = state.aggregator.epoch;
        match message {
            Message::Contribution { epoch, worker, chunk, length } if epoch == current => {
                if !matches!(state.aggregator.phase, Phase::Open { .. }) {
                    return;
                }
                if self.rules == Rules::BitmapWithoutTag {
                    self.collect_untagged(state, worker, chunk, length);
                } else {
                    self.collect(state, worker, chunk, length);
                    self.tell_who_left(state, worker, chunk);
                }
            }
            Message::HandOver { epoch, chunk, sum } if epoch == current => {
                self.install(state, chunk, sum);
            }
            Message::Join { epoch, worker, holds } if epoch == current => {
                self.join(state, worker, holds);
            }
            Message::Close { epoch, worker } if epoch == current => {
                if let Phase::Open { closing, .. } = &mut state.aggregator.phase {
                    *closing |= 1 << worker;
                    self.send_closed(state);
                }
            }
            _ => {}
        }
    }

    /// Rule 1: equal tag, current; anything else is refused unless it may claim the bank.
    /// Contributions to one chunk agree in their lengths with the first, or the bank is refused for
    /// good.
    fn collect(&self, state: &mut State, worker: u8, chunk: u8, length: Length) {
        let step = signed(self.layout.step(chunk));
        let slot = &mut state.aggregator.slots[usize::from(self.layout.slot(chunk))];
        let [bank, other] = bank_of(slot, step);
        if !bank.holds(step) {
            let may_claim =
                other.holds_complete(step - 1) || self.rules == Rules::ClaimWithoutSuccessor;
            if !may_claim {
                return;
            }
            *bank = Bank::Collecting { step, seen: 0, parts: Parts::default(), length };
        }
        let epoch = state.aggregator.epoch;
        match bank {
            Bank::Collecting { length: first, .. } if self.rules.differ(*first, length) => {
                if self.rules != Rules::TellOddOneAlone {
                    *bank = Bank::Refused { step };
                }
                state.network.send(Message::Mismatch { epoch, worker, chunk });
            }
            Bank::Refused { .. } => {
                state.network.send(Message::Mismatch { epoch, worker, chunk });
            }
            Bank::Collecting { seen, parts, .. } if *seen >> worker & 1 == 0 => {
                *seen |= 1 << worker;
                parts.add(self.layout, worker, chunk);
                if *seen == self.layout.members() {
                    self.complete(state, chunk);
                }
            }
            Bank::Answered { sum: Some(sum), .. } => {
                let sum = *sum;
                self.answer(state, chunk, sum);
            }
            _ => {}
        }
    }

    /// A member contributes nothing after its close, so a round that waits for it ends. It may
    /// still hand over.
    fn tell_who_left(&self, state: &mut State, worker: u8, chunk: u8) {
        let Aggregator { epoch, phase: Phase::Open { wanted, closing }, .. } = state.aggregator
        else {
            return;
        };
        if wanted >> chunk & 1 == 1 && self.rules != Rules::CloseBeforeHandOver {
            return;
        }
        let step = signed(self.layout.step(chunk));
        let slot = &mut state.aggregator.slots[usize::from(self.layout.slot(chunk))];
        let [bank, _] = bank_of(slot, step);
        if let Bank::Collecting { step: of, seen, .. } = *bank
            && of == step
            && closing & !seen != 0
            && self.rules != Rules::CloseIsSilent
        {
            state.network.send(Message::Left { epoch, worker, chunk });
        }
    }

    /// The slot is full: keep the sum and answer with it.
    fn complete(&self, state: &mut State, chunk: u8) {
        let step = signed(self.layout.step(chunk));
        let slot = &mut state.aggregator.slots[usize::from(self.layout.slot(chunk))];
        let [bank, _] = bank_of(slot, step);
        let Bank::Collecting { seen, parts, .. } = *bank else { return };
        let computation = &mut state.computations[usize::from(chunk)];
        *computation += 1;
        let sum = Sum { parts, computation: *computation };
        *bank = Bank::Answered { step, seen, sum: Some(sum) };
        self.answer(state, chunk, sum);
    }

    fn answer(&self, state: &mut State, chunk: u8, sum: Sum) {
        state.network.send(Message::Answer { epoch: state.aggregator.epoch, chunk, sum });
    }

    /// Rule 3: a member hands over a sum. It overrides what was collected, because those who hold
    /// the sum never contribute again; but only if the formation asked for it.
    fn install(&self, state: &mut State, chunk: u8, sum: Sum) {
        let Phase::Open { wanted, .. } = state.aggregator.phase else { return };
        let step = signed(self.layout.step(chunk));
        let slot = &mut state.aggregator.slots[usize::from(self.layout.slot(chunk))];
        let [bank, other] = bank_of(slot, step);
        let is_current = bank.holds(step) || other.holds_complete(step - 1);
        if wanted >> chunk & 1 == 0 || !is_current || bank.holds_complete(step) {
            return;
        }
        *bank = Bank::Answered { step, seen: self.layout.members(), sum: Some(sum) };
        self.answer(state, chunk, sum);
    }

    /// A member joins; when all have, the epoch opens.
    fn join(&self, state: &mut State, worker: u8, holds: u8) {
        let epoch = state.aggregator.epoch;
        match &mut state.aggregator.phase {
            Phase::Forming(joins) => {
                joins[usize::from(worker)] = Some(holds);
                let members = &joins[..usize::from(self.layout.workers)];
                let all_joined = members.iter().all(Option::is_some);
                if all_joined || self.rules == Rules::OpenBeforeAllJoined {
                    let holds: Vec<u8> = members.iter().map(|join| join.unwrap_or(0)).collect();
                    self.open(state, &holds);
                }
            }
            Phase::Open { wanted, .. } => {
                let wanted = *wanted;
                state.network.send(Message::Welcome { epoch, wanted });
                self.send_closed(state);
            }
        }
    }

    /// Ends the group once every member has every sum.
    fn send_closed(&self, state: &mut State) {
        let Aggregator { epoch, phase: Phase::Open { closing, .. }, .. } = state.aggregator else {
            return;
        };
        if closing == self.layout.members() {
            state.network.send(Message::Closed { epoch });
        }
    }

    /// Opens the epoch. Each slot goes on at its frontier: the first step that not every member
    /// has had. What some have and some lack is handed over; what nobody has is summed again. A
    /// join that reports every sum is a close, for its sender may have left the group before.
    fn open(&self, state: &mut State, holds: &[u8]) {
        let (layout, epoch) = (self.layout, state.aggregator.epoch);
        let held_by_all = holds.iter().fold(u8::MAX, |all, &holds| all & holds);
        let held_by_some = holds.iter().fold(0, |some, &holds| some | holds);
        let wanted = held_by_some & !held_by_all;
        for slot in 0..layout.window {
            let is_missing = |&step: &u8| held_by_all >> layout.chunk(slot, step) & 1 == 0;
            let frontier = (0..layout.steps).find(is_missing).unwrap_or(layout.steps);
            state.aggregator.slots[usize::from(slot)] = seeded(frontier);
        }
        let has_all = |&(_, holds): &(u8, &u8)| holds.count_ones() == u32::from(layout.chunks());
        let closing = (0..).zip(holds).filter(has_all).fold(0, |all, (rank, _)| all | 1 << rank);
        state.aggregator.phase = Phase::Open { wanted, closing };
        state.network.send(Message::Welcome { epoch, wanted });
        self.send_closed(state);
    }

    /// The wrong variant of rule 1, as in a slot machine with two versions and no tags: a worker's
    /// bit in one bank is cleared by its next contribution to the other, the first contribution to
    /// a full bank starts it afresh, and the answer carries the chunk of the one that filled it.
    fn collect_untagged(&self, state: &mut State, worker: u8, chunk: u8, length: Length) {
        let step = signed(self.layout.step(chunk));
        let slot = &mut state.aggregator.slots[usize::from(self.layout.slot(chunk))];
        let [bank, other] = bank_of(slot, step);
        match bank {
            Bank::Answered { seen, sum, .. } if *seen >> worker & 1 == 1 => {
                if let Some(sum) = *sum {
                    self.answer(state, chunk, sum);
                }
                return;
            }
            Bank::Collecting { seen, .. } if *seen >> worker & 1 == 1 => return,
            _ => {}
        }
        if let Bank::Collecting { seen, .. } | Bank::Answered { seen, .. } = other {
            *seen &= !(1 << worker);
        }
        let (seen, mut parts) = match *bank {
            Bank::Collecting { seen, parts, .. } => (seen, parts),
            Bank::Answered { seen, .. } => (seen, Parts::default()),
            Bank::Empty | Bank::Refused { .. } => (0, Parts::default()),
        };
        parts.add(self.layout, worker, chunk);
        *bank = Bank::Collecting { step, seen: seen | 1 << worker, parts, length };
        if parts.len(self.layout) == u32::from(self.layout.workers) {
            self.complete(state, chunk);
        }
    }
}

impl Rules {
    fn differ(self, one: Length, other: Length) -> bool {
        one.count != other.count && self != Self::LastWithoutCount
            || one.last != other.last && self != Self::CountWithoutLast
    }
}

/// Returns the bank of `step`, and the other one.
fn bank_of(slot: &mut [Bank; 2], step: i8) -> [&mut Bank; 2] {
    let [even, odd] = slot;
    if step % 2 == 0 { [even, odd] } else { [odd, even] }
}

/// Returns a slot that can be claimed for `frontier` and nothing else.
fn seeded(frontier: u8) -> [Bank; 2] {
    let mut slot = [Bank::Empty; 2];
    let step = signed(frontier) - 1;
    let [bank, _] = bank_of(&mut slot, step);
    *bank = Bank::Answered { step, seen: 0, sum: None };
    slot
}

fn signed(step: u8) -> i8 {
    i8::try_from(step).expect("a model has few steps")
}
