//! Which chunks of a transfer are out, and which must go again.
//!
//! Chunks leave in order; a chunk is outstanding until it is acknowledged, and due again when its
//! timeout has passed, later each time. Used for an update on its way to an aggregator (HAVE
//! acknowledges) and for a model on its way here (ANSWER does). The caller owns the [`Path`];
//! entries lie in the order of their chunks, so a look-up is a binary
//! search over at most [`SPAN_MAX`].
//!
//! Invariants: at most [`SPAN_MAX`] entries, none allocated after [`Flight::new`]; every chunk
//! below `next` is acknowledged or has an entry.

use alloc::collections::VecDeque;

use weft_wire::Nanos;

use crate::send::order::Order;
use crate::send::path::{Overdue, Path, Sent};

/// The chunks of one transfer.
#[derive(Debug)]
pub(super) struct Flight {
    entries: VecDeque<Entry>,
    /// Those that are out, where answers keep the order of what they answer.
    order: Order,
    is_in_order: bool,
    /// When the last answer came.
    answered_at: Nanos,
    /// The lowest chunk that was never sent.
    next: u32,
    end: u32,
    /// Entries that count against the window.
    out: u32,
    /// Entries that wait for their repeat.
    overdue: u32,
    /// No entry is due before this.
    due_at: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    chunk: u32,
    sent: Sent,
    due_at: Nanos,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Out,
    Overdue,
    /// Waits for its repeat too, for what left later was answered.
    Lost,
    Done,
}

/// A chunk whose turn it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Turn {
    pub(super) chunk: u32,
    pub(super) is_repeat: bool,
}

impl Flight {
    /// Takes the memory for any transfer; there is none yet.
    pub(super) fn new() -> Self {
        Self {
            entries: VecDeque::with_capacity(SPAN_MAX),
            order: Order::new(SPAN_MAX),
            is_in_order: false,
            answered_at: Nanos(0),
            next: 0,
            end: 0,
            out: 0,
            overdue: 0,
            due_at: Nanos::MAX,
        }
    }

    /// Begins a transfer of `chunks` chunks. `is_in_order`: answers keep the order of what they
    /// answer, so what left before something that was answered is lost.
    pub(super) fn begin(&mut self, chunks: u32, is_in_order: bool) {
        self.entries.clear();
        self.order.clear();
        self.is_in_order = is_in_order;
        (self.next, self.end) = (0, chunks);
        (self.out, self.overdue) = (0, 0);
        self.due_at = Nanos::MAX;
    }

    /// Gives the transfer up.
    pub(super) fn stop(&mut self) {
        self.begin(0, false);
    }

    /// True when every chunk was acknowledged.
    pub(super) fn is_finished(&self) -> bool {
        self.next == self.end && self.entries.is_empty()
    }

    /// Chunks that count against the window.
    pub(super) fn out(&self) -> u32 {
        self.out
    }

    /// The chunk that goes next in a window with room for `room` more: repeats first.
    pub(super) fn turn(&self, room: u32) -> Option<Turn> {
        if room == 0 {
            return None;
        }
        if self.overdue > 0 {
            let mut entries = self.entries.iter();
            let entry = entries.find(|entry| entry.state.is_due())?;
            return Some(Turn { chunk: entry.chunk, is_repeat: true });
        }
        let has_next = self.next < self.end && self.entries.len() < SPAN_MAX;
        has_next.then_some(Turn { chunk: self.next, is_repeat: false })
    }

    /// The next chunk of a train of the first `train_chunks`, which no window holds back; none once
    /// something of it is overdue.
    pub(super) fn train_turn(&self, train_chunks: u32) -> Option<Turn> {
        let is_in = self.next < train_chunks.min(self.end) && self.overdue == 0;
        is_in.then_some(Turn { chunk: self.next, is_repeat: false })
    }

