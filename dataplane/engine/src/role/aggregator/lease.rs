//! A lease: the slots that one group uses in one lane, its members, and where its formation stands.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use weft_wire::frame::{Encap, UdpAddr};
use weft_wire::header::{HEADER_LEN, Header, Kind, Template};
use weft_wire::hello::{BODY_LEN, Hello, Integrity};
use weft_wire::{Cookie, Epoch, GroupId, MacAddr, Members, Rank};

use super::cast::Cast;
use super::upstream::Upstream;
use crate::admit::expected::{Expected, Masks};
use crate::drops::DropReason;
use crate::random::{Draw, Random};
use crate::send::datagram::plain_header;
use crate::session::host::Peer;
use crate::slot::Slots;
use crate::slot::counter::Lag;
use crate::steps::StepSet;
use crate::table::{BoxShape, RowConfig};

/// Where the formation of a lease stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// Members are missing.
    Forming,
    /// All members are here; the root is not yet (leaf only).
    AwaitingRoot,
    /// All members are here; the switch that has the slots does not know of it yet.
    AwaitingSwitch,
    /// Contributions flow.
    Open,
}

/// A lease and everything its frames are checked against.
#[derive(Debug)]
pub(super) struct Lease {
    /// False for a place that is free.
    pub(super) is_installed: bool,
    pub(super) row: RowConfig,
    pub(super) mask: Members,
    pub(super) members: Vec<Member>,
    pub(super) phase: Phase,
    pub(super) epoch: Epoch,
    pub(super) group: GroupId,
    /// 0 until the first formation.
    pub(super) session: u64,
    pub(super) cookie_down: Cookie,
    /// What protects what goes to its members.
    pub(super) integrity_down: Integrity,
    /// The header of this epoch's answers: chunk, exponent and flags are each answer's own.
    pub(super) answer: Template,
    pub(super) joined: Members,
    pub(super) closed: Members,
    /// The session that ended because members began anew, and who they are.
    pub(super) lost: Option<(u64, Members)>,
    pub(super) wanted: StepSet,
    pub(super) slots: Slots,
    /// Steps of this lane before the group must be formed again.
    pub(super) step_count: u32,
    /// Slots of this lane.
    pub(super) window: u16,
    /// Bytes of elements in each contribution.
    pub(super) payload_len: usize,
    /// Where members send to, in every lane.
    pub(super) box_port: u16,
    pub(super) upstream: Option<Upstream>,
    pub(super) cast: Cast,
    /// Which bits of its contributions' headers count.
    pub(super) masks: Masks,
    /// Its contributions are summed in runs.
    pub(super) takes_runs: bool,
    /// Its job pays for its frames.
    pub(super) has_quota: bool,
    pub(super) room: Room,
    /// Memory for what members hold and a root wants.
    pub(super) sets: Vec<StepSet>,
}

/// A member of the group, in this lane.
#[derive(Debug)]
pub(super) struct Member {
    /// Its address in this lane, and its present life.
    pub(super) peer: Peer<UdpAddr>,
    pub(super) encap: Encap,
    /// What protects what it sends.
    pub(super) integrity: Integrity,
    /// What its contributions begin with while the lease is open.
    pub(super) expected: Expected,
    pub(super) is_box: bool,
    /// Its JOIN offers contributions that mark the ends of vectors.
    pub(super) names_lengths: bool,
    /// Clamp limit of its contributions.
    pub(super) limit: i32,
    pub(super) session: u64,
    pub(super) held: StepSet,
    pub(super) lag: Lag,
}

/// What a place has memory for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) members: usize,
    /// Slots of a lane.
    pub(super) window: u16,
    /// Words of a lane's slots.
    pub(super) words: usize,
}

impl Lease {
    /// A member speaks from behind this Ethernet address. What both sides copy through memory needs
    /// no CRC, and answers need none once all members are there (SPEC#handshake).
    pub(super) fn note_mac(&mut self, rank: Rank, mac: MacAddr, is_in_memory: bool) {
        let row = self.row.integrity;
        let is_bare = is_in_memory && row == Integrity::Crc32c;
        let member = &mut self.members[rank.index()];
        member.encap = member.encap.with_target_mac(mac);
        member.integrity = if is_bare { Integrity::None } else { row };
        let is_any_sealed = self.members.iter().any(|member| member.integrity == row);
        self.integrity_down = if is_any_sealed { row } else { Integrity::None };
    }

    /// True when all members name the lengths of their vectors, and so does the root's lease.
    pub(super) fn compares_lengths(&self) -> bool {
        self.members.iter().all(|member| member.names_lengths)
            && self.upstream.as_ref().is_none_or(Upstream::compares_lengths)
    }

    /// Begins the handshake with the root, if there is one.
    pub(super) fn arm_upstream(&mut self, session: u64, random: &mut Random) {
        if let Some(upstream) = &mut self.upstream {
            upstream.arm(session, random);
        }
    }

    /// True when there is no root, or the root knows that every one of its members has closed.
    /// The first call starts closing.
    pub(super) fn is_closed_upstream(&mut self) -> bool {
        self.upstream.as_mut().is_none_or(Upstream::close)
    }

    /// The root welcomed this leaf: open for the members, and note what the root wants.
    pub(super) fn open_upstream(&mut self, hello: &Hello, bitmap: &[u8]) {
        let slots = &self.slots;
        let upstream = self.upstream.as_mut().expect("the root spoke");
        upstream.open(hello, bitmap, |step| slots.bank(slots.locate(step)).keeps_answer(step));
        if self.phase == Phase::AwaitingRoot {
            self.phase = Phase::Open;
            self.renew_expected();
        }
    }

