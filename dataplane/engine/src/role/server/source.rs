//! A source of chunks: an aggregator, or a member that is asked itself. Holds the credits that it
//! has not answered (SPEC#push "Credits").

use alloc::collections::VecDeque;

use weft_wire::{Nanos, Rank};

use super::config::ServerJobConfig;
use super::group::OpenIndex;
use crate::send::retransmit::RttEstimator;
use crate::send::window::CongestionWindow;

/// A PULL that was not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    pub(super) group: OpenIndex,
    pub(super) chunk: u32,
    pub(super) sent_at: Nanos,
    pub(super) due_at: Nanos,
    pub(super) repeats: u8,
}

/// One source.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) window: CongestionWindow,
    pub(super) rtt: RttEstimator,
    credits: VecDeque<Credit>,
    /// When it last said anything, or was first asked after having nothing to answer.
    pub(super) heard_at: Nanos,
    /// No credit is due before.
    pub(super) due_at: Nanos,
}

impl Source {
    pub(super) fn new(config: &ServerJobConfig) -> Self {
        let initial = Nanos(config.rto_min_ns.saturating_mul(10));
        let (min, max) = (Nanos(config.rto_min_ns), Nanos(config.rto_max_ns));
        Self {
            window: CongestionWindow::new(config.window_max.min(16), config.window_max),
            rtt: RttEstimator::new(initial, min, max),
            credits: VecDeque::with_capacity(config.window_max as usize),
            heard_at: Nanos(0),
            due_at: Nanos::MAX,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.credits.len() < self.window.size() as usize
    }

    pub(super) fn credits(&self) -> usize {
        self.credits.len()
    }

    /// Takes note of a PULL.
    pub(super) fn send(&mut self, now: Nanos, group: OpenIndex, chunk: u32) {
        if self.credits.is_empty() {
            self.heard_at = now;
        }
        let due_at = now.saturating_add(self.rtt.rto());
        self.credits.push_back(Credit { group, chunk, sent_at: now, due_at, repeats: 0 });
        self.due_at = self.due_at.min(due_at);
    }

    /// Takes an answer; true when it was asked for. Feeds round trip and window.
    pub(super) fn answer(&mut self, now: Nanos, group: OpenIndex, chunk: u32) -> bool {
        self.heard_at = now;
        let is_it = |credit: &Credit| credit.group == group && credit.chunk == chunk;
        let Some(at) = self.credits.iter().position(is_it) else { return false };
        let limited = !self.has_room();
        if let Some(credit) = self.credits.remove(at) {
            if credit.repeats == 0 {
                self.rtt.sample(now.since(credit.sent_at));
            }
            self.window.on_answer(limited);
        }
        true
    }

    /// The first credit that is overdue, given a new deadline; `needed` says whether its chunk is
    /// still missing. Credits that are not are forgotten.
    pub(super) fn expire(
        &mut self,
        now: Nanos,
        mut needed: impl FnMut(&Credit) -> bool,
    ) -> Option<Credit> {
        if now < self.due_at {
            return None;
        }
        let mut at = 0;
        while at < self.credits.len() {
            if self.credits[at].due_at > now {
                at += 1;
            } else if needed(&self.credits[at]) {
                let credit = &mut self.credits[at];
                credit.repeats = credit.repeats.saturating_add(1);
                credit.due_at = now.saturating_add(self.rtt.rto_after(credit.repeats));
                return Some(*credit);
            } else {
                self.credits.remove(at);
            }
        }
        self.due_at = self.credits.iter().map(|credit| credit.due_at).min().unwrap_or(Nanos::MAX);
        None
    }

    /// Forgets all credits.
    pub(super) fn clear(&mut self) {
        self.credits.clear();
        self.due_at = Nanos::MAX;
    }

    /// Forgets the credits of a group.
    pub(super) fn forget(&mut self, group: OpenIndex) {
        self.credits.retain(|credit| credit.group != group);
    }
}

/// Which source.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SourceId {
    Box(u8),
    Member(Rank),
}