    /// Takes note that the chunk of [`Flight::turn`] went.
    pub(super) fn sent(&mut self, turn: Turn, now: Nanos, path: &Path) {
        if turn.is_repeat {
            let Some(entry) = self.entry(turn.chunk) else { return };
            let is_late = entry.state == State::Overdue;
            entry.state = State::Out;
            if is_late {
                path.repeat(now, &mut entry.sent);
            } else {
                path.repeat_lost(now, &mut entry.sent);
            }
            entry.due_at = path.deadline(&entry.sent);
            let due_at = entry.due_at;
            self.order(turn.chunk, now, is_late);
            self.overdue -= 1;
            self.due_at = self.due_at.min(due_at);
        } else {
            let sent = path.send(now);
            let due_at = path.deadline(&sent);
            self.entries.push_back(Entry { chunk: turn.chunk, sent, due_at, state: State::Out });
            self.next = turn.chunk + 1;
            self.due_at = self.due_at.min(due_at);
            self.order(turn.chunk, now, false);
        }
        self.out += 1;
    }

    /// Takes an acknowledgement and says what it is of; `None` when the chunk was not outstanding.
    pub(super) fn acknowledge(&mut self, now: Nanos, path: &Path, chunk: u32) -> Option<Sent> {
        let entry = self.entry(chunk).filter(|entry| entry.state != State::Done)?;
        let was = core::mem::replace(&mut entry.state, State::Done);
        let sent = entry.sent;
        match was.is_due() {
            true => self.overdue -= 1,
            false => self.out -= 1,
        }
        self.answered_at = now;
        if self.is_in_order {
            let shortest = path.rtt().shortest().unwrap_or_default();
            self.order.answer(slot(chunk), now, sent.is_repeated(), shortest);
            self.order.remove(slot(chunk));
        }
        while self.entries.front().is_some_and(|entry| entry.state == State::Done) {
            self.entries.pop_front();
        }
        Some(sent)
    }

    /// True for a chunk that waits for its repeat because nothing has come.
    pub(super) fn is_overdue(&self, chunk: u32) -> bool {
        let index = self.entries.binary_search_by_key(&chunk, |entry| entry.chunk);
        index.is_ok_and(|index| self.entries[index].state == State::Overdue)
    }

    /// The answer to a chunk was late: what went after it and waits for its repeat is late too, and
    /// is waited for as long again. What went before it is lost.
    pub(super) fn renew(&mut self, now: Nanos, path: &Path, late: u32) {
        let is_late = |entry: &&mut Entry| entry.state == State::Overdue && entry.chunk > late;
        for entry in self.entries.iter_mut().filter(is_late) {
            entry.state = State::Out;
            entry.due_at = path.deadline_from(now, &entry.sent);
            self.due_at = self.due_at.min(entry.due_at);
            self.out += 1;
            self.overdue -= 1;
        }
    }

    /// Marks what is overdue or lost for a repeat.
    pub(super) fn expire(&mut self, now: Nanos, path: &Path) -> Overdue {
        let mut expired = Overdue::default();
        if self.order.is_in_doubt() && now >= self.doubted_until(path) {
            self.order.confirm();
        }
        while let Some(slot) = self.order.take_lost(now, path.reordering()) {
            if let Some(entry) = self.entry_in(slot).filter(|entry| entry.state == State::Out) {
                entry.state = State::Lost;
                expired.add_lost(&entry.sent);
            }
        }
        if now < self.due_at {
            self.take(&expired);
            return expired;
        }
        let mut due_at = Nanos::MAX;
        for entry in self.entries.iter_mut().filter(|entry| entry.state == State::Out) {
            if entry.due_at <= now {
                entry.state = State::Overdue;
                self.order.remove(slot(entry.chunk));
                expired.add(&entry.sent);
            } else {
                due_at = due_at.min(entry.due_at);
            }
        }
        self.due_at = due_at;
        self.take(&expired);
        expired
    }

    /// When [`Flight::expire`] may find something.
    pub(super) fn deadline(&self, path: &Path) -> Nanos {
        let doubted_until =
            if self.order.is_in_doubt() { self.doubted_until(path) } else { Nanos::MAX };
        self.due_at.min(self.order.lost_at(path.reordering())).min(doubted_until)
    }

