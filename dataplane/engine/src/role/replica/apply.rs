//! Applying decisions in their sequence (SPEC#replica): from copies, from a finished repair, or not
//! yet.

use weft_control::{Decision, Event, OrderNumber, Version};
use weft_wire::header::{ElementType, Outcome};
use weft_wire::{Members, Nanos, Rank};

use super::job::{Heard, Job, Phase};
use crate::role::model::{Decided, StageIndex, Sum, direct_rank, scale};

impl Job {
    /// Applies all decisions that can be applied now.
    pub(super) fn advance(&mut self, now: Nanos) {
        self.grace_until = Nanos::MAX;
        while let Some(Some(heard)) = self.decisions.front().copied() {
            let applied = match (self.phase, heard.outcome) {
                (Phase::Ask | Phase::Copy { .. }, _) => false,
                (_, Outcome::Committed) => self.apply_committed(now, &heard),
                _ => {
                    self.stats.voids += 1;
                    self.tell_decided(&heard, 0.0);
                    true
                }
            };
            if !applied {
                return;
            }
            self.note_outcomes(&heard);
            self.move_on(heard.after);
        }
    }

    /// Applies all decisions that can be applied with what is here, for nothing more will come.
    pub(super) fn apply_what_is_here(&mut self, now: Nanos) {
        // A model that is half here is none, but what it was to replace is whole.
        if matches!(self.phase, Phase::Ask | Phase::Copy { .. }) {
            return;
        }
        self.advance(now);
    }

    /// The sum of a decision, if all of it is here: as copies, or as a finished repair.
    fn apply_committed(&mut self, now: Nanos, heard: &Heard) -> bool {
        if let Phase::Repair(stage) = self.phase {
            if (0..self.chunks).any(|chunk| self.pool.holders(stage, chunk) != heard.members) {
                return false;
            }
            self.apply(stage, heard);
            self.pool.give_back(stage);
            self.phase = Phase::Follow;
            return true;
        }
        let held = self.held(heard.group).and_then(|at| self.groups[at].as_mut());
        let Some(held) = held else {
            self.begin_repair(None);
            return false;
        };
        let stage = held.stage;
        let is_float = held.element_type == ElementType::F32;
        let is_usable = (!is_float || !(held.is_composed || heard.is_composed))
            && held.element_type == heard.element_type
            && (is_float || held.exponent == heard.exponent);
        let complete =
            (0..self.chunks).all(|chunk| self.pool.holders(stage, chunk) == heard.members);
        if is_usable && complete {
            self.apply(stage, heard);
            return true;
        }
        let until = heard.at.saturating_add(Nanos(self.config.copy_grace_ns));
        if is_usable && now < until {
            self.grace_until = until;
            return false;
        }
        self.stats.copies_unusable += u64::from(!is_usable);
        self.begin_repair(is_usable.then_some((stage, heard.members)));
        false
    }

    /// Fetches the next sum from the server's log, with what there is of it in copies.
    fn begin_repair(&mut self, from: Option<(StageIndex, Members)>) {
        let Some(stage) = self.pool.take() else { return };
        if let Some((copies, members)) = from {
            self.pool.adopt(stage, copies, members);
        }
        self.phase = Phase::Repair(stage);
        self.fetch.begin(self.chunks);
        self.is_dirty = true;
    }

    fn apply(&mut self, stage: StageIndex, heard: &Heard) {
        let rate = self.config.model.learning_rate;
        let sum = Sum {
            wire: self.pool.sums(stage),
            element_type: heard.element_type,
            exponent: heard.exponent,
            scale: scale(rate, self.model.version, heard.delay),
        };
        let count = heard.members.len() as u64;
        let norm = self.model.apply(&sum, count);
        self.stats.groups_applied += 1;
        self.stats.commits += count;
        self.tell_decided(heard, norm);
    }

    fn tell_decided(&mut self, heard: &Heard, norm: f64) {
        let version = Version(self.model.version);
        let decision = match heard.outcome {
            Outcome::Committed => Decision::Committed(version),
            Outcome::Dropped => Decision::Dropped,
            _ => Decision::Void,
        };
        self.tell(Event::Decided {
            group: heard.group,
            // All below it are applied, too.
            order: OrderNumber(heard.after - 1),
            decision,
            members: heard.members,
            norm,
            momentum_norm: self.model.momentum_norm,
        });
    }

    /// Keeps what the members' updates became, as the server does. Who was in a group that is not
    /// committed is known from its descriptor, or its row.
    fn note_outcomes(&mut self, heard: &Heard) {
        let held = self.held(heard.group).and_then(|at| self.groups[at].as_ref());
        let direct = direct_rank(heard.group).map_or(Members::EMPTY, Rank::bit);
        let granted = held.map_or(direct, |held| held.mask).union(heard.members);
        for rank in granted.iter() {
            let outcome = match (heard.members.contains(rank.bit()), heard.outcome) {
                (true, outcome) => outcome,
                (false, Outcome::Dropped) => Outcome::Dropped,
                (false, _) => Outcome::Void,
            };
            self.outcomes.push(rank, Decided::new(heard.group, outcome, self.model.version));
        }
    }

    /// All order numbers before this one are done with.
    fn move_on(&mut self, after: u64) {
        let passed = usize::try_from(after - self.next_order).unwrap_or(usize::MAX);
        let kept = self.decisions.len().saturating_sub(passed);
        self.decisions.rotate_left(self.decisions.len() - kept);
        self.decisions.range_mut(kept..).for_each(|place| *place = None);
        self.next_order = after;
        self.forget_past();
        self.owes_status = true;
        self.measure_lag();
        self.tell_fitness();
    }

    /// The fetched model takes the place of the old one.
    pub(super) fn adopt_draft(&mut self) {
        core::mem::swap(&mut self.model.w, &mut self.draft.w);
        core::mem::swap(&mut self.model.h, &mut self.draft.h);
        self.model.version = self.draft.version;
        self.model.measure_momentum();
        let old = core::mem::replace(&mut self.next_order, self.draft.next_order);
        if self.next_order < old {
            // A restarted server counts anew.
            self.server_order = self.next_order;
        }
        // Decisions that were heard of meanwhile stay, in their new places.
        let skip = self.next_order.checked_sub(old).and_then(|skip| usize::try_from(skip).ok());
        let len = self.decisions.len();
        match skip {
            Some(skip) if skip < len => {
                self.decisions.rotate_left(skip);
                self.decisions.range_mut(len - skip..).for_each(|place| *place = None);
            }
            _ => self.decisions.iter_mut().for_each(|place| *place = None),
        }
        self.phase = Phase::Follow;
        self.is_anew = false;
        self.is_patchy = true;
        self.tell_fitness();
        self.stats.snapshots += 1;
        self.forget_past();
        self.owes_status = true;
        self.measure_lag();
    }
}
