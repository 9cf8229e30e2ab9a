//! What must hold in every state of a table, and which frames no longer matter.

use super::history::History;
use super::message::{Frame, Kept, Message, To, Value, op_name, ops_of};
use super::process::Kind;
use super::tables::{Met, Receiver};
use super::world::State;
use super::{Keys, Rules};

impl<const K: usize> Keys<K> {
    /// True if the message can do nothing any more, whatever else happens.
    pub(super) fn is_spent(&self, met: &Met<K>, state: &State<K>, message: u32) -> bool {
        let Message { key, frame } = met.messages[message as usize];
        let directory = &met.boxes[state.boxes[usize::from(key)] as usize];
        let local = |process: u8| &state.process(met, process).keys[usize::from(key)];
        if matches!(met.receivers[message as usize], Receiver::Process(to) if state.has_crashed(to))
        {
            return true;
        }
        match frame {
            Frame::Answer { to, number, .. } => {
                !local(to).flights.iter().any(|flight| flight.number == number)
            }
            Frame::Stale { to, number } => {
                local(to).localize != number
                    && !local(to).flights.iter().any(|flight| flight.number == number)
            }
            Frame::Ack { to, epoch }
            | Frame::Void { to, epoch }
            | Frame::TakeBack { to, epoch, .. } => {
                !local(to).kept.iter().any(|kept| kept.row.epoch == epoch)
            }
            Frame::Restore { to, life, .. } => {
                let is_known = local(to).restored == life && self.rules != Rules::RestoredAgain;
                local(to).life > life || is_known
            }
            Frame::AckAtBox { life, from, .. } => {
                life < directory.life || !directory.is_living(from)
            }
            Frame::Claim { life, from, claim } => {
                let is_news = claim.kept.iter().any(|&(to, _)| !directory.is_living(to))
                    || directory.owner.is_none_or(|(_, epoch)| epoch < claim.held);
                let is_old = life < directory.life
                    || directory.is_settled && !is_news && self.rules != Rules::LastWord;
                !directory.is_living(from) || is_old && self.rules != Rules::ClaimsOfAnyLife
            }
            Frame::Access { to: To::Box { life, .. }, from, .. }
            | Frame::Localize { to: To::Box { life, .. }, from, .. } => {
                life < directory.life || !directory.is_living(from)
            }
            Frame::Low { to, from, low } => {
                let floors = state.process(met, to).floors[self.floor_index(key)];
                floors[usize::from(from)] >= low
            }
            Frame::Access { to: To::Process(to), from, .. }
            | Frame::Localize { to: To::Process(to), from, .. }
            | Frame::Row { from, kept: Kept { to, .. } } => {
                local(to).living >> from & 1 == 0 && self.rules != Rules::NotFenced
            }
        }
    }

    pub(super) fn broken_at(
        &self,
        met: &mut Met<K>,
        state: &State<K>,
        key: usize,
    ) -> Option<String> {
        let mut holders = Vec::new();
        let mut is_anywhere = false;
        for (rank, process) in state.living(met) {
            let local = &process.keys[key];
            if local.row.epoch.is_some() {
                holders.push(rank);
                if let Some(op) = local.row.value.doubled() {
                    return Some(format!("the push {} is in k{key} twice", op_name(op)));
                }
            }
            is_anywhere |= local.row.epoch.is_some() || !local.kept.is_empty();
        }
        if let [first, second, ..] = holders[..] {
            return Some(format!("p{first} and p{second} both hold k{key}"));
        }
        let nobody_died = state.left[5] == self.deaths.count;
        let is_settled = met.boxes[state.boxes[key] as usize].is_settled;
        if !is_anywhere && (nobody_died || is_settled) {
            return Some(format!("k{key} is lost"));
        }
        if let Some(broken) = self.broken_copy(met, state, key) {
            return Some(broken);
        }
        let in_order = self.in_flight == 1 || self.rules == Rules::LanesInOrder;
        let history = state.history(met, key, in_order);
        let judged = met.judged.entry(history);
        let is_consistent = *judged.or_insert_with(|| history.is_consistent());
        (!is_consistent).then(|| format!("k{key} is not consistent: {}", history.text()))
    }
}

impl<const K: usize> Keys<K> {
    /// What the pulls of copies must have: the own pushes, all that an earlier pull had, and what
    /// the bound says. A restore goes back before what copies have seen; a set would hide pushes.
    fn broken_copy(&self, met: &Met<K>, state: &State<K>, key: usize) -> Option<String> {
        if self.intents.count == 0 || self.sets.count > 0 || !state.restores[key].is_empty() {
            return None;
        }
        state.living(met).find_map(|(rank, process)| {
            let (mut own, mut seen) = (0, 0);
            let ops = &process.keys[key].ops;
            ops.iter().zip(ops_of(rank)).find_map(|(item, (_, op))| {
                let name = op_name(op);
                if item.kind != Kind::Pull {
                    own |= 1 << op;
                    return None;
                }
                let pushes = item.result.pushes();
                if item.answered == 0 {
                    return None;
                }
                if item.is_copy && own & !pushes != 0 {
                    return Some(format!("{name} pulls a copy of k{key} without an own push"));
                }
                if item.is_late {
                    return Some(format!("{name} pulls a copy of k{key} that is too old"));
                }
                if seen & !pushes != 0 {
                    return Some(format!("{name} pulls an older k{key} than before"));
                }
                seen |= pushes;
                None
            })
        })
    }
}

impl<const K: usize> State<K> {
    fn history(&self, met: &Met<K>, key: usize, in_order: bool) -> History {
        let mut ops = [0, 1, 2].map(|process| self.process(met, process).keys[key].ops);
        for (rank, ops) in (0..).zip(&mut ops).filter(|(rank, _)| self.is_dead(*rank)) {
            let _: u8 = rank;
            for op in ops.as_mut_slice() {
                op.answered = 0;
                op.result = Value::default();
            }
        }
        // A process's operations keep their order, unless its accesses may overtake each other.
        if in_order {
            for (rank, ops) in (0_u8..).zip(&mut ops) {
                for (index, (op, (_, name))) in
                    ops.as_mut_slice().iter_mut().zip(ops_of(rank)).enumerate()
                {
                    op.after = ((1 << index) - 1) << (name - index);
                }
            }
        }
        // Copies have their own rules.
        for op in ops.iter_mut().flat_map(|ops| ops.as_mut_slice()).filter(|op| op.is_copy) {
            (op.answered, op.result) = (0, Value::default());
        }
        let mut last = None;
        if self.is_done(met) {
            let mut rows = self.living(met).map(|(_, process)| process.keys[key].row);
            last = rows.find(|row| row.epoch.is_some()).map(|row| row.value);
        }
        History { ops, dead: self.dead, restores: self.restores[key], last }
    }
}