    /// Until when answers to what left before a repeat would have followed the repeat's.
    fn doubted_until(&self, path: &Path) -> Nanos {
        self.answered_at.saturating_add(path.rtt().timeout(0))
    }

    fn take(&mut self, expired: &Overdue) {
        self.out -= expired.count;
        self.overdue += expired.count;
    }

    /// Takes note of the order in which a chunk left.
    fn order(&mut self, chunk: u32, now: Nanos, is_late: bool) {
        if self.is_in_order {
            self.order.push(slot(chunk), now, is_late);
        }
    }

    /// The entry of a slot of `order`: chunks that are out lie within as many.
    fn entry_in(&mut self, slot: usize) -> Option<&mut Entry> {
        let first = self.entries.front()?.chunk as usize;
        self.entries.get_mut(slot.wrapping_sub(first) % SPAN_MAX)
    }

    fn entry(&mut self, chunk: u32) -> Option<&mut Entry> {
        let index = self.entries.binary_search_by_key(&chunk, |entry| entry.chunk).ok()?;
        self.entries.get_mut(index)
    }
}

impl State {
    /// Waits for its repeat.
    fn is_due(self) -> bool {
        matches!(self, Self::Overdue | Self::Lost)
    }
}

/// The place of a chunk in [`Flight::order`].
fn slot(chunk: u32) -> usize {
    chunk as usize % SPAN_MAX
}

