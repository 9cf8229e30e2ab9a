//! The handshake of a process with its box (SPEC#keys, "Joining").
//!
//! Invariant: the process that joins a life knows from then on nothing of those who are dead in it:
//! their localizes and accesses that wait here are gone, and their frames are refused.

use weft_wire::header::{HEADER_LEN, Header};
use weft_wire::hello::{Hello, Phase, Reason};
use weft_wire::keys::{Number, RowEpoch};
use weft_wire::{Epoch, Members, Nanos};

use super::state::Core;
use super::{Presence, Process, Sink};
use crate::drops::DropReason;
use crate::role::keys::frames::{Outbox, Terms, To, handshake};
use crate::role::keys::pool::NONE;
use crate::role::keys::store::Store;
use crate::session::client::Standing;

impl<S: Store> Process<S> {
    pub(super) fn take_hello(
        &mut self,
        now: Nanos,
        header: &Header,
        datagram: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let body = datagram.get(HEADER_LEN..).unwrap_or_default();
        let (hello, _) = Hello::parse(body).map_err(|_| DropReason::Handshake)?;
        if self.core.is_lost {
            return Err(DropReason::Unsolicited);
        }
        self.core.session.hear(&hello, datagram.len(), now)?;
        match hello.phase {
            Phase::Welcome => self.join(now, header, &hello, sink),
            Phase::Refused if hello.reason == Reason::MemberLost => {
                self.core.session.end();
                self.core.is_lost = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn join(
        &mut self,
        now: Nanos,
        header: &Header,
        welcome: &Hello,
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let core = &mut self.core;
        let life = u16::try_from(welcome.epoch.0).map_err(|_| DropReason::Handshake)?;
        let is_ours = welcome.mask.contains(Members(1 << core.me));
        let is_shape = u32::from(core.table.processes) == welcome.fan_in
            && core.table.row_len == welcome.elements
            && u16::from(core.table.in_flight) == welcome.window.max(1);
        if life == 0 || life < core.life || !is_ours || !is_shape {
            return Err(DropReason::Handshake);
        }
        core.session.open(welcome, header.group);
        if life > core.life {
            let is_first = core.life == 0;
            core.begin_life(now, life, welcome);
            if is_first && life == 1 {
                self.take_first_rows(sink);
            }
            self.core.resume(now);
        }
        Ok(())
    }

    /// In the first life each process has the rows of its range, all zero.
    fn take_first_rows(&mut self, sink: &mut impl Sink) {
        let Self { store, core } = self;
        for index in 0..core.table.key_count {
            let owner = core.table.first_owner(index);
            core.learn_owner(index, owner);
            if owner == core.me {
                store.with(index, |mut slot| {
                    core.install(&mut slot, index, RowEpoch::born(1), sink);
                });
            }
        }
    }
}

/// What a handshake says of the accesses to a key in flight: nothing of one.
fn window(in_flight: u8) -> u16 {
    if in_flight > 1 { in_flight.into() } else { 0 }
}

impl Core {
    pub(super) fn presence(&self) -> Presence {
        match self.session.standing() {
            _ if self.is_lost => Presence::Lost,
            Standing::Open => Presence::Present,
            _ => Presence::Joining,
        }
    }

    /// The box does not know this process, or has begun another life.
    pub(super) fn join_again(&mut self, now: Nanos) {
        if self.presence() == Presence::Present {
            self.session.begin(0, now);
        }
    }

    fn begin_life(&mut self, now: Nanos, life: u16, welcome: &Hello) {
        if self.life == 0 {
            self.run = welcome.cookie_down.0.into();
        }
        (self.life, self.living) = (life, welcome.mask);
        (self.cookie_up, self.cookie_down) = (welcome.cookie_up, welcome.cookie_down);
        self.frames.clear();
        let cookies = [self.cookie_up, self.cookie_down];
        self.frames.set_terms(Terms { life, cookies });
        self.fence();
        self.claims.begin(life == 1, now, self.resend.0);
        self.beat_at = now.saturating_add(self.beat);
        self.stats.lives += 1;
    }

    /// What the dead wanted here is gone.
    fn fence(&mut self) {
        for active in 0..u32::from(self.limits.active_keys_max) {
            if self.actives[active].index == NONE {
                continue;
            }
            for process in 0..self.table.processes {
                if self.is_living(process) {
                    continue;
                }
                *self.noted(active, process) = Number::NONE;
                let lanes = usize::from(self.table.in_flight);
                for waiting in usize::from(process) * lanes..(usize::from(process) + 1) * lanes {
                    let place = &mut self.remotes_of(active)[waiting];
                    let remote = core::mem::replace(place, NONE);
                    if remote != NONE {
                        self.remotes.give_back(remote);
                    }
                }
            }
        }
    }

    /// Sends all that is open, in the new life.
    fn resume(&mut self, now: Nanos) {
        for active in 0..u32::from(self.limits.active_keys_max) {
            if self.actives[active].index != NONE {
                for lane in 0..self.table.in_flight {
                    self.flight_mut(active, lane).due_at = now;
                }
                self.actives[active].pause = self.resend.0;
                self.timers.set(active as usize, now);
            }
        }
        for kept in 0..u32::from(self.limits.transfers_max) {
            if self.kept[kept].index != NONE {
                self.kept[kept].pause = self.resend.0;
                self.kept_timers.set(kept as usize, now);
            }
        }
    }

    /// Sends the handshake datagram that is due, if one is.
    pub(super) fn shake_hands(&mut self, now: Nanos, out: &mut impl Outbox) {
        let Some(mut body) = self.session.poll(now) else { return };
        if body.phase == Phase::Join {
            (body.epoch, body.mask) = (Epoch(self.life.into()), self.living);
            body.window = window(self.table.in_flight);
        }
        let datagram = handshake(&self.table, 0, Members(1 << self.me), &body);
        out.send(To::Home, &datagram);
    }
}
