//! A leaf's membership of the root's lease (SPEC#two-levels).
//!
//! The leaf is a member like any other: it says HELLO, JOINs with the sums it keeps, hands over
//! what the root wants. It has timers for these only; its sums are sent again when the completing
//! rank repeats itself, so slots stay free of timers.

mod send;

use arrayvec::ArrayVec;
use core::net::SocketAddr;

use weft_wire::frame::{Encap, Endpoint};
use weft_wire::header::{Kind, Outcome, Packet};
use weft_wire::hello::{Hello, Phase as Step, Reason};
use weft_wire::{Cookie, GroupId, JobId, Members, Nanos};

use super::lease::{Lease, Phase};
use super::{Aggregator, Incoming};
use crate::admit::quota::Payer;
use crate::drops::DropReason;
use crate::random::SplitMix64;
use crate::role::{LeaseIndex, Verdict};
use crate::steps::StepSet;
use crate::table::{BoxShape, ParentConfig, RowConfig};

/// First pause between handshake datagrams; doubles up to [`HANDSHAKE_PAUSE_MAX`].
const HANDSHAKE_PAUSE: Nanos = Nanos::from_millis(2);
/// Longest pause between handshake datagrams.
const HANDSHAKE_PAUSE_MAX: Nanos = Nanos::from_millis(100);
/// Handshake datagrams without an answer before the leaf begins again with a HELLO.
const UNANSWERED_MAX: u32 = 4;
/// Sums that wait to be sent up again; a further one is dropped, for its rank repeats itself.
const RESEND_MAX: usize = 64;

/// Where a leaf stands with the root.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Standing {
    Idle,
    Hello,
    Join,
    Open,
    Closing,
    Closed,
}

/// A leaf's end of its path to the root, in one lane.
#[derive(Debug)]
pub(super) struct Upstream {
    encap: Encap,
    root: SocketAddr,
    job: JobId,
    row: u16,
    bit: Members,
    mask: Members,
    standing: Standing,
    life: u64,
    token: u64,
    session: u64,
    cookie_up: Cookie,
    cookie_down: Cookie,
    group: GroupId,
    next_at: Nanos,
    pause: Nanos,
    /// Handshake datagrams since the root last answered one.
    unanswered: u32,
    resend: ArrayVec<u32, RESEND_MAX>,
    /// Sums that the root wants and this leaf keeps.
    hand_over: StepSet,
    hand_over_next: u32,
}

impl Upstream {
    pub(super) fn new(
        shape: &BoxShape,
        row: &RowConfig,
        parent: &ParentConfig,
        lane: u16,
        life: u64,
        hand_over: StepSet,
    ) -> Self {
        let source = Endpoint {
            mac: shape.local.mac,
            addr: SocketAddr::new(shape.local.addr.ip(), parent.source_port + lane),
        };
        let mut root = parent.endpoint.addr;
        root.set_port(root.port() + lane);
        Self {
            root,
            encap: Encap::new(source, parent.endpoint).expect("the table admits one family"),
            job: row.job,
            row: parent.row,
            bit: parent.rank.bit(),
            mask: Members::EMPTY,
            standing: Standing::Idle,
            life,
            token: 0,
            session: 0,
            cookie_up: Cookie::default(),
            cookie_down: Cookie::default(),
            group: GroupId::default(),
            next_at: Nanos::MAX,
            pause: HANDSHAKE_PAUSE,
            unanswered: 0,
            resend: ArrayVec::new(),
            hand_over,
            hand_over_next: 0,
        }
    }

    /// Its memory, when the lease ends.
    pub(super) fn into_set(self) -> StepSet {
        self.hand_over
    }

    /// Where the root's lane sends from: its port and the lane.
    pub(super) fn root_addr(&self) -> SocketAddr {
        self.root
    }

    /// Where this lane sends up from.
    pub(super) fn port(&self) -> u16 {
        self.encap.source().addr.port()
    }

    pub(super) fn timeout(&self) -> Nanos {
        if self.standing == Standing::Open && !self.resend.is_empty() {
            return Nanos(0);
        }
        self.next_at
    }

    pub(super) fn queue_resend(&mut self, step: u32) {
        if !self.resend.contains(&step) {
            // A full queue is loss: the completing rank asks again.
            let _ = self.resend.try_push(step);
        }
    }

    pub(super) fn hand_over_done(&mut self, step: u32) {
        self.hand_over.remove(step);
    }

    fn enter(&mut self, standing: Standing) {
        self.standing = standing;
        self.pause = HANDSHAKE_PAUSE;
        self.unanswered = 0;
        self.next_at = match standing {
            Standing::Idle | Standing::Closed => Nanos::MAX,
            _ => Nanos(0),
        };
    }

    fn back_off(&mut self, now: Nanos) {
        self.next_at = now.saturating_add(self.pause);
        self.pause = Nanos((self.pause.0 * 2).min(HANDSHAKE_PAUSE_MAX.0));
    }
}

impl Lease {
    /// Begins the handshake with the root: afresh (`session` 0) as a new life, or to resume.
    pub(super) fn arm_upstream(&mut self, session: u64, random: &mut SplitMix64) {
        if let Some(upstream) = &mut self.upstream {
            upstream.session = session;
            if session == 0 {
                upstream.life = random.next_non_zero();
            }
            upstream.resend.clear();
            upstream.hand_over.reset(0);
            upstream.enter(Standing::Hello);
        }
    }

    pub(super) fn disarm_upstream(&mut self) {
        if let Some(upstream) = &mut self.upstream {
            upstream.enter(Standing::Idle);
        }
    }

