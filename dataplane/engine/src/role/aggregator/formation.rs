//! The handshake: who is a member, since when, and when a lease opens (SPEC#handshake).
//!
//! Invariant: slots belong to one epoch; a member of an earlier life or epoch cannot reach them
//! (I1, I6). A HELLO costs no state; only a JOIN that proves a fresh round trip does.

use weft_wire::Members;
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome, Packet};
use weft_wire::hello::{Hello, Integrity, Phase as Step, Reason};
use weft_wire::{ChunkIndex, Cookie, MacAddr, Nanos, Rank};

use super::lease::{Lease, Phase};
use super::{Aggregator, Incoming, dispatch_out};
use crate::admit::quota::{Payer, formation_bytes};
use crate::drops::DropReason;
use crate::role::{LeaseIndex, Verdict};
use crate::send::datagram::is_intact;
use crate::session::token::{TokenInput, token};
use crate::slot::counter::Transition;

/// What to answer a handshake datagram with.
struct Answer {
    phase: Step,
    reason: Reason,
    members: Members,
}

impl Answer {
    const fn new(phase: Step, members: Members) -> Self {
        Self { phase, reason: Reason::None, members }
    }

    const fn refused(reason: Reason, members: Members) -> Self {
        Self { phase: Step::Refused, reason, members }
    }
}

