//! A lease: the slots that one group uses in one lane, its members, and where its formation stands.

use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_kernel::Kernels;
use weft_wire::frame::{Encap, Endpoint, UdpAddr};
use weft_wire::header::{HEADER_LEN, Header, Kind, Template};
use weft_wire::hello::BODY_LEN;
use weft_wire::{Cookie, Epoch, GroupId, MacAddr, Members, Rank};

use super::upstream::Upstream;
use crate::admit::expected::{Expected, Masks};
use crate::drops::DropReason;
use crate::random::SplitMix64;
use crate::send::datagram::plain_header;
use crate::session::host::Peer;
use crate::session::token::Lives;
use crate::slot::Slots;
use crate::slot::accumulate::{Arithmetic, Store};
use crate::slot::counter::Lag;
use crate::steps::StepSet;
use crate::table::{BoxConfig, RowConfig};

/// Where the formation of a lease stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// Members are missing.
    Forming,
    /// All members are here; the root is not yet (leaf only).
    AwaitingRoot,
    /// Contributions flow.
    Open,
}

/// A lease and everything its frames are checked against.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) row: RowConfig,
    pub(super) mask: Members,
    pub(super) members: Vec<Member>,
    pub(super) phase: Phase,
    pub(super) epoch: Epoch,
    pub(super) group: GroupId,
    /// 0 until the first formation.
    pub(super) session: u64,
    pub(super) cookie_down: Cookie,
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
    /// Which bits of its contributions' headers count.
    pub(super) masks: Masks,
    /// Its contributions are summed in runs.
    pub(super) takes_runs: bool,
    /// Its job pays for its frames.
    pub(super) has_quota: bool,
}

/// A member of the group, in this lane.
#[derive(Debug)]
pub(super) struct Member {
    /// Its address in this lane, and its present life.
    pub(super) peer: Peer<UdpAddr>,
    pub(super) encap: Encap,
    /// What its contributions begin with while the lease is open.
    pub(super) expected: Expected,
    pub(super) is_box: bool,
    /// Clamp limit of its contributions.
    pub(super) limit: i32,
    pub(super) session: u64,
    pub(super) held: StepSet,
    pub(super) lag: Lag,
}

impl Lease {
    pub(super) fn new(
        config: &BoxConfig,
        row: &RowConfig,
        lane: u16,
        kernels: &'static Kernels,
        random: &mut SplitMix64,
    ) -> Self {
        let window = row.window / config.shards;
        let arithmetic = Arithmetic {
            element_type: row.element_type,
            operation: row.operation,
            sum_order: row.sum_order,
            overflow: row.overflow,
        };
        let elements = usize::from(row.elements);
        let banks = usize::from(window) * 2;
        let store = Store::new(kernels, arithmetic, elements, row.members.len(), banks);
        let unit = i32::MAX / i32::try_from(row.fan_in).expect("the table bounds the fan-in");
        // Whoever receives from this lane steers by the source port too (PROTOCOL section 10).
        let mut source = config.local;
        source.addr.set_port(config.local.addr.port() + lane);
        let payload_len = elements * row.element_type.len_bytes();
        let members = row
            .members
            .iter()
            .map(|member| {
                let addr = SocketAddr::new(member.addr.ip(), member.addr.port() + lane);
                let target = Endpoint { mac: MacAddr::default(), addr };
                let weight = i32::try_from(member.weight).expect("at most the fan-in");
                Member {
                    peer: Peer::new(addr.into(), Lives::default()),
                    encap: Encap::new(source, target)
                        .expect("the table admits one address family")
                        .with_payload_len(HEADER_LEN + payload_len),
                    expected: Expected::NOTHING,
                    is_box: member.is_box,
                    limit: unit * weight,
                    session: 0,
                    held: StepSet::new(u32::from(window)),
                    lag: Lag::default(),
                }
            })
            .collect();
        let upstream = row
            .parent
            .as_ref()
            .map(|parent| Upstream::new(config, row, parent, lane, random.next_non_zero()));
        let mut lease = Self {
            mask: Members::first(row.members.len()),
            members,
            phase: Phase::Forming,
            epoch: Epoch(random.next_u32()),
            group: GroupId::new(row.row, 0),
            session: 0,
            cookie_down: Cookie::default(),
            answer: Template::default(),
            joined: Members::EMPTY,
            closed: Members::EMPTY,
            lost: None,
            wanted: StepSet::new(u32::from(window)),
            slots: Slots::new(u32::from(window), store),
            // A lane serves every shards-th chunk; the last, shorter stride is not worth a rule.
            step_count: (row.chunks_max / u32::from(config.shards)).max(1),
            window,
            payload_len,
            box_port: config.local.addr.port(),
            upstream,
            masks: Masks::of(row.exponent, row.integrity),
            takes_runs: false,
            has_quota: config
                .jobs
                .iter()
                .any(|job| job.job == row.job && job.rate_bytes_per_sec.is_some()),
            row: row.clone(),
        };
        lease.takes_runs = lease.may_take_runs();
        lease
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
    pub(super) fn begin_epoch(&mut self, random: &mut SplitMix64) {
        self.epoch = Epoch(self.epoch.0.wrapping_add(1));
        self.group = GroupId::new(self.row.row, self.group.generation().wrapping_add(1));
        self.cookie_down = Cookie::new(self.epoch, random.next_u32());
        for member in &mut self.members {
            member.peer.draw_cookie(self.epoch, random);
        }
        self.answer = self.answer_header();
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