/// How far the chunks that are out may lie apart; also the most that may be out.
pub(super) const SPAN_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::send::retransmit::RttEstimator;
    use crate::send::window::CongestionWindow;

    fn path() -> Path {
        let rtt = RttEstimator::new(Nanos(1_000), Nanos(100), Nanos(100_000));
        Path::new(rtt, CongestionWindow::new(1, 1))
    }

    fn send(flight: &mut Flight, now: u64, window: u32) -> Option<Turn> {
        let turn = flight.turn(window.saturating_sub(flight.out()))?;
        flight.sent(turn, Nanos(now), &path());
        Some(turn)
    }

    #[test]
    fn chunks_leave_in_order_within_the_window() {
        let mut flight = Flight::new();
        flight.begin(3, false);
        assert_eq!(send(&mut flight, 0, 2), Some(Turn { chunk: 0, is_repeat: false }));
        assert_eq!(send(&mut flight, 0, 2), Some(Turn { chunk: 1, is_repeat: false }));
        assert_eq!(send(&mut flight, 0, 2), None);
        assert_eq!(flight.acknowledge(Nanos(0), &path(), 1), Some(path().send(Nanos(0))));
        assert_eq!(flight.acknowledge(Nanos(0), &path(), 1), None, "only once");
        assert_eq!(send(&mut flight, 9, 2), Some(Turn { chunk: 2, is_repeat: false }));
        assert_eq!(flight.acknowledge(Nanos(0), &path(), 9), None, "never sent");
        assert!(flight.acknowledge(Nanos(0), &path(), 0).is_some());
        assert!(!flight.is_finished());
        assert!(flight.acknowledge(Nanos(0), &path(), 2).is_some());
        assert!(flight.is_finished());
    }

    #[test]
    fn a_repeat_goes_first_and_waits_longer() {
        let mut flight = Flight::new();
        flight.begin(10, false);
        send(&mut flight, 0, 2);
        send(&mut flight, 500, 2);
        assert_eq!(flight.expire(Nanos(999), &path()).count, 0);
        assert_eq!(flight.deadline(&path()), Nanos(1_000));
        assert_eq!(flight.expire(Nanos(1_000), &path()).count, 1);
        assert_eq!(send(&mut flight, 1_000, 2), Some(Turn { chunk: 0, is_repeat: true }));
        assert_eq!(flight.expire(Nanos(1_500), &path()).count, 1, "chunk 1; chunk 0 has 2000 more");
        assert_eq!(flight.deadline(&path()), Nanos(3_000));
        assert!(flight.acknowledge(Nanos(0), &path(), 0).unwrap().is_repeated());
        // What was acknowledged while it waited for its repeat does not go again.
        assert_eq!(flight.acknowledge(Nanos(0), &path(), 1), Some(path().send(Nanos(500))));
        assert_eq!(flight.out(), 0);
        assert_eq!(send(&mut flight, 1_700, 1), Some(Turn { chunk: 2, is_repeat: false }));
    }

    #[test]
    fn what_was_late_is_waited_for_again() {
        let mut flight = Flight::new();
        flight.begin(4, false);
        for _ in 0..4 {
            send(&mut flight, 0, 4);
        }
        assert_eq!(flight.expire(Nanos(1_000), &path()).count, 4);
        assert!(flight.is_overdue(1) && !flight.is_overdue(4));
        assert!(flight.acknowledge(Nanos(0), &path(), 1).is_some());
        flight.renew(Nanos(1_500), &path(), 1);
        assert_eq!((flight.out(), flight.deadline(&path())), (2, Nanos(2_500)));
        let lost = Some(Turn { chunk: 0, is_repeat: true });
        assert_eq!(send(&mut flight, 1_500, 3), lost, "what went before is lost");
        assert!(flight.acknowledge(Nanos(0), &path(), 0).is_some());
        assert_eq!(send(&mut flight, 1_500, 3), None, "nothing else goes twice");
        assert_eq!(flight.expire(Nanos(2_499), &path()).count, 0);
        assert_eq!(flight.expire(Nanos(2_500), &path()).count, 2);
        assert_eq!(send(&mut flight, 2_500, 2), Some(Turn { chunk: 2, is_repeat: true }));
    }

    #[test]
    fn what_left_before_something_answered_is_lost_and_goes_again_at_once() {
        for (is_in_order, lost) in [(true, 2), (false, 0)] {
            let mut flight = Flight::new();
            flight.begin(8, is_in_order);
            for _ in 0..4 {
                send(&mut flight, 0, 4);
            }
            let mut path = path();
            let answered = flight.acknowledge(Nanos(80), &path, 2).unwrap();
            path.on_answer(Nanos(80), &answered, false, false);
            let at = Nanos(80 + path.reordering().0);
            assert_eq!(flight.expire(Nanos(at.0 - 1), &path).count, 0);
            assert_eq!(flight.deadline(&path) == at, is_in_order);
            let overdue = flight.expire(at, &path);
            assert_eq!((overdue.count, overdue.has_late()), (lost, false), "not chunk 3");
            if is_in_order {
                assert_eq!(send(&mut flight, at.0, 4), Some(Turn { chunk: 0, is_repeat: true }));
                // The timeout of new data: nothing is known of the path but that it carries.
                assert_eq!(flight.entries[0].due_at, Nanos(at.0 + 1_000));
                assert_eq!(send(&mut flight, at.0, 4), Some(Turn { chunk: 1, is_repeat: true }));
                // A repeat that is answered tells of a repeat before it.
                let answered = flight.acknowledge(Nanos(at.0 + 90), &path, 1);
                assert!(answered.unwrap().is_repeated());
                let overdue = flight.expire(Nanos(at.0 + 120), &path);
                assert_eq!((overdue.count, overdue.has_late()), (2, false), "0 again, and 3");
            }
        }
    }

    #[test]
    fn a_lost_chunk_holds_the_span_but_not_the_memory() {
        let mut flight = Flight::new();
        flight.begin(u32::MAX, false);
        let memory = flight.entries.capacity();
        while let Some(turn) = send(&mut flight, 0, u32::MAX) {
            if turn.chunk > 0 {
                flight.acknowledge(Nanos(0), &path(), turn.chunk);
            }
        }
        assert_eq!(flight.entries.len(), SPAN_MAX);
        assert_eq!(flight.entries.capacity(), memory);
        flight.acknowledge(Nanos(0), &path(), 0);
        assert_eq!(flight.entries.len(), 0);
    }
}
