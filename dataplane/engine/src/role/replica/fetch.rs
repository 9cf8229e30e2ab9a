//! Fetching a run of chunks, by question and answer: a repair from the log, or a snapshot.
//!
//! Every chunk that is wanted is asked for, at most a window at a time, and asked for again until
//! it comes. The memory is taken at the start.

use alloc::collections::VecDeque;

use weft_wire::Nanos;

use crate::send::path::{Overdue, Path, Sent};
use crate::send::retransmit::RttEstimator;
use crate::send::window::CongestionWindow;

/// Questions under way.
#[derive(Debug)]
pub(super) struct Fetch {
    path: Path,
    asked: VecDeque<Question>,
    cursor: u32,
    end: u32,
}

#[derive(Clone, Copy, Debug)]
struct Question {
    chunk: u32,
    sent: Sent,
    due_at: Nanos,
}

impl Fetch {
    pub(super) fn new(window_max: u32, rto_min: Nanos, rto_max: Nanos) -> Self {
        let initial = Nanos(rto_min.0.saturating_mul(10));
        Self {
            path: Path::new(
                RttEstimator::new(initial, rto_min, rto_max),
                CongestionWindow::new(window_max.min(16), window_max),
            ),
            asked: VecDeque::with_capacity(window_max as usize),
            cursor: 0,
            end: 0,
        }
    }

    /// Begins with chunks `0..end`.
    pub(super) fn begin(&mut self, end: u32) {
        self.asked.clear();
        self.cursor = 0;
        self.end = end;
    }

    /// The next chunk to ask for, and whether it was asked for before; `has` says what is there.
    pub(super) fn poll(&mut self, now: Nanos, has: impl Fn(u32) -> bool) -> Option<(u32, bool)> {
        self.asked.retain(|question| !has(question.chunk));
        if let Some(question) = self.asked.iter_mut().find(|question| question.due_at <= now) {
            let mut overdue = Overdue::default();
            overdue.add(&question.sent);
            self.path.on_timeout(now, &overdue);
            self.path.repeat(now, &mut question.sent);
            question.due_at = self.path.deadline(&question.sent);
            return Some((question.chunk, true));
        }
        while self.cursor < self.end && has(self.cursor) {
            self.cursor += 1;
        }
        if self.cursor == self.end || self.asked.len() >= self.path.window() as usize {
            return None;
        }
        let chunk = self.cursor;
        self.cursor += 1;
        let sent = self.path.send(now);
        let due_at = self.path.deadline(&sent);
        self.asked.push_back(Question { chunk, sent, due_at });
        Some((chunk, false))
    }

    /// Takes an answer; false when nobody asked.
    pub(super) fn answer(&mut self, now: Nanos, chunk: u32) -> bool {
        let Some(at) = self.asked.iter().position(|question| question.chunk == chunk) else {
            return false;
        };
        let is_limited = self.asked.len() >= self.path.window() as usize;
        if let Some(question) = self.asked.remove(at) {
            self.path.on_answer(now, &question.sent, is_limited, false);
        }
        true
    }

    /// When the next question is overdue.
    pub(super) fn timeout(&self) -> Nanos {
        self.asked.iter().map(|question| question.due_at).min().unwrap_or(Nanos::MAX)
    }
}
