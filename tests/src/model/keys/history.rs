//! Whether a history is sequentially consistent for one key.
//!
//! A history is what each process called, in its order, with what its pulls brought. It is
//! consistent if there is one order of all operations in which each comes after those that it must
//! come after (its process's earlier ones, or fewer), and in which every pull brings what the sets
//! and pushes before it make. Each operation has one place in
//! that order, so one that counts twice, or not at all, is found too, once a pull shows it; the row
//! that is there in the end counts as a last pull.
//!
//! A restore is an operation of the home that sets the row to an old value, after all that older
//! rows have answered and before all that the restored one answers. What was not answered by an
//! older row may have been seen before the restore and be run again after it. A dead process's
//! operations may or may not be in.

use super::list::List;
use super::message::{OP_COUNT_MAX, PROCESS_COUNT, Value, ops_of};
use super::process::{Kind, Op};

/// How often a key can be restored in a model.
pub const RESTORE_COUNT_MAX: usize = 3;

/// All that happened to one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct History {
    /// Per process its operations, in its order.
    pub ops: [List<Op, OP_COUNT_MAX>; PROCESS_COUNT],
    /// The processes that are dead, as a bitmap.
    pub dead: u8,
    /// What each restore set the row to, and in which life.
    pub restores: List<(u8, Value), RESTORE_COUNT_MAX>,
    /// The row, if nothing is open any more.
    pub last: Option<Value>,
}

/// A prefix of an order.
#[derive(Clone, Copy)]
struct Place {
    /// The operations that are placed, as a bitmap.
    placed: u16,
    /// How many restores are.
    restores: usize,
    /// The lineage of the row that answers here.
    life: u8,
    value: Value,
}

impl History {
    /// True if there is such an order.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.extends(Place { placed: 0, restores: 0, life: 1, value: Value::default() })
    }

    fn extends(&self, place: Place) -> bool {
        let next = self.restores.as_slice().get(place.restores);
        let life = next.map_or(u8::MAX, |&(life, _)| life);
        let is_whole = (0..PROCESS_COUNT).all(|process| {
            self.is_dead(process)
                || self
                    .ops_of(process)
                    .all(|(op, item)| place.placed >> op & 1 == 1 || item.is_open(life))
        });
        if is_whole && next.is_none() && self.last.is_none_or(|last| last == place.value) {
            return true;
        }
        (0..PROCESS_COUNT)
            .any(|process| self.ops_of(process).any(|(op, item)| self.extends_by(place, op, item)))
            || is_whole && next.is_some_and(|&next| self.extends_by_restore(place, next, 0))
    }

    fn is_dead(&self, process: usize) -> bool {
        self.dead >> process & 1 == 1
    }

    /// The operations of a process, with their places in bitmaps.
    fn ops_of(&self, process: usize) -> impl Iterator<Item = (usize, &Op)> + Clone {
        (process * OP_COUNT_MAX..).zip(self.ops[process].iter())
    }

    fn extends_by(&self, mut place: Place, op: usize, item: &Op) -> bool {
        let is_next = place.placed >> op & 1 == 0 && item.after & !place.placed == 0;
        if !is_next || !item.is_open(place.life) {
            return false;
        }
        match item.kind {
            Kind::Set => place.value = Value::set(op),
            Kind::Push => place.value.add(op),
            Kind::Pull if item.answered == place.life && item.result != place.value => {
                return false;
            }
            Kind::Pull => {}
        }
        place.placed |= 1 << op;
        self.extends(place)
    }

    /// Places the next restore; what `process` and those after it had open may be undone by it.
    fn extends_by_restore(&self, place: Place, (life, value): (u8, Value), process: usize) -> bool {
        if process == PROCESS_COUNT {
            return self.extends(Place { restores: place.restores + 1, life, value, ..place });
        }
        if self.is_dead(process) {
            return self.extends_by_restore(place, (life, value), process + 1);
        }
        let ops = || self.ops_of(process).filter(|(op, _)| place.placed >> op & 1 == 1);
        // What an older row has answered stays, and what that comes after; sets and pushes that
        // come after nothing that goes may.
        let answered = ops().filter(|(_, item)| !item.is_open(life));
        let stays = answered.fold(0, |stays, (op, item)| stays | 1 << op | item.after);
        let open = ops().filter(|(op, _)| stays >> op & 1 == 0);
        let undone: u16 = open.clone().fold(0, |undone, (op, _)| undone | 1 << op);
        let mut some = undone;
        loop {
            let rest = undone & !some;
            let is_good = open
                .clone()
                .filter(|(op, _)| rest >> op & 1 == 1)
                .all(|(_, item)| item.kind != Kind::Pull && item.after & some == 0);
            let left = Place { placed: place.placed & !some, ..place };
            if is_good && self.extends_by_restore(left, (life, value), process + 1) {
                return true;
            }
            if some == 0 {
                return false;
            }
            some = (some - 1) & undone;
        }
    }

    /// Returns the history as text, for a counterexample.
    #[must_use]
    pub fn text(&self) -> String {
        let mut texts = Vec::new();
        for (process, ops) in (0_u8..).zip(&self.ops) {
            for (item, (_, op)) in ops.iter().zip(ops_of(process)) {
                let name = super::message::op_name(op);
                texts.push(match (item.kind, item.answered) {
                    (kind, 0) => format!("{name} {kind} open"),
                    (Kind::Pull, _) => format!("{name} pull: {}", item.result),
                    (kind, _) => format!("{name} {kind}"),
                });
            }
        }
        if let Some(last) = self.last {
            texts.push(format!("at last {last}"));
        }
        texts.join(", ")
    }
}
