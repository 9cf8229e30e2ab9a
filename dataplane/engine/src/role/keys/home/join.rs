//! Who lives in which life of a table (SPEC#keys, "Joining").
//!
//! Invariant: a life has a higher number than every life that a process which lives in it knows,
//! and who is dead once stays dead. So a box that has lost everything waits until all have joined,
//! or have been silent for too long, before it begins one; who was dead it learns from those who
//! lived in the latest life that anybody knows.

use weft_wire::frame::UdpAddr;
use weft_wire::header::{HEADER_LEN, Header};
use weft_wire::hello::{Hello, Integrity, Phase, Reason};
use weft_wire::{Cookie, Epoch, Members, Nanos};

use super::Home;
use crate::drops::DropReason;
use crate::random::Draw;
use crate::role::keys::config::IN_FLIGHT_MAX;
use crate::role::keys::frames::{Outbox, Terms, To};
use crate::session::host::Peer;
use crate::session::token::Lives;

/// A process, as the box knows it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) peer: Peer<UdpAddr>,
    /// The last life that it knew when it joined, and who lived in that.
    pub(super) known_life: u16,
    /// What it says of accesses to a key in flight.
    window: u16,
    known_living: Members,
    pub(super) heard_at: Nanos,
    /// The count of its newest claim in this life.
    pub(super) claim_count: u64,
}

impl Member {
    pub(super) fn new(addr: UdpAddr) -> Self {
        Self {
            peer: Peer::new(addr, Lives::default()),
            known_life: 0,
            window: 0,
            known_living: Members::EMPTY,
            heard_at: Nanos(0),
            claim_count: 0,
        }
    }
}

impl Home {
    pub(super) fn take_hello(
        &mut self,
        now: Nanos,
        sender: u8,
        header: &Header,
        datagram: &[u8],
        out: &mut impl Outbox,
    ) -> Result<(), DropReason> {
        if header.members != Members(1 << sender) {
            return Err(DropReason::WrongSource);
        }
        let body = datagram.get(HEADER_LEN..).unwrap_or_default();
        let (hello, _) = Hello::parse(body).map_err(|_| DropReason::Handshake)?;
        let member = &self.members[usize::from(sender)];
        self.host.hear(usize::from(sender), &member.peer, &hello, datagram.len())?;
        match hello.phase {
            Phase::Hello => self.reply(sender, &hello, Phase::Challenge, out),
            Phase::Join if hello.window > IN_FLIGHT_MAX.into() => {
                return Err(DropReason::Handshake);
            }
            Phase::Join if self.life == 0 => {
                self.gather(now, sender, &hello);
                let phase = if self.life > 0 { Phase::Welcome } else { Phase::Waiting };
                self.reply(sender, &hello, phase, out);
            }
            Phase::Join => self.join(now, sender, &hello, out),
            _ => return Err(DropReason::Handshake),
        }
        Ok(())
    }

    /// A good JOIN while no life has begun.
    fn gather(&mut self, now: Nanos, sender: u8, hello: &Hello) {
        let known_life = u16::try_from(hello.epoch.0).unwrap_or(0);
        let member = self.member(sender);
        member.peer.join(hello.life);
        member.heard_at = now;
        (member.known_life, member.known_living) = (known_life, hello.mask);
        member.window = hello.window;
        if self.members.iter().all(|member| member.peer.lives().has_present()) {
            self.begin_first_life(now);
        }
    }

    /// A good JOIN in a life.
    fn join(&mut self, now: Nanos, sender: u8, hello: &Hello, out: &mut impl Outbox) {
        let bit = Members(1 << sender);
        let is_present = self.member(sender).peer.lives().is_present(hello.life);
        if self.living.contains(bit) && is_present {
            self.member(sender).heard_at = now;
            return self.reply(sender, hello, Phase::Welcome, out);
        }
        if self.living.contains(bit) {
            // Another life of it: the one that was known is over, and its rows with it.
            self.stats.deaths += 1;
            self.begin_life(now, self.living.without(bit));
        }
        self.reply(sender, hello, Phase::Refused, out);
    }

    /// Somebody has been silent for too long, or has not come.
    pub(super) fn bury(&mut self, now: Nanos) {
        if self.life == 0 {
            return self.begin_first_life(now);
        }
        let timeout = self.death_timeout;
        let silent =
            self.living_members().filter(|(_, member)| now.since(member.heard_at) >= timeout);
        let dead =
            silent.fold(Members::EMPTY, |dead, (process, _)| dead.union(Members(1 << process)));
        self.stats.deaths += u64::from(dead.0.count_ones());
        self.begin_life(now, self.living.without(dead));
    }

    /// Begins the first life of this box: of those that have joined, without those that are dead in
    /// the latest life that anybody knows, or know of none while others do.
    fn begin_first_life(&mut self, now: Nanos) {
        let latest = self.members.iter().map(|member| member.known_life).max().unwrap_or(0);
        let mut living = self.table.everybody();
        for (process, member) in (0u8..).zip(&self.members) {
            let bit = Members(1 << process);
            if !member.peer.lives().has_present() || latest > 0 && member.known_life == 0 {
                living = living.without(bit);
            }
            if latest > 0 && member.known_life == latest {
                let dead = self.table.everybody().without(member.known_living);
                living = living.without(dead);
            }
        }
        self.life = latest;
        self.begin_life(now, living);
    }

    /// Begins the next life, of these processes. Nobody may live in it: then nothing is taken.
    fn begin_life(&mut self, now: Nanos, living: Members) {
        let Some(life) = self.life.checked_add(1) else {
            // All numbers are used: nobody lives any more.
            self.living = Members::EMPTY;
            return;
        };
        (self.life, self.living, self.began_at) = (life, living, now);
        self.stats.lives += 1;
        let epoch = Epoch(life.into());
        for (process, member) in (0u8..).zip(&mut self.members) {
            member.claim_count = 0;
            if living.contains(Members(1 << process)) {
                member.heard_at = now;
                member.peer.draw_cookie(epoch, process, &mut self.random);
            } else {
                member.peer.end();
            }
        }
        self.cookie_down = Cookie::new(epoch, self.random.next_u32(Draw::CookieDown(0)));
        let table = self.table;
        let first_owner = (life == 1).then_some(|index| table.first_owner(index));
        self.directory.begin(living, first_owner);
        self.frames.clear();
        let cookies = [Cookie::default(), self.cookie_down];
        self.frames.set_terms(Terms { life, cookies });
    }

    fn reply(&mut self, process: u8, asked: &Hello, phase: Phase, out: &mut impl Outbox) {
        let member = &self.members[usize::from(process)];
        let mut body = self.host.reply(usize::from(process), &member.peer, asked, phase);
        let mut members = self.living;
        match phase {
            Phase::Welcome => {
                member.peer.tell(Epoch(self.life.into()), self.cookie_down, &mut body);
                (body.elements, body.shards) = (self.table.row_len, 1);
                body.fan_in = self.table.processes.into();
                // All have the same, or those that have less do not come in.
                let most = self.members.iter().map(|m| m.window).max();
                body.window = most.filter(|lanes| *lanes > 1).unwrap_or(0);
                (body.integrity, body.mask) = (Integrity::Crc32c, self.living);
            }
            Phase::Refused => {
                body.reason = Reason::MemberLost;
                members = Members(1 << process);
            }
            _ => {}
        }
        self.frames.send_handshake(To::Process(process), self.life, members, &body, out);
    }
}
