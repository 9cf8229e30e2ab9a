//! A place: the memory of one lease, taken when the lane is made, in which leases come and go.
//!
//! Decides what a place has room for, how a lease begins in it, and what one that goes leaves
//! behind. Invariant: of a lease that has gone nothing is left that a later one could take for its
//! own: slots are EMPTY, and epoch, generation and turns of its row go on from where they were
//! ([`Past`]; PROTOCOL section 6). Nothing here allocates but [`Lease::vacant`] (I8).

use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_control::SumOrder;
use weft_kernel::Kernels;
use weft_wire::frame::{Encap, Endpoint};
use weft_wire::header::{ElementType, HEADER_LEN, Operation, Template};
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::{Cookie, Epoch, GroupId, JobId, MEMBERS_MAX, MacAddr, Members};

use super::cast::Cast;
use super::lease::{Lease, Member, Phase, Room};
use super::upstream::Upstream;
use crate::admit::expected::{Expected, Masks};
use crate::random::{Draw, Random};
use crate::session::host::Peer;
use crate::session::token::Lives;
use crate::slot::Slots;
use crate::slot::accumulate::{Arithmetic, Store};
use crate::slot::counter::Lag;
use crate::steps::StepSet;
use crate::table::{ArenaConfig, BoxShape, RowConfig, WINDOW_MAX};

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
            integrity_down: row.integrity,
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
            cast: Cast::default(),
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
        random: &mut Random,
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
                peer: Peer::new(addr.into(), Lives::of_installation(past.installations)),
                encap: Encap::new(source, target)
                    .expect("the table admits one address family")
                    .with_payload_len(HEADER_LEN + payload_len),
                integrity: row.integrity,
                expected: Expected::NOTHING,
                is_box: member.is_box,
                names_lengths: false,
                limit: unit * weight,
                session: 0,
                held,
                lag: Lag::default(),
            });
        }
        self.upstream = row.parent.as_ref().map(|parent| {
            let hand_over = take_set(&mut self.sets, steps);
            let life = random.next_non_zero(Draw::Life);
            Upstream::new(shape, &row, parent, lane, life, hand_over)
        });
        let is_first = past.installations == 0;
        self.epoch = if is_first { Epoch(random.next_u32(Draw::Epoch)) } else { past.epoch };
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
        self.integrity_down = row.integrity;
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
        self.cast = Cast::default();
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
