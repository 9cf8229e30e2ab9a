//! A lease: the slots that one group uses in one lane, its members, and where its formation stands.
//!
//! Its memory is a *place*, taken when the lane is made, in which leases come and go. Invariant: of
//! a lease that has gone nothing is left that a later one could take for its own: slots are EMPTY,
//! and epoch, generation and turns of its row go on from where they were ([`Past`]; PROTOCOL
//! section 6).

use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_control::SumOrder;
use weft_kernel::Kernels;
use weft_wire::frame::{Encap, Endpoint, UdpAddr};
use weft_wire::header::{ElementType, HEADER_LEN, Header, Kind, Operation, Template};
use weft_wire::hello::{BODY_LEN, Integrity, Overflow};
use weft_wire::{Cookie, Epoch, GroupId, JobId, MEMBERS_MAX, MacAddr, Members, Rank};

use super::upstream::Upstream;
use crate::admit::expected::{Expected, Masks};
use crate::drops::DropReason;
use crate::random::SplitMix64;
use crate::send::datagram::plain_header;
use crate::session::life::Lives;
use crate::slot::Slots;
use crate::slot::accumulate::{Arithmetic, Store};
use crate::slot::counter::Lag;
use crate::steps::StepSet;
use crate::table::{ArenaConfig, BoxShape, RowConfig, WINDOW_MAX};

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
    room: Room,
    /// Memory for what members hold and a root wants.
    sets: Vec<StepSet>,
}

/// What a place has memory for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    members: usize,
    /// Slots of a lane.
    window: u16,
    /// Words of a lane's slots.
    words: usize,
}

impl Room {
    /// Just enough for a row.
    pub(super) fn of_row(shape: &BoxShape, row: &RowConfig) -> Self {
        let window = row.window / shape.shards;
        let members = row.members.len();
        let elements = usize::from(row.elements);
        let words = Arithmetic::of(row).word_count(elements, members, usize::from(window) * 2);
        Self { members, window, words }
    }

    /// For any row whose slots take no more than an arena keeps for each.
    pub(super) fn of_arena(shape: &BoxShape, arena: &ArenaConfig) -> Self {
        let bytes = arena.lease_bytes / u64::from(shape.shards);
        let words = usize::try_from(bytes / 4).unwrap_or(usize::MAX);
        // Two banks of a cache line each are the least that a slot takes.
        let window = (words / 32).clamp(1, WINDOW_MAX);
        let window = u16::try_from(window).expect("at most 2048 slots");
        Self { members: MEMBERS_MAX, window, words }
    }
}

/// What a row's next lease goes on from.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past {
    /// Leases that the row has had.
    installations: u32,
    epoch: Epoch,
    generation: u16,
    session: u64,
}

/// A member of the group, in this lane.
#[derive(Debug)]
pub(super) struct Member {
    /// Its address in this lane.
    pub(super) addr: UdpAddr,
    pub(super) encap: Encap,
    /// What its contributions begin with while the lease is open.
    pub(super) expected: Expected,
    pub(super) is_box: bool,
    /// Clamp limit of its contributions.
    pub(super) limit: i32,
    pub(super) lives: Lives,
    pub(super) session: u64,
    pub(super) cookie_up: Cookie,
    pub(super) held: StepSet,
    pub(super) lag: Lag,
}

impl Lease {
    /// Takes the memory of a place.
    pub(super) fn vacant(room: Room, kernels: &'static Kernels) -> Self {
        let row = no_row();
        let window = u32::from(room.window);
        let store = Store::vacant(kernels, room.words);
        let sets = core::iter::repeat_with(|| StepSet::new(window));
        Self {
            is_installed: false,
            mask: Members::EMPTY,
            members: Vec::with_capacity(room.members),
            phase: Phase::Forming,
            epoch: Epoch(0),
            group: GroupId::default(),
            session: 0,
            cookie_down: Cookie::default(),
            answer: Template::default(),
            joined: Members::EMPTY,
            closed: Members::EMPTY,
            lost: None,
            wanted: StepSet::new(window),
            slots: Slots::vacant(usize::from(room.window), store),
            step_count: 0,
            window: room.window,
            payload_len: 0,
            box_port: 0,
            upstream: None,
            masks: Masks::of(None, row.integrity),
            takes_runs: false,
            has_quota: false,
            room,
            // One for each member, and one for what a root wants.
            sets: sets.take(room.members + 1).collect(),
            row,
        }
    }

    /// Gives the memory its pages.
    pub(super) fn touch(&mut self) {
        self.slots.touch();
    }

    /// Words of its slots, used or not.
    pub(super) fn words_max(&self) -> usize {
        self.room.words
    }

    /// True for a free place that has memory for the row.
    pub(super) fn has_room(&self, shape: &BoxShape, row: &RowConfig) -> bool {
        let Room { members, window, words } = Room::of_row(shape, row);
        !self.is_installed
            && members <= self.room.members
            && window <= self.room.window
            && words <= self.room.words
    }

