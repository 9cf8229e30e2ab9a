//! What the box does: it knows where rows are, or learns it again, and is never the truth.

use super::Rules;
use super::message::{Claim, Epoch, Frame, Number, PROCESS_COUNT, Row, To};

/// What the box knows of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Directory {
    pub(super) life: u8,
    pub(super) living: u8,
    /// The highest epoch heard of, and at whom.
    pub(super) owner: Option<(u8, Epoch)>,
    /// The last localizer.
    pub(super) next: Option<u8>,
    /// True once all have claimed in this life, and one of them holds the row.
    pub(super) is_settled: bool,
    /// Per process its newest claim; counter 0 is none. Not kept once the key is settled.
    pub(super) claims: [Claim; PROCESS_COUNT],
    /// What the home of the key has on its disk.
    pub(super) checkpoint: Row,
    /// Of a wrong variant: who has claimed another key of the range.
    pub(super) claimed_other: u8,
    /// Of another: the localizes that were forwarded.
    forwarded: [Number; PROCESS_COUNT],
}

impl Directory {
    /// Returns a box of the first life, which knows that `owner` has the row from the start.
    pub(super) fn new(living: u8, owner: u8, epoch: Epoch) -> Self {
        let empty = Self {
            life: 0,
            living,
            owner: None,
            next: None,
            is_settled: false,
            claims: Default::default(),
            checkpoint: Row::default(),
            claimed_other: 0,
            forwarded: Default::default(),
        };
        Self { life: 1, owner: Some((owner, epoch)), is_settled: true, ..empty }
    }

    /// Begins a new life, with these processes.
    pub(super) fn restart(&mut self, living: u8) {
        *self = Self {
            life: self.life + 1,
            owner: None,
            is_settled: false,
            checkpoint: self.checkpoint,
            ..Self::new(living, 0, Epoch::NONE)
        };
    }

    pub(super) const fn is_living(&self, process: u8) -> bool {
        self.living >> process & 1 == 1
    }

    /// Returns where a frame goes, if that is known.
    fn route(&mut self, rules: Rules, repeat: bool) -> Option<u8> {
        let owner = self.owner.map(|(owner, _)| owner);
        if repeat && rules != Rules::RepeatsToNext {
            self.next = None;
        }
        self.next.or(owner)
    }

    fn learn_owner(&mut self, rules: Rules, process: u8, epoch: Epoch) {
        let is_newer = self.owner.is_none_or(|(_, known)| known < epoch);
        if epoch.is_some() && (is_newer || rules == Rules::LastWord) {
            self.owner = Some((process, epoch));
        }
    }

    /// Takes a claim; returns the copies in it that are void.
    fn take_claim(&mut self, rules: Rules, from: u8, mut claim: Claim) -> Vec<Epoch> {
        self.learn_owner(rules, from, claim.held);
        if rules == Rules::KeptIsOwnership {
            for &(to, epoch) in claim.kept.iter() {
                self.learn_owner(rules, to, epoch);
                self.is_settled = true;
            }
        }
        if rules == Rules::ClaimsWithoutKept {
            claim.kept.retain(|_| false);
        }
        if !self.is_settled {
            let known = &mut self.claims[usize::from(from)];
            if known.counter < claim.counter || rules == Rules::ClaimsWithoutCounter {
                *known = claim;
            }
            if self.is_complete(rules) && self.lost_copy().is_none() && self.is_held() {
                self.is_settled = true;
                self.claims = Default::default();
            }
        }
        if !self.is_settled {
            return Vec::new();
        }
        let newest = self.owner.map_or(Epoch::NONE, |(_, epoch)| epoch);
        let void = claim.kept.iter().filter(|&&(to, epoch)| !self.is_living(to) && epoch <= newest);
        void.map(|&(_, epoch)| epoch).collect()
    }

