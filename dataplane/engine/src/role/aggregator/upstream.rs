//! A leaf's membership of the root's lease (SPEC#two-levels).
//!
//! The leaf is a member like any other, with the session of one: it JOINs with the sums it keeps
//! and hands over what the root wants. It has timers for these only; its sums are sent again when
//! the completing rank repeats itself, so slots stay free of timers.

mod send;

use arrayvec::ArrayVec;
use core::net::SocketAddr;

use weft_wire::frame::{Encap, Endpoint};
use weft_wire::header::{Kind, Outcome, Packet};
use weft_wire::hello::{Hello, Phase as Step, Reason};
use weft_wire::{JobId, Members, Nanos};

use super::{Aggregator, Incoming};
use crate::admit::quota::Payer;
use crate::drops::DropReason;
use crate::random::{Draw, Random};
use crate::role::{LeaseIndex, Verdict};
use crate::send::datagram::is_intact;
use crate::session::backoff::Backoff;
use crate::session::client::{Client, ClientConfig, Standing, UnheardClose};
use crate::slot::State;
use crate::steps::StepSet;
use crate::table::{BoxShape, ParentConfig, RowConfig};

/// Sums that wait to be sent up again; a further one is dropped, for its rank repeats itself.
const RESEND_MAX: usize = 64;

/// A leaf's end of its path to the root, in one lane.
#[derive(Debug)]
pub(super) struct Upstream {
    encap: Encap,
    root: SocketAddr,
    job: JobId,
    row: u16,
    bit: Members,
    mask: Members,
    session: Client,
    /// The root compares the lengths that contributions name.
    compares_lengths: bool,
    /// The root knows that all of its members have closed.
    is_closed_by_all: bool,
    /// When an open leaf next hands over, or asks.
    poll: Backoff,
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
            session: Client::new(SESSION, life),
            compares_lengths: false,
            is_closed_by_all: false,
            poll: Backoff::new(SESSION.pause_min, SESSION.pause_max),
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

    pub(super) fn compares_lengths(&self) -> bool {
        self.compares_lengths
    }

    pub(super) fn timeout(&self) -> Nanos {
        match self.session.standing() {
            Standing::Open if !self.resend.is_empty() => Nanos(0),
            Standing::Open => self.poll.at(),
            _ => self.session.timeout(),
        }
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

    /// Begins the handshake with the root: afresh (`session` 0) as a new life, or to resume.
    pub(super) fn arm(&mut self, session: u64, random: &mut Random) {
        match session {
            0 => self.session.begin_life(random.next_non_zero(Draw::Life), AT_ONCE),
            _ => self.session.begin(session, AT_ONCE),
        }
        self.is_closed_by_all = false;
        self.resend.clear();
        self.hand_over.reset(0);
    }

    pub(super) fn disarm(&mut self) {
        self.session.end();
        self.is_closed_by_all = false;
    }

    /// True when the root knows that every one of its members has closed. The first call starts
    /// closing.
    pub(super) fn close(&mut self) -> bool {
        self.session.close(AT_ONCE);
        self.is_closed_by_all
    }

    /// The root welcomed this leaf, which hands over what the root wants and it `keeps`.
    pub(super) fn open(&mut self, hello: &Hello, bitmap: &[u8], keeps: impl Fn(u32) -> bool) {
        self.mask = hello.mask;
        if !bitmap.is_empty() && self.hand_over.load(hello.low_step, bitmap) {
            for j in 0..self.hand_over.capacity() {
                let step = hello.low_step.saturating_add(j);
                if !keeps(step) {
                    self.hand_over.remove(step);
                }
            }
        }
        self.hand_over_next = 0;
        self.poll.start(AT_ONCE);
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
        let terms = upstream.session.terms().ok_or(DropReason::BadCookie)?;
        match header.kind {
            Kind::Answer => {
                if header.cookie != terms.cookie_down {
                    return Err(DropReason::BadCookie);
                }
                if header.group != terms.group {
                    return Err(DropReason::StaleGroup);
                }
                if header.members != upstream.mask {
                    return Err(DropReason::BadMembers);
                }
                // The leaf asked for it, and its members have paid for that.
                incoming.payer = Payer::Nobody;
                self.handle_answer_from_root(index, incoming)
            }
            Kind::State if header.outcome == Outcome::Stale && header.cookie == terms.cookie_up => {
                let mut packet = Packet::new_unchecked(incoming.datagram());
                if !packet.verify_crc(weft_kernel::crc32c) && packet.crc() != 0 {
                    return Err(DropReason::Integrity);
                }
                // The root began a new epoch: resume with what this leaf keeps.
                let session = &mut upstream.session;
                if matches!(session.standing(), Standing::Open | Standing::Closing) {
                    session.begin(session.session(), AT_ONCE);
                }
                Ok(Verdict::Hold)
            }
            Kind::State if header.cookie != terms.cookie_down => Err(DropReason::BadCookie),
            Kind::State if header.outcome == Outcome::MISMATCH => {
                let agrees = header.members.contains(upstream.bit);
                let range = incoming.udp.payload_range();
                if !is_intact(lease.row.integrity, incoming.buffer, range) {
                    return Err(DropReason::Integrity);
                }
                let step = header.chunk.0 >> self.shards_log2;
                let place = lease.slots.locate(step);
                let bank = lease.slots.bank(place);
                if bank.is_of(step) && bank.state() == State::Sent {
                    lease.slots.refuse_above(place, agrees, header.count);
                }
                Ok(Verdict::Hold)
            }
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
        let (now, datagram_len) = (incoming.now, incoming.udp.payload_len());
        let mut packet = Packet::new_unchecked(incoming.datagram());
        if !packet.verify_crc(weft_kernel::crc32c) {
            return Err(DropReason::Integrity);
        }
        let (hello, bitmap) =
            Hello::parse(packet.payload_mut()).map_err(|_| DropReason::Handshake)?;
        let lease = &mut self.leases[index.index()];
        let upstream = lease.upstream.as_mut().expect("the frame is from its root");
        upstream.session.hear(&hello, datagram_len, now)?;
        match hello.phase {
            Step::Challenge => upstream.encap = upstream.encap.with_target_mac(mac),
            Step::Welcome => {
                let fits = hello.window == lease.window
                    && hello.elements == lease.row.elements
                    && hello.shards == self.shards;
                if !fits {
                    return Err(DropReason::Handshake);
                }
                // What the root wants is as old as its epoch: in the same one it is old news.
                let is_known = upstream.session.open(&hello, header.group);
                upstream.compares_lengths = header.outcome == Outcome::LAST;
                lease.session = hello.session;
                lease.open_upstream(&hello, if is_known { &[] } else { bitmap });
            }
            Step::Refused if hello.reason != Reason::UnknownGroup => {
                self.stats.sessions_broken += 1;
                let session = lease.session;
                lease.lost = Some((session, Members::EMPTY));
                upstream.session.end();
                lease.end_session();
            }
            Step::Closed if header.members == hello.mask => {
                upstream.session.end();
                upstream.is_closed_by_all = true;
            }
            _ => {}
        }
        Ok(Verdict::Hold)
    }
}

/// A leaf's handshake with its root.
const SESSION: ClientConfig = ClientConfig {
    pause_min: Nanos::from_millis(2),
    pause_max: Nanos::from_millis(100),
    unanswered_max: 4,
    probe_len: 0,
    join_suspends: true,
    takes_late_welcome: false,
    doubt_shortens_pauses: true,
    // The others may need what this leaf keeps.
    unheard_close: UnheardClose::BeginAnew,
};
/// Whatever the time.
const AT_ONCE: Nanos = Nanos(0);
