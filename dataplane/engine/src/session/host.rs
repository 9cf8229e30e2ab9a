//! The answering end of a session (SPEC#handshake): a box towards its members, and a host of
//! channels.
//!
//! Decides which handshake datagram of a peer is good, and says in the reply what all replies say.
//! A HELLO costs no state: only a JOIN that proves a fresh round trip does. What a JOIN opens, and
//! when, is decided above: a channel opens at once, a lease when all have joined.
//!
//! It sees bodies, and addresses that it only compares, whatever carries them. It has no timer;
//! randomness is an argument. A few words for each peer of a table, nothing for strangers. O(1) per
//! call.

use weft_wire::hello::{Hello, Phase};
use weft_wire::{Cookie, Epoch, JobId};

use super::token::{Lives, TokenInput, token};
use crate::drops::DropReason;
use crate::random::{Draw, Random};

/// One peer of a host's table, at an address of the kind `A`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer<A> {
    addr: A,
    lives: Lives,
    cookie_up: Cookie,
}

impl<A: Copy + PartialEq> Peer<A> {
    /// A peer that has not joined yet.
    pub(crate) fn new(addr: A, lives: Lives) -> Self {
        Self { addr, lives, cookie_up: Cookie::default() }
    }

    pub(crate) fn addr(&self) -> A {
        self.addr
    }

    pub(crate) fn lives(&self) -> &Lives {
        &self.lives
    }

    /// What its frames carry.
    pub(crate) fn cookie_up(&self) -> Cookie {
        self.cookie_up
    }

    /// Checks that a datagram comes from where the peer is.
    pub(crate) fn check_source(&self, source: A) -> Result<(), DropReason> {
        if self.addr == source { Ok(()) } else { Err(DropReason::WrongSource) }
    }

    /// Checks that a frame carries the peer's cookie of this epoch, or says which of the two it is
    /// not. Nothing is of a session that is not open.
    pub(crate) fn check_cookie(
        &self,
        cookie: Cookie,
        epoch: Epoch,
        is_open: bool,
    ) -> Result<(), DropReason> {
        if !is_open || !cookie.is_of(epoch) {
            return Err(DropReason::StaleEpoch);
        }
        if cookie == self.cookie_up { Ok(()) } else { Err(DropReason::BadCookie) }
    }

    /// A good JOIN of `life`. False when it was present already.
    pub(crate) fn join(&mut self, life: u64) -> bool {
        self.lives.join(life)
    }

    /// The present life has ended: nothing that it has sent lets it join again.
    pub(crate) fn end(&mut self) {
        self.lives.end();
    }

    /// Says in a WELCOME what its frames and the host's carry in this epoch.
    pub(crate) fn tell(&self, epoch: Epoch, cookie_down: Cookie, welcome: &mut Hello) {
        welcome.epoch = epoch;
        (welcome.cookie_up, welcome.cookie_down) = (self.cookie_up, cookie_down);
    }

    /// Draws the cookie of a new epoch or life of this peer, by rank or place.
    pub(crate) fn draw_cookie(&mut self, epoch: Epoch, peer: u8, random: &mut Random) {
        self.cookie_up = Cookie::new(epoch, random.next_u32(Draw::CookieUp(peer)));
    }
}

/// The handshake of one row in one lane, in one life of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    pub(crate) job: JobId,
    pub(crate) row: u16,
    pub(crate) lane: u16,
    /// Random per life of the host.
    pub(crate) secret: (u64, u64),
}

impl Host {
    /// Judges what came up from the peer with this rank, in a datagram of `datagram_len` bytes of
    /// UDP payload. A HELLO that is good is answered CHALLENGE; what a good JOIN or CLOSE comes to
    /// is decided above.
    ///
    /// # Errors
    /// The drop reason.
    pub(crate) fn hear<A: Copy + PartialEq>(
        &self,
        rank: usize,
        peer: &Peer<A>,
        hello: &Hello,
        datagram_len: usize,
    ) -> Result<(), DropReason> {
        // A padded probe is answered with as many bytes as came, never more.
        let padded = usize::from(hello.probe_len);
        if padded != 0 && padded != datagram_len {
            return Err(DropReason::Length);
        }
        match hello.phase {
            Phase::Hello => Ok(()),
            Phase::Join if hello.life != 0 && hello.token == self.token(rank, peer, hello.life) => {
                Ok(())
            }
            Phase::Join => Err(DropReason::Token),
            Phase::Close | Phase::Listen | Phase::Deaf if hello.life == peer.lives.latest() => {
                Ok(())
            }
            Phase::Close | Phase::Listen | Phase::Deaf => Err(DropReason::StaleEpoch),
            _ => Err(DropReason::Handshake),
        }
    }

    /// What every reply of this phase to `asked` says. The rest is the owner's.
    pub(crate) fn reply<A: Copy + PartialEq>(
        &self,
        rank: usize,
        peer: &Peer<A>,
        asked: &Hello,
        phase: Phase,
    ) -> Hello {
        let token = match phase {
            Phase::Challenge => self.token(rank, peer, asked.life),
            _ => asked.token,
        };
        let Hello { probe_len, life, .. } = *asked;
        Hello { probe_len, life, token, ..Hello::new(phase) }
    }

    fn token<A>(&self, rank: usize, peer: &Peer<A>, life: u64) -> u64 {
        let Self { job, row, lane, secret } = *self;
        token(secret, &TokenInput { job, row, lane, rank, life }, &peer.lives)
    }
}

#[cfg(test)]
mod tests;