    /// Begins the lease of a row that was judged, in a place that has room for it.
    pub(super) fn install(
        &mut self,
        shape: &BoxShape,
        row: RowConfig,
        lane: u16,
        past: &Past,
        random: &mut SplitMix64,
    ) {
        let window = row.window / shape.shards;
        let elements = usize::from(row.elements);
        let steps = u32::from(window);
        let fits = self.slots.lay_out(steps, Arithmetic::of(&row), elements, row.members.len());
        assert!(fits, "the place has room for it");
        let unit = i32::MAX / i32::try_from(row.fan_in).expect("the table bounds the fan-in");
        // Whoever receives from this lane steers by the source port too (PROTOCOL section 10).
        let mut source = shape.local;
        source.addr.set_port(shape.local.addr.port() + lane);
        let payload_len = elements * row.element_type.len_bytes();
        for member in &row.members {
            let addr = SocketAddr::new(member.addr.ip(), member.addr.port() + lane);
            let target = Endpoint { mac: MacAddr::default(), addr };
            let weight = i32::try_from(member.weight).expect("at most the fan-in");
            let held = take_set(&mut self.sets, steps);
            self.members.push(Member {
                addr: addr.into(),
                encap: Encap::new(source, target)
                    .expect("the table admits one address family")
                    .with_payload_len(HEADER_LEN + payload_len),
                expected: Expected::NOTHING,
                is_box: member.is_box,
                limit: unit * weight,
                lives: Lives::of_installation(past.installations),
                session: 0,
                cookie_up: Cookie::default(),
                held,
                lag: Lag::default(),
            });
        }
        self.upstream = row.parent.as_ref().map(|parent| {
            let hand_over = take_set(&mut self.sets, steps);
            Upstream::new(shape, &row, parent, lane, random.next_non_zero(), hand_over)
        });
        let is_first = past.installations == 0;
        self.epoch = if is_first { Epoch(random.next_u32()) } else { past.epoch };
        self.group = GroupId::new(row.row, past.generation);
        // Who was in a session that was removed is told that it is over.
        self.lost = (past.session != 0).then_some((past.session, Members::EMPTY));
        self.mask = Members::first(row.members.len());
        self.wanted.renew(steps);
        // A lane serves every shards-th chunk; the last, shorter stride is not worth a rule.
        self.step_count = (row.chunks_max / u32::from(shape.shards)).max(1);
        self.window = window;
        self.payload_len = payload_len;
        self.box_port = shape.local.addr.port();
        self.masks = Masks::of(row.exponent, row.integrity);
        self.row = row;
        self.takes_runs = self.may_take_runs();
        self.is_installed = true;
    }

    /// Ends the lease, whatever its members do, and frees its place.
    pub(super) fn remove(&mut self, past: &mut Past) {
        *past = Past {
            installations: past.installations + 1,
            epoch: self.epoch,
            generation: self.group.generation(),
            session: if self.session != 0 { self.session } else { past.session },
        };
        self.sets.extend(self.members.drain(..).map(|member| member.held));
        self.sets.extend(self.upstream.take().map(Upstream::into_set));
        self.row = no_row();
        self.is_installed = false;
        self.phase = Phase::Forming;
        (self.mask, self.joined, self.closed) = (Members::EMPTY, Members::EMPTY, Members::EMPTY);
        self.session = 0;
        (self.takes_runs, self.has_quota) = (false, false);
    }

    /// How many addresses its members and its root may have.
    pub(super) fn addresses_max(&self) -> usize {
        self.room.members + 1
    }

    /// Where its members and its root speak from.
    pub(super) fn addresses(&self) -> impl Iterator<Item = UdpAddr> + '_ {
        let root = self.upstream.iter().map(|upstream| upstream.root_addr().into());
        self.members.iter().map(|member| member.addr).chain(root)
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
            member.lives.end();
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
            member.cookie_up = Cookie::new(self.epoch, random.next_u32());
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

    /// What this box can say upwards about the sums it keeps.
    pub(super) fn held(&self, into: &mut StepSet) {
        let window = u32::from(self.window);
        let frontier = |slot: u32| {
            let index = self.slots.locate(slot);
            let answered = [index, index.other()].map(|index| {
                let bank = self.slots.bank(index);
                (bank.state() == crate::slot::State::Answered).then_some(bank.step())
            });
            answered.into_iter().flatten().max().map_or(slot, |step| step + window)
        };
        let low = (0..window).map(frontier).min().unwrap_or(0);
        into.reset(low);
        for slot in 0..window {
            let mut step = low + (slot.wrapping_sub(low) & (window - 1));
            while step < frontier(slot) {
                into.insert(step);
                step += window;
            }
        }
    }

    /// The member whose bit a header carries.
    pub(super) fn named_by(&self, header: &Header) -> Result<Rank, DropReason> {
        let rank = header.members.single().filter(|rank| self.mask.contains(rank.bit()));
        rank.ok_or(DropReason::BadMembers)
    }

    pub(super) fn member_at(&self, addr: UdpAddr) -> Option<Rank> {
        let rank = self.members.iter().position(|member| member.addr == addr)?;
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

/// What a free place has in a row's stead.
fn no_row() -> RowConfig {
    RowConfig {
        row: u16::MAX,
        job: JobId(u16::MAX),
        members: Vec::new(),
        element_type: ElementType::I32,
        operation: Operation::Sum,
        sum_order: SumOrder::Arrival,
        overflow: Overflow::Wrap,
        integrity: Integrity::Crc32c,
        elements: 0,
        window: 1,
        chunks_max: 1,
        exponent: None,
        fan_in: 1,
        parent: None,
    }
}

fn take_set(sets: &mut Vec<StepSet>, window: u32) -> StepSet {
    let mut set = sets.pop().expect("one for each member and one for the root");
    set.renew(window);
    set
}