    /// True when there is no root, or the root knows that every one of its members has closed.
    /// The first call starts closing.
    pub(super) fn is_closed_upstream(&mut self) -> bool {
        let Some(upstream) = &mut self.upstream else { return true };
        if upstream.standing == Standing::Open {
            upstream.enter(Standing::Closing);
        }
        upstream.standing == Standing::Closed
    }
}

impl Aggregator {
    /// To be called whenever something may have changed what a leaf owes its root, or when.
    pub(super) fn renew_timer(&mut self, index: LeaseIndex) {
        if let Some(upstream) = &self.leases[index.index()].upstream {
            self.timers.set(index.index(), upstream.timeout());
        }
    }

    /// A frame from the root's address.
    pub(super) fn handle_from_root(
        &mut self,
        index: LeaseIndex,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, DropReason> {
        if incoming.header.kind == Kind::Hello {
            return self.handle_hello_from_root(index, incoming);
        }
        let lease = &mut self.leases[index.index()];
        let upstream = lease.upstream.as_mut().expect("the frame is from its root");
        let header = incoming.header;
        let shards = u32::from(self.shards);
        if header.chunk.0 & (shards - 1) != u32::from(self.lane) {
            return Err(DropReason::WrongShard);
        }
        match header.kind {
            Kind::Answer => {
                if header.cookie != upstream.cookie_down {
                    return Err(DropReason::BadCookie);
                }
                if header.group != upstream.group {
                    return Err(DropReason::StaleGroup);
                }
                if header.members != upstream.mask {
                    return Err(DropReason::BadMembers);
                }
                // The leaf asked for it, and its members have paid for that.
                incoming.payer = Payer::Nobody;
                self.handle_answer_from_root(index, incoming)
            }
            Kind::State
                if header.outcome == Outcome::Stale && header.cookie == upstream.cookie_up =>
            {
                let mut packet = Packet::new_unchecked(incoming.datagram());
                if !packet.verify_crc(weft_kernel::crc32c) && packet.crc() != 0 {
                    return Err(DropReason::Integrity);
                }
                // The root began a new epoch: resume with what this leaf keeps.
                if matches!(upstream.standing, Standing::Open | Standing::Closing) {
                    upstream.enter(Standing::Hello);
                }
                Ok(Verdict::Hold)
            }
            Kind::State if header.cookie != upstream.cookie_down => Err(DropReason::BadCookie),
            Kind::State => Ok(Verdict::Hold),
            _ => Err(DropReason::Kind),
        }
    }

    fn handle_hello_from_root(
        &mut self,
        index: LeaseIndex,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, DropReason> {
        let mac = incoming.udp.source_mac(incoming.buffer);
        let header = incoming.header;
        let mut packet = Packet::new_unchecked(incoming.datagram());
        if !packet.verify_crc(weft_kernel::crc32c) {
            return Err(DropReason::Integrity);
        }
        let (hello, bitmap) =
            Hello::parse(packet.payload_mut()).map_err(|_| DropReason::Handshake)?;
        let lease = &mut self.leases[index.index()];
        let upstream = lease.upstream.as_mut().expect("the frame is from its root");
        if hello.life != upstream.life {
            return Err(DropReason::Unsolicited);
        }
        match (hello.phase, upstream.standing) {
            (Step::Challenge, Standing::Hello) => {
                upstream.encap = upstream.encap.with_target_mac(mac);
                upstream.token = hello.token;
                upstream.enter(Standing::Join);
            }
            (Step::Welcome, Standing::Join) => {
                let fits = hello.window == lease.window
                    && hello.elements == lease.row.elements
                    && hello.shards == self.shards;
                if !fits {
                    return Err(DropReason::Handshake);
                }
                let terms = (hello.cookie_up, hello.cookie_down, header.group);
                let known = (upstream.cookie_up, upstream.cookie_down, upstream.group);
                upstream.session = hello.session;
                (upstream.cookie_up, upstream.cookie_down, upstream.group) = terms;
                lease.session = hello.session;
                // What the root wants is as old as its epoch: in the same one it is old news.
                lease.open_upstream(&hello, if terms == known { &[] } else { bitmap });
            }
            (Step::Refused, Standing::Join) if hello.reason != Reason::UnknownGroup => {
                self.stats.sessions_broken += 1;
                let session = lease.session;
                lease.lost = Some((session, Members::EMPTY));
                upstream.enter(Standing::Idle);
                lease.end_session();
            }
            (Step::Closed, Standing::Closing) if header.members == hello.mask => {
                upstream.enter(Standing::Closed);
            }
            (Step::Waiting | Step::Closed, _) => upstream.unanswered = 0,
            (Step::Refused, _) => {}
            _ => return Err(DropReason::Unsolicited),
        }
        Ok(Verdict::Hold)
    }
}

impl Lease {
    /// The root welcomed this leaf: open for the members, and note what the root wants.
    fn open_upstream(&mut self, hello: &Hello, bitmap: &[u8]) {
        let upstream = self.upstream.as_mut().expect("the root spoke");
        upstream.mask = hello.mask;
        if !bitmap.is_empty() && upstream.hand_over.load(hello.low_step, bitmap) {
            for j in 0..upstream.hand_over.capacity() {
                let step = hello.low_step.saturating_add(j);
                let bank = self.slots.bank(self.slots.locate(step));
                if !bank.keeps_answer(step) {
                    upstream.hand_over.remove(step);
                }
            }
        }
        upstream.hand_over_next = 0;
        upstream.enter(Standing::Open);
        if self.phase == Phase::AwaitingRoot {
            self.phase = Phase::Open;
            self.renew_expected();
        }
    }
}
