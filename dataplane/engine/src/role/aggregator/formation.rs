//! Who is a member, since when, and when a lease opens (SPEC#handshake).
//!
//! Decides what a good JOIN or CLOSE comes to; frames, tokens and cookies are no concern of it.
//! Invariant: slots belong to one epoch; a member of an earlier life or epoch cannot reach them
//! (I1, I6).

use weft_wire::hello::{Hello, Phase as Step, Reason};
use weft_wire::{Members, Nanos, Rank};

use super::Aggregator;
use super::lease::{Lease, Member, Phase};
use crate::admit::quota::formation_bytes;
use crate::random::{Draw, Owner};
use crate::role::LeaseIndex;
use crate::slot::counter::Transition;

/// What to answer a handshake datagram with.
pub(super) struct Answer {
    pub(super) phase: Step,
    pub(super) reason: Reason,
    pub(super) members: Members,
}

impl Answer {
    pub(super) const fn new(phase: Step, members: Members) -> Self {
        Self { phase, reason: Reason::None, members }
    }

    pub(super) const fn refused(reason: Reason, members: Members) -> Self {
        Self { phase: Step::Refused, reason, members }
    }
}

impl Aggregator {
    pub(super) fn join(
        &mut self,
        index: LeaseIndex,
        rank: Rank,
        hello: &Hello,
        now: Nanos,
    ) -> Answer {
        let lease = &mut self.leases[index.index()];
        let bit = rank.bit();
        if hello.session != 0
            && let Some((session, who)) = lease.lost
            && session == hello.session
        {
            return Answer::refused(Reason::MemberLost, who);
        }
        if lease.phase != Phase::Forming {
            let member = &lease.members[rank.index()];
            if member.peer.lives().is_present(hello.life) && lease.joined.contains(bit) {
                return lease.welcome_or_waiting();
            }
            let rejoins = member.is_box && hello.session == lease.session;
            if rejoins && lease.phase == Phase::Open {
                let member = &mut lease.members[rank.index()];
                member.begin_life(hello);
                let random = self.random.of(Owner::Row(lease.row.row));
                member.peer.draw_cookie(lease.epoch, rank.number(), random);
                lease.renew_expected();
                lease.closed = lease.closed.without(bit);
                return lease.welcome_or_waiting();
            }
            if hello.session != 0 {
                // A leftover of an earlier session cannot disturb this one.
                return Answer::refused(Reason::OtherSession, bit);
            }
            if lease.closed.contains(bit) && lease.closed != lease.mask {
                // The others may still need the last window; let them finish.
                return Answer::new(Step::Waiting, lease.closed);
            }
            if lease.closed != lease.mask {
                lease.lost = Some((lease.session, bit));
                self.stats.sessions_broken += 1;
            }
            lease.end_session();
            if let Some(upstream) = &mut lease.upstream {
                upstream.disarm();
            }
        }
        self.register(index, rank, hello, now)
    }

    fn register(&mut self, index: LeaseIndex, rank: Rank, hello: &Hello, now: Nanos) -> Answer {
        let lease = &mut self.leases[index.index()];
        let bit = rank.bit();
        let others = lease.joined.without(bit);
        let waiting_for = others.iter().next().map(|other| lease.members[other.index()].session);
        match waiting_for {
            None => lease.joined = Members::EMPTY,
            Some(session) if session == hello.session => {}
            Some(0) => return Answer::refused(Reason::MemberLost, others),
            Some(session) if hello.session == 0 => {
                lease.lost = Some((session, bit));
                lease.end_session();
                self.stats.sessions_broken += 1;
            }
            Some(_) => return Answer::refused(Reason::OtherSession, others),
        }
        lease.members[rank.index()].begin_life(hello);
        lease.joined = lease.joined.union(bit);
        if lease.joined != lease.mask {
            return lease.welcome_or_waiting();
        }
        let fresh = hello.session == 0;
        let random = self.random.of(Owner::Row(lease.row.row));
        lease.session = if fresh { random.next_non_zero(Draw::Session) } else { hello.session };
        lease.begin_epoch(random);
        let cost_bytes = formation_bytes(lease.window, lease.members.len());
        lease.job(&mut self.jobs).charge_for(now, cost_bytes);
        self.stats.formations += 1;
        self.stats.transitions.count(if fresh {
            Transition::SeedFresh
        } else {
            Transition::SeedResumed
        });
        if lease.upstream.is_some() {
            lease.phase = Phase::AwaitingRoot;
            let session = if fresh { 0 } else { lease.session };
            lease.arm_upstream(session, &mut self.random);
        } else if self.is_behind_switch {
            lease.phase = Phase::AwaitingSwitch;
        } else {
            lease.phase = Phase::Open;
            lease.renew_expected();
        }
        lease.welcome_or_waiting()
    }
}

impl Lease {
    fn welcome_or_waiting(&self) -> Answer {
        match self.phase {
            Phase::Open => Answer::new(Step::Welcome, self.mask),
            Phase::Forming | Phase::AwaitingRoot | Phase::AwaitingSwitch => {
                Answer::new(Step::Waiting, self.joined)
            }
        }
    }

    pub(super) fn close(&mut self, rank: Rank) -> Answer {
        self.closed = self.closed.union(rank.bit());
        let is_waiting_for_root = self.closed == self.mask && !self.is_closed_upstream();
        let members = if is_waiting_for_root { Members::EMPTY } else { self.closed };
        Answer::new(Step::Closed, members)
    }
}

impl Member {
    fn begin_life(&mut self, hello: &Hello) {
        self.peer.join(hello.life);
        self.session = hello.session;
    }
}