impl Aggregator {
    pub(super) fn handle_hello(
        &mut self,
        index: LeaseIndex,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, DropReason> {
        let lease = &self.leases[index.index()];
        let rank = lease.named_by(&incoming.header)?;
        self.check_lane(lease, rank, incoming)?;
        let datagram_len = incoming.udp.payload_len();
        let mac = incoming.udp.source_mac(incoming.buffer);
        let range = incoming.udp.payload_range();
        if !is_intact(Integrity::Crc32c, incoming.buffer, range.clone()) {
            return Err(DropReason::Integrity);
        }
        let body = range.start + HEADER_LEN..range.end;
        let (hello, _) =
            Hello::parse(&incoming.buffer[body.clone()]).map_err(|_| DropReason::Handshake)?;
        // A padded probe is answered with as many bytes as came, never more.
        let padded = usize::from(hello.probe_len);
        if padded != 0 && padded != datagram_len {
            return Err(DropReason::Length);
        }
        // A HELLO shows nothing; a token or the life shows that a member speaks, whose job pays.
        let frame_len = incoming.len_bytes();
        let answer = match hello.phase {
            Step::Hello => {
                self.pay(frame_len, incoming)?;
                Answer::new(Step::Challenge, Members::EMPTY)
            }
            Step::Join => {
                if hello.life == 0 || hello.token != self.token(lease, rank, hello.life) {
                    return Err(DropReason::Token);
                }
                incoming.payer = Payer::Job;
                self.pay(frame_len.max(lease.welcome_len_bytes()), incoming)?;
                let (_, bitmap) =
                    Hello::parse(&incoming.buffer[body]).map_err(|_| DropReason::Handshake)?;
                let lease = &mut self.leases[index.index()];
                lease.load_held(rank, &hello, bitmap)?;
                let member = &mut lease.members[rank.index()];
                member.encap = member.encap.with_target_mac(mac);
                self.join(index, rank, &hello, incoming.now)
            }
            Step::Close => {
                if !lease.is_open_to(rank, hello.life) {
                    return Err(DropReason::StaleEpoch);
                }
                incoming.payer = Payer::Job;
                self.pay(frame_len, incoming)?;
                self.leases[index.index()].close(rank)
            }
            _ => return Err(DropReason::Handshake),
        };
        self.answer_hello(index, rank, mac, &hello, &answer, incoming.buffer)
    }

    fn token(&self, lease: &Lease, rank: Rank, life: u64) -> u64 {
        let input = TokenInput {
            job: lease.row.job,
            row: lease.row.row,
            lane: self.lane,
            rank: rank.index(),
            life,
        };
        token(self.secret, &input, &lease.members[rank.index()].lives)
    }

    fn join(&mut self, index: LeaseIndex, rank: Rank, hello: &Hello, now: Nanos) -> Answer {
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
            if member.lives.is_present(hello.life) && lease.joined.contains(bit) {
                return lease.welcome_or_waiting();
            }
            let rejoins = member.is_box && hello.session == lease.session;
            if rejoins && lease.phase == Phase::Open {
                let cookie = Cookie::new(lease.epoch, self.random.next_u32());
                lease.members[rank.index()].begin_life(hello);
                lease.members[rank.index()].cookie_up = cookie;
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
            lease.disarm_upstream();
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
        lease.session = if fresh { self.random.next_non_zero() } else { hello.session };
        lease.begin_epoch(&mut self.random);
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
        } else {
            lease.phase = Phase::Open;
            lease.renew_expected();
        }
        lease.welcome_or_waiting()
    }

    fn answer_hello(
        &self,
        index: LeaseIndex,
        rank: Rank,
        mac: MacAddr,
        hello: &Hello,
        answer: &Answer,
        buffer: &mut [u8],
    ) -> Result<Verdict, DropReason> {
        let lease = &self.leases[index.index()];
        let member = &lease.members[rank.index()];
        let mut body = Hello::new(answer.phase);
        body.reason = answer.reason;
        body.probe_len = hello.probe_len;
        body.life = hello.life;
        body.shards = self.shards;
        body.mask = lease.mask;
        body.token = match answer.phase {
            Step::Challenge => self.token(lease, rank, hello.life),
            _ => hello.token,
        };
        let mut bitmap: &[u8] = &[];
        if answer.phase == Step::Welcome {
            body.epoch = lease.epoch;
            body.session = lease.session;
            body.cookie_up = member.cookie_up;
            body.cookie_down = lease.cookie_down;
            body.window = lease.window;
            body.elements = lease.row.elements;
            body.integrity = lease.row.integrity;
            body.overflow = lease.row.overflow;
            body.fan_in = lease.row.fan_in;
            body.step_count = lease.step_count;
            body.exponent = lease.row.exponent.unwrap_or(0);
            body.exponent_fixed = lease.row.exponent.is_some();
            body.low_step = lease.wanted.low();
            if !lease.wanted.is_empty() {
                bitmap = lease.wanted.bitmap();
                body.step_bits = u16::try_from(lease.wanted.capacity()).expect("at most 8192 bits");
            }
        }
        let encap = member.encap.with_target_mac(mac);
        let header = Header {
            kind: Kind::Hello,
            flags: Flags::NONE,
            outcome: Outcome::None,
            job: lease.row.job,
            cookie: Cookie::default(),
            group: lease.group,
            chunk: ChunkIndex(u32::from(self.lane)),
            element_type: ElementType::None,
            operation: Operation::None,
            exponent: 0,
            count: 0,
            members: answer.members,
        };
        let start = encap.header_len();
        let datagram_len = HEADER_LEN + body.body_len();
        // The table sees to it that every handshake fits the MTU, and a buffer holds that.
        let datagram = buffer.get_mut(start..start + datagram_len).ok_or(DropReason::Length)?;
        let mut packet = Packet::new_unchecked(datagram);
        header.emit(&mut packet);
        body.emit(bitmap, packet.payload_mut());
        let len = dispatch_out(&encap, Integrity::Crc32c, buffer, datagram_len);
        Ok(Verdict::Send { len })
    }
}

impl Lease {
    /// Notes which sums a joining member holds. A repeat of a JOIN that the lease has already
    /// acted on changes nothing: what it says is old news.
    fn load_held(&mut self, rank: Rank, hello: &Hello, bitmap: &[u8]) -> Result<(), DropReason> {
        let settled = self.phase != Phase::Forming
            && self.joined.contains(rank.bit())
            && self.members[rank.index()].lives.is_present(hello.life);
        if settled {
            return Ok(());
        }
        let held = &mut self.members[rank.index()].held;
        if hello.session == 0 {
            held.reset(0);
            return Ok(());
        }
        if hello.low_step > self.step_count || !held.load(hello.low_step, bitmap) {
            return Err(DropReason::Handshake);
        }
        Ok(())
    }

    fn welcome_or_waiting(&self) -> Answer {
        match self.phase {
            Phase::Open => Answer::new(Step::Welcome, self.mask),
            Phase::Forming | Phase::AwaitingRoot => Answer::new(Step::Waiting, self.joined),
        }
    }

    /// True while this life of a member is in the open lease.
    fn is_open_to(&self, rank: Rank, life: u64) -> bool {
        self.phase == Phase::Open && self.members[rank.index()].lives.is_present(life)
    }

    fn close(&mut self, rank: Rank) -> Answer {
        self.closed = self.closed.union(rank.bit());
        let is_waiting_for_root = self.closed == self.mask && !self.is_closed_upstream();
        let members = if is_waiting_for_root { Members::EMPTY } else { self.closed };
        Answer::new(Step::Closed, members)
    }
}

impl super::lease::Member {
    fn begin_life(&mut self, hello: &Hello) {
        self.lives.join(hello.life);
        self.session = hello.session;
    }
}
