//! Applying decisions in their sequence (SPEC#replica): from copies, from a finished repair, or not
//! yet.

use weft_control::{Decision, Event, OrderNumber, Version};
use weft_wire::header::{ElementType, Outcome};
use weft_wire::{GroupId, Members, Nanos, Rank};

use super::decisions::PendingDecision;
use super::job::{Job, Phase};
use crate::role::model::{Entry, StageIndex, direct_rank};

impl Job {
    /// Applies all decisions that can be applied now.
    pub(super) fn advance(&mut self, now: Nanos) {
        self.grace_until = Nanos::MAX;
        while let Some(decision) = self.decisions.first() {
            if matches!(self.phase, Phase::Ask | Phase::Copy { .. }) {
                return;
            }
            if decision.outcome != Outcome::Committed {
                self.apply(&decision, None);
            } else if let Some(stage) = self.find_sum(now, &decision) {
                self.apply(&decision, Some(stage));
            } else {
                return;
            }
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

    /// The stage that has all of a decision's sum. If none has, the sum is fetched, unless copies
    /// of it may still come.
    fn find_sum(&mut self, now: Nanos, decision: &PendingDecision) -> Option<StageIndex> {
        let PendingDecision { group, members, .. } = *decision;
        if self.phase == Phase::Repair {
            return self.copies.whole_repair(members);
        }
        let Some(copy) = self.copies.get(group) else {
            self.begin_repair(None, members);
            return None;
        };
        let is_float = copy.element_type == ElementType::F32;
        let is_usable = (!is_float || !(copy.is_composed || decision.is_composed))
            && copy.element_type == decision.element_type
            && (is_float || copy.exponent == decision.exponent);
        let whole = self.copies.whole(group, members).filter(|_| is_usable);
        if whole.is_some() {
            return whole;
        }
        let until = decision.at.saturating_add(Nanos(self.config.copy_grace_ns));
        if is_usable && now < until {
            self.grace_until = until;
            return None;
        }
        self.stats.copies_unusable += u64::from(!is_usable);
        self.begin_repair(is_usable.then_some(group), members);
        None
    }

    /// Fetches the next sum from the server's log, with what there is of it in copies of `id`.
    fn begin_repair(&mut self, id: Option<GroupId>, members: Members) {
        if self.copies.begin_repair(id, members) {
            self.phase = Phase::Repair;
            self.fetch.begin(self.chunks);
            self.is_dirty = true;
        }
    }

    /// Does what the server did, and keeps what the members' updates became. Who was in a group
    /// that is not committed is known from its descriptor, or its row.
    fn apply(&mut self, decision: &PendingDecision, stage: Option<StageIndex>) {
        let PendingDecision { after, group, members, .. } = *decision;
        let direct = direct_rank(group).map_or(Members::EMPTY, Rank::bit);
        let granted = self.copies.get(group).map_or(direct, |copy| copy.mask).union(members);
        let is_dropped = decision.outcome == Outcome::Dropped;
        let old = if is_dropped { granted } else { Members::EMPTY };
        let entry =
            Entry { after, group, members, audience: granted, old, held_by: None, position: 0 };
        let sum = stage.map(|stage| {
            let PendingDecision { element_type, exponent, delay, .. } = *decision;
            self.ledger.sum(self.copies.sums(stage), element_type, exponent, delay)
        });
        let old_order = self.ledger.next_order();
        let norm = self.ledger.decide(&entry, sum.as_ref());
        if stage.is_some() {
            self.stats.groups_applied += 1;
            self.stats.commits += members.len() as u64;
        } else {
            self.stats.voids += 1;
        }
        if stage.is_some() && self.phase == Phase::Repair {
            self.copies.end_repair();
            self.phase = Phase::Follow;
        }
        self.tell_decided(decision, norm);
        self.move_on(old_order);
    }

    fn tell_decided(&mut self, decision: &PendingDecision, norm: f64) {
        let model = self.ledger.model();
        let momentum_norm = model.momentum_norm();
        let outcome = match decision.outcome {
            Outcome::Committed => Decision::Committed(Version(model.version())),
            Outcome::Dropped => Decision::Dropped,
            _ => Decision::Void,
        };
        self.tell(Event::Decided {
            group: decision.group,
            // All below it are applied, too.
            order: OrderNumber(decision.after - 1),
            decision: outcome,
            members: decision.members,
            norm,
            momentum_norm,
        });
    }

    /// The fetched model takes the place of the old one.
    pub(super) fn adopt_draft(&mut self) {
        let old_order = self.ledger.next_order();
        self.draft.install(&mut self.ledger);
        self.phase = Phase::Follow;
        self.is_anew = false;
        self.fitness.note_snapshot();
        self.stats.snapshots += 1;
        self.move_on(old_order);
    }

    /// The sequence has moved on from `old_order`.
    fn move_on(&mut self, old_order: u64) {
        let next_order = self.ledger.next_order();
        self.decisions.pass(old_order, next_order);
        self.copies.remove_below(next_order);
        self.owes_status = true;
        self.measure_lag();
        self.tell_fitness();
    }
}
