//! In which order a lane's contributions left, and which of them are lost (SPEC "Member").
//!
//! Frames of a lane keep their order on the way, and the box answers in the order in which steps
//! become complete. So a contribution is lost, or another member's is, when one that left after
//! it was answered and its own answer has had as long, and a reordering window more (RACK, RFC
//! 8985, with numbers instead of time stamps: a burst leaves at one time). Nothing is lost for
//! being late: a box or a member that waits for its core answers none of what left later either.
//!
//! The answer to a repeat may answer what went before. What was lost was in time, so sooner than
//! any round trip it does, and later it does not. What was asked for again because nothing came at
//! all was late, perhaps: the answer counts as one to the repeat only when nothing has followed it
//! for a timeout ([`Order::confirm`]), for answers to the others' originals would.
//!
//! Invariants: the list holds the slots whose contribution is in flight, oldest first; its numbers
//! rise. O(1) per call, no memory after [`Order::new`].

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::Nanos;

/// The contributions of a lane that are in flight, by slot.
#[derive(Debug)]
pub(crate) struct Order {
    links: Vec<Link>,
    head: u16,
    tail: u16,
    /// Number of what leaves next.
    next: u64,
    /// What left below this number has had its time `answered_span` after it left.
    answered: u64,
    /// How long the answer took to what left last of what was answered.
    answered_span: Nanos,
    /// The same as `answered` if the last answers to repeats were answers to repeats.
    doubtful: u64,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u16,
    after: u16,
    is_in: bool,
    /// It was asked for again for being late.
    is_late: bool,
    number: u64,
    at: Nanos,
}

impl Order {
    /// For so many slots, at most `u16::MAX`.
    pub(crate) fn new(slot_count: usize) -> Self {
        let link = Link {
            before: NONE,
            after: NONE,
            is_in: false,
            is_late: false,
            number: 0,
            at: Nanos(0),
        };
        Self {
            links: vec![link; slot_count],
            head: NONE,
            tail: NONE,
            next: 1,
            answered: 0,
            answered_span: Nanos(0),
            doubtful: 0,
        }
    }

    /// Forgets what is in flight.
    pub(crate) fn clear(&mut self) {
        (self.head, self.tail) = (NONE, NONE);
        self.links.iter_mut().for_each(|link| link.is_in = false);
        (self.answered, self.doubtful) = (0, 0);
    }

    /// The contribution of this slot leaves, be it again; `is_late`: because nothing has come.
    pub(crate) fn push(&mut self, slot: usize, now: Nanos, is_late: bool) {
        self.remove(slot);
        self.number(slot);
        self.links[slot].is_late = is_late;
        let (index, tail) = (self.index(slot), self.tail);
        let link = &mut self.links[slot];
        (link.before, link.after, link.is_in, link.at) = (tail, NONE, true, now);
        match self.links.get_mut(usize::from(tail)) {
            Some(last) => last.after = index,
            None => self.head = index,
        }
        self.tail = index;
    }

    /// Something of this slot leaves that is no contribution.
    pub(crate) fn number(&mut self, slot: usize) {
        self.links[slot].number = self.next;
        self.links[slot].is_late = true;
        self.next += 1;
    }

    /// The contribution of this slot is in flight no longer.
    pub(crate) fn remove(&mut self, slot: usize) {
        let Link { before, after, is_in, .. } = self.links[slot];
        if !is_in {
            return;
        }
        self.links[slot].is_in = false;
        match self.links.get_mut(usize::from(before)) {
            Some(link) => link.after = after,
            None => self.head = after,
        }
        match self.links.get_mut(usize::from(after)) {
            Some(link) => link.before = before,
            None => self.tail = before,
        }
    }

    /// What left last of this slot was answered, or if `is_repeated` what went before it, where
    /// that is as soon after it as no round trip is: as `shortest`.
    pub(crate) fn answer(&mut self, slot: usize, now: Nanos, is_repeated: bool, shortest: Nanos) {
        let Link { number, at, is_late, .. } = self.links[slot];
        let span = now.since(at);
        if is_repeated && is_late {
            self.doubtful = self.doubtful.max(number);
        } else if number > self.answered && (!is_repeated || span >= shortest) {
            self.answered = number;
            self.answered_span = span;
        }
    }

    /// True when something is in flight that left before a repeat that may have been answered.
    pub(crate) fn is_in_doubt(&self) -> bool {
        let is_before = |link: &Link| link.number < self.doubtful;
        self.doubtful > self.answered && self.oldest().is_some_and(is_before)
    }