    /// Where its members and its root speak from.
    pub(super) fn addresses(&self) -> impl Iterator<Item = UdpAddr> + '_ {
        let root = self.upstream.iter().map(|upstream| upstream.root_addr().into());
        self.members.iter().map(|member| member.peer.addr()).chain(root)
    }

    /// Bytes of the frame of an answer to a member.
    pub(super) fn answer_len_bytes(&self) -> usize {
        self.members[0].encap.header_len() + HEADER_LEN + self.payload_len
    }

    /// Bytes of the frame of a WELCOME that lists wanted steps.
    pub(super) fn welcome_len_bytes(&self) -> usize {
        self.members[0].encap.header_len() + HEADER_LEN + BODY_LEN + self.wanted.bitmap().len()
    }

    pub(super) fn is_from_root(&self, source: UdpAddr) -> bool {
        self.upstream.as_ref().is_some_and(|upstream| UdpAddr::from(upstream.root_addr()) == source)
    }

    /// Nobody has joined. The lives that were in the session end with it, so that no late JOIN of
    /// theirs fills a place in the next one; those that only waited for a session wait on.
    pub(super) fn end_session(&mut self) {
        let was_open = self.phase == Phase::Open;
        for member in self.members.iter_mut().filter(|member| was_open || member.session != 0) {
            member.peer.end();
        }
        self.phase = Phase::Forming;
        self.joined = Members::EMPTY;
    }

    /// Opens an epoch: new cookies for everyone, and slots that admit exactly the steps that some
    /// member still lacks (SPEC#slot, SPEC#resync).
    pub(super) fn begin_epoch(&mut self, random: &mut Random) {
        self.epoch = Epoch(self.epoch.0.wrapping_add(1));
        self.group = GroupId::new(self.row.row, self.group.generation().wrapping_add(1));
        self.cookie_down = Cookie::new(self.epoch, random.next_u32(Draw::CookieDown(0)));
        for (member, rank) in self.members.iter_mut().zip(0..=u8::MAX) {
            member.peer.draw_cookie(self.epoch, rank, random);
        }
        self.answer = self.answer_header();
        self.cast.hearing = Members::EMPTY;
        self.closed = Members::EMPTY;
        let low = self.members.iter().map(|member| member.held.low()).min().unwrap_or(0);
        self.wanted.reset(low);
        let (members, wanted) = (&self.members, &mut self.wanted);
        let window = u32::from(self.window);
        self.slots.seed(|slot| {
            let mut step = low + (slot.wrapping_sub(low) & (window - 1));
            while members.iter().all(|member| member.held.holds(step)) {
                step += window;
            }
            if members.iter().any(|member| member.held.holds(step)) {
                wanted.insert(step);
            }
            step
        });
    }

    fn answer_header(&self) -> Template {
        Template::of(&Header {
            cookie: self.cookie_down,
            element_type: self.row.element_type,
            operation: self.row.operation,
            count: self.row.elements,
            ..plain_header(Kind::Answer, self.row.job, self.group, self.mask)
        })
    }

    /// Sets where the box's multicast addresses begin; nobody is known to hear its row's.
    pub(super) fn cast_from(&mut self, shape: &BoxShape, lane: u16, base: Option<IpAddr>) {
        self.cast = Cast::of(self.row.row, HEADER_LEN + self.payload_len, shape, lane, base);
    }

    /// The headers of one answer to all, when every member hears it.
    #[inline(always)]
    pub(super) fn casts(&self) -> Option<&Encap> {
        self.cast.for_all(self.mask)
    }

    /// The member whose bit a header carries.
    pub(super) fn named_by(&self, header: &Header) -> Result<Rank, DropReason> {
        let rank = header.members.single().filter(|rank| self.mask.contains(rank.bit()));
        rank.ok_or(DropReason::BadMembers)
    }

    pub(super) fn member_at(&self, addr: UdpAddr) -> Option<Rank> {
        let rank = self.members.iter().position(|member| member.peer.addr() == addr)?;
        Rank::new(u8::try_from(rank).ok()?)
    }

    pub(super) fn report(&self) -> LeaseReport<'_> {
        LeaseReport { lease: self }
    }
}

/// A read-only view of a lease.
#[derive(Clone, Copy, Debug)]
pub struct LeaseReport<'a> {
    lease: &'a Lease,
}

impl<'a> LeaseReport<'a> {
    /// The row.
    #[must_use]
    pub fn row(&self) -> &'a RowConfig {
        &self.lease.row
    }

    /// Where its formation stands.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.lease.phase
    }

    /// The present epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.lease.epoch
    }

    /// The present group id.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.lease.group
    }

    /// Members that have joined and not closed.
    #[must_use]
    pub fn present(&self) -> Members {
        self.lease.joined.without(self.lease.closed)
    }

    /// The slots, for gauges and tests.
    #[must_use]
    pub fn slots(&self) -> &'a Slots {
        &self.lease.slots
    }

    /// The members.
    pub fn members(&self) -> impl Iterator<Item = MemberReport> + 'a {
        self.lease.members.iter().map(|member| {
            let addr = member.encap.target().addr;
            MemberReport { addr, lag: member.lag }
        })
    }
}

/// What a lease knows of a member.
#[derive(Clone, Copy, Debug)]
pub struct MemberReport {
    /// Its address in the lane.
    pub addr: SocketAddr,
    /// How late its contributions come.
    pub lag: Lag,
}
