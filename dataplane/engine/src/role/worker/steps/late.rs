//! What is late or lost, and what goes again for it.

use weft_wire::Nanos;

use super::Steps;
use crate::role::worker::slot::State;
use crate::send::path::{Overdue, Path};

impl Steps {
    /// No deadline passes before this.
    pub(in crate::role::worker) fn next_deadline(&self, path: &Path) -> Nanos {
        let lost_at = self.order.lost_at(path.reordering());
        self.next_deadline.min(lost_at).min(self.quiet_until(path))
    }

    /// Until when the lowest missing step may stay unanswered.
    fn quiet_until(&self, path: &Path) -> Nanos {
        let slot = self.slot(self.low);
        let waits = slot.state == State::Contributed && slot.next == self.low && !slot.queued;
        match (waits, self.order.is_in_doubt()) {
            (false, _) => Nanos::MAX,
            (true, true) => path.doubted_until(&slot.sent, self.answered_at),
            (true, false) => path.quiet_until(&slot.sent, self.answered_at),
        }
    }

    /// Queues what is overdue or lost. `None` when no deadline has passed; else the contributions
    /// among it of which the box has said nothing.
    pub(in crate::role::worker) fn expire(&mut self, now: Nanos, path: &Path) -> Option<Overdue> {
        let mut overdue: Option<Overdue> = None;
        if now >= self.next_deadline {
            self.ask(now);
            overdue = Some(Overdue::default());
        }
        if now >= self.quiet_until(path) {
            self.order.confirm();
        }
        while let Some(index) = self.order.take_lost(now, path.reordering()) {
            overdue.get_or_insert_default().add_lost(&self.slots[index].sent);
            self.in_flight -= 1;
            self.list_lost(index);
        }
        if now >= self.quiet_until(path) {
            let low = self.low;
            let slot = self.slot_mut(low);
            slot.queued = true;
            overdue.get_or_insert_default().add_probe(&slot.sent);
            self.due.push_back(low);
        }
        overdue
    }

    /// Queues what asks for the lowest missing sum; true when it is under way. What is under way
    /// already is as good a question.
    pub(in crate::role::worker) fn question(&mut self) -> bool {
        let low = self.low;
        let is_under_way = low < self.end;
        let slot = self.slot_mut(low);
        let may_go = matches!(slot.state, State::Contributed | State::Known);
        if is_under_way && may_go && slot.next == low && !slot.queued {
            slot.queued = true;
            self.due.push_back(low);
        }
        is_under_way
    }

    /// Queues the questions and hand-overs whose deadline has passed.
    fn ask(&mut self, now: Nanos) {
        self.next_deadline = Nanos::MAX;
        for slot in &mut self.slots {
            if !slot.state.has_deadline() || slot.queued {
                continue;
            }
            if slot.deadline > now {
                self.next_deadline = self.next_deadline.min(slot.deadline);
                continue;
            }
            slot.queued = true;
            self.due.push_back(slot.current(self.window));
        }
    }
}