    /// The answers to repeats were answers to the repeats.
    pub(crate) fn confirm(&mut self) {
        if self.doubtful > self.answered {
            self.answered = self.doubtful;
            self.answered_span = Nanos(0);
        }
    }

    /// When the next contribution is lost if nothing comes; [`Nanos::MAX`]: nothing points to it.
    pub(crate) fn lost_at(&self, reordering: Nanos) -> Nanos {
        match self.oldest().filter(|link| link.number < self.answered) {
            Some(link) => link.at.saturating_add(self.answered_span).saturating_add(reordering),
            None => Nanos::MAX,
        }
    }

    /// Takes the next slot from the list whose contribution is lost by now.
    pub(crate) fn take_lost(&mut self, now: Nanos, reordering: Nanos) -> Option<usize> {
        if self.lost_at(reordering) > now {
            return None;
        }
        let slot = usize::from(self.head);
        self.remove(slot);
        Some(slot)
    }

    fn oldest(&self) -> Option<&Link> {
        self.links.get(usize::from(self.head))
    }

    fn index(&self, slot: usize) -> u16 {
        debug_assert!(slot < self.links.len());
        u16::try_from(slot).unwrap_or(NONE)
    }
}

/// No slot.
const NONE: u16 = u16::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    const REORDERING: Nanos = Nanos(2);

    fn lost(order: &mut Order, now: u64) -> Vec<usize> {
        core::iter::from_fn(|| order.take_lost(Nanos(now), REORDERING)).collect()
    }

    fn order(slots: usize) -> Order {
        let mut order = Order::new(slots);
        (0..slots).for_each(|slot| order.push(slot, Nanos(10), false));
        order
    }

    fn answer(order: &mut Order, slot: usize, now: u64, is_repeated: bool) {
        order.answer(slot, Nanos(now), is_repeated, Nanos(3));
        order.remove(slot);
    }

    #[test]
    fn only_what_left_before_something_answered_is_lost_and_after_its_time() {
        let mut order = order(4);
        assert_eq!(order.lost_at(REORDERING), Nanos::MAX, "nothing is lost for being late");
        answer(&mut order, 2, 15, false);
        assert_eq!(order.lost_at(REORDERING), Nanos(17));
        assert_eq!(lost(&mut order, 16), []);
        assert_eq!(lost(&mut order, 17), [0, 1]);
        assert_eq!(lost(&mut order, 1_000), [], "slot 3 left later");
        order.push(0, Nanos(17), false);
        answer(&mut order, 3, 18, false);
        assert_eq!(lost(&mut order, 1_000), [], "the repeat left last");
    }

    #[test]
    fn what_was_answered_meanwhile_is_not_lost() {
        let mut order = order(3);
        answer(&mut order, 2, 15, false);
        answer(&mut order, 1, 16, false);
        assert_eq!(lost(&mut order, 20), [0]);
    }

    #[test]
    fn the_answer_to_a_repeat_says_nothing_until_it_is_confirmed() {
        let mut order = order(3);
        order.push(0, Nanos(30), true);
        order.push(2, Nanos(31), false);
        answer(&mut order, 0, 35, true);
        assert_eq!(lost(&mut order, 1_000), []);
        assert!(order.is_in_doubt());
        order.confirm();
        assert_eq!(lost(&mut order, 35), [1], "slot 2 left after the repeat");
    }

    #[test]
    fn the_answer_to_a_repeat_of_what_was_lost_is_believed_when_it_comes_late_enough() {
        for (at, found) in [(32, vec![]), (33, vec![0, 2])] {
            let mut order = order(3);
            order.push(1, Nanos(30), false);
            answer(&mut order, 1, at, true);
            assert_eq!(lost(&mut order, 1_000), found, "{at}");
        }
    }

    #[test]
    fn a_question_of_a_slot_counts_as_its_repeat() {
        let mut order = order(2);
        order.remove(0);
        order.number(0);
        answer(&mut order, 0, 40, true);
        order.confirm();
        assert_eq!(lost(&mut order, 40), [1]);
    }

    #[test]
    fn a_new_epoch_begins_with_nothing() {
        let mut order = order(3);
        answer(&mut order, 2, 15, false);
        order.clear();
        assert_eq!(lost(&mut order, 1_000), []);
        order.push(1, Nanos(50), false);
        order.push(0, Nanos(50), false);
        answer(&mut order, 0, 60, false);
        assert_eq!(lost(&mut order, 1_000), [1]);
    }
}