    /// True once all who live have claimed in this life, and no copy is on its way to one of them.
    fn is_complete(&self, rules: Rules) -> bool {
        let is_open = |claim: &Claim| claim.kept.iter().any(|&(to, _)| self.is_living(to));
        self.living_claims().all(|(process, claim)| {
            let has_claimed = claim.counter > 0 || self.claimed_other >> process & 1 == 1;
            (has_claimed || rules == Rules::NobodyOwnsEarly) && !is_open(claim)
        })
    }

    fn is_held(&self) -> bool {
        self.living_claims().any(|(_, claim)| claim.held.is_some())
    }

    fn living_claims(&self) -> impl Iterator<Item = (u8, &Claim)> {
        (0..).zip(&self.claims).filter(|&(process, _)| self.is_living(process))
    }

    /// Returns the newest copy that is kept for a dead process, and by whom, if it is newer than
    /// any row.
    fn lost_copy(&self) -> Option<(u8, Epoch)> {
        let held = self.living_claims().map(|(_, claim)| claim.held).max();
        let kept = self.living_claims().flat_map(|(process, claim)| {
            claim.kept.iter().map(move |&(_, epoch)| (process, epoch))
        });
        let newest = kept.max_by_key(|&(_, epoch)| epoch);
        newest.filter(|&(_, epoch)| held.is_none_or(|held| held < epoch))
    }
}

impl Directory {
    /// Takes a frame; returns what is sent.
    pub(super) fn arrive(&mut self, rules: Rules, frame: Frame) -> Vec<Frame> {
        let mut sent = Vec::new();
        match frame {
            Frame::Access { to: To::Box { life, repeat }, from, access, low }
                if self.takes(life, from) =>
            {
                let owner = self.route(rules, repeat).map(To::Process);
                sent.extend(owner.map(|to| Frame::Access { to, from, access, low }));
            }
            Frame::Localize { to: To::Box { life, repeat }, from, number }
                if self.takes(life, from) =>
            {
                let owner = self.route_localize(rules, repeat, from, number).map(To::Process);
                sent.extend(owner.map(|to| Frame::Localize { to, from, number }));
            }
            Frame::AckAtBox { life, from, giver, epoch, claim } if self.takes(life, from) => {
                self.learn_owner(rules, from, epoch);
                let void = self.take_claim(rules, from, claim);
                sent.extend(void.into_iter().map(|epoch| Frame::Void { to: from, epoch }));
                sent.push(Frame::Ack { to: giver, epoch });
            }
            Frame::Claim { life, from, claim } => {
                let any_life = rules == Rules::ClaimsOfAnyLife && self.is_living(from);
                if self.takes(life, from) || any_life {
                    let void = self.take_claim(rules, from, claim);
                    sent.extend(void.into_iter().map(|epoch| Frame::Void { to: from, epoch }));
                }
            }
            _ => {}
        }
        sent
    }

    /// True for frames of this life, from those who live in it.
    const fn takes(&self, life: u8, from: u8) -> bool {
        life == self.life && self.is_living(from)
    }

    fn route_localize(
        &mut self,
        rules: Rules,
        repeat: bool,
        from: u8,
        number: Number,
    ) -> Option<u8> {
        if rules == Rules::LocalizeForwardedOnce {
            let forwarded = &mut self.forwarded[usize::from(from)];
            if std::mem::replace(forwarded, number) == number {
                return None;
            }
        }
        let to = self.route(rules, repeat)?;
        if !repeat {
            self.next = Some(from);
        }
        Some(to)
    }

    /// Returns what the box sends without being asked: to whom it says that nobody has the row.
    pub(super) fn frame(&self, rules: Rules) -> Option<Frame> {
        if self.is_settled || !self.is_complete(rules) {
            return None;
        }
        let life = self.life;
        let home = u8::try_from(self.living.trailing_zeros()).expect("few processes");
        Some(match self.lost_copy() {
            Some((to, epoch)) => Frame::TakeBack { to, life, epoch },
            None => Frame::Restore { to: home, life, row: self.checkpoint },
        })
    }
}
