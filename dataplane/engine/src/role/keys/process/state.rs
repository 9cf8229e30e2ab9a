//! What a process remembers besides rows: keys that it asks for, copies that it keeps, numbers.

use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use weft_wire::frame::UdpAddr;
use weft_wire::keys::{Number, Parts, RowEpoch};
use weft_wire::{Cookie, Members, Nanos};

use super::ProcessStats;
use super::blocks::Claims;
use super::queue::{List, Marks, Operations};
use crate::role::keys::config::{IN_FLIGHT_MAX, Mode, ProcessConfig, ProcessLimits, TableConfig};
use crate::role::keys::frames::{Frames, To};
use crate::role::keys::open::OpenNumbers;
use crate::role::keys::pool::{NONE, Pool};
use crate::send::retransmit::RttEstimator;
use crate::session::client::{Client, ClientConfig};
use crate::timers::Timers;

/// A process without its store.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) table: TableConfig,
    pub(super) me: u8,
    pub(super) home: UdpAddr,
    pub(super) processes: Vec<UdpAddr>,
    pub(super) mode: Mode,
    has_cache: bool,
    pub(super) limits: ProcessLimits,
    pub(super) resend: (Nanos, Nanos),
    /// How long an answer takes, of what left once.
    pub(super) rtt: RttEstimator,
    /// When the first thing left that the frame in hand answers.
    pub(super) answered: Option<Nanos>,
    pub(super) beat: Nanos,
    pub(super) beat_at: Nanos,
    pub(super) session: Client,
    pub(super) is_lost: bool,
    pub(super) life: u16,
    /// The shared cookie of the first life that was joined.
    pub(super) run: u64,
    pub(super) living: Members,
    pub(super) cookie_up: Cookie,
    pub(super) cookie_down: Cookie,
    pub(super) open: OpenNumbers,
    /// The numbers of the accesses of this turn, by lane, and of the localizes.
    pub(super) batch: [Number; IN_FLIGHT_MAX as usize + 1],
    /// Per process the number below which nothing is open.
    pub(super) floors: Vec<Number>,
    pub(super) places: Vec<Places>,
    pub(super) actives: Pool<Active>,
    /// Per active key and process: the localize that waits here for the row.
    noted: Vec<Number>,
    /// Per active key, process and lane: the access that does.
    remote: Vec<u32>,
    /// Per active key and lane: the access in flight.
    flights: Vec<Flight>,
    pub(super) remotes: Pool<Remote>,
    pub(super) remote_values: Vec<f32>,
    pub(super) kept: Pool<Kept>,
    kept_values: Vec<f32>,
    kept_lasts: Vec<Number>,
    pub(super) operations: Operations,
    /// The clock of this process, from 1, and how much older a copy may be.
    pub(super) clock: u32,
    pub(super) staleness: u32,
    /// Places of keys of which there are to be copies as long as they are meant to be used.
    pub(super) watched: Vec<u32>,
    /// Intents whose time has not come: from, place, to.
    pub(super) planned: BinaryHeap<Reverse<(u32, u32, u32)>>,
    /// Adds that nobody waits for, of earlier clocks and of the present one.
    pub(super) background: [u32; 2],
    pub(super) unsent: Marks,
    pub(super) unsent_kept: Marks,
    pub(super) timers: Timers,
    pub(super) kept_timers: Timers,
    pub(super) claims: Claims,
    pub(super) frames: Frames,
    /// A value that came.
    pub(super) scratch: Vec<f32>,
    pub(super) stats: ProcessStats,
}

/// Where to find what is known of one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) active: u32,
    /// The newest copy that is kept.
    pub(super) kept: u32,
    /// The life in which the box last said that nobody has the row, and the one in which the row
    /// was last restored for it.
    pub(super) lost: u16,
    pub(super) restored: u16,
    /// Who had the row when this process last knew, or [`NOBODY`]. It may be wrong.
    owner: u8,
    /// The clock in which the intent to use it ends.
    pub(super) until: u32,
    pub(super) is_watched: bool,
}

/// A key of which the row is not here and something is wanted.
#[derive(Clone, Debug)]
pub(super) struct Active {
    pub(super) index: u32,
    /// The localize that is open.
    pub(super) localize: Number,
    pub(super) localize_left: Left,
    /// How often the timeout was doubled when it left first.
    pub(super) doublings: u8,
    pub(super) queue: List,
    /// Calls of localize that wait.
    pub(super) localizers: List,
    /// A new copy is wanted with the next access.
    pub(super) wants_copy: bool,
    pub(super) pause: Nanos,
}

/// The access in flight, if it has a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) number: Number,
    pub(super) parts: Parts,
    /// The operations whose values are to be set and added.
    pub(super) set: u32,
    pub(super) add: u32,
    pub(super) operations: List,
    /// In which it was called.
    pub(super) clock: u32,
    /// When it leaves again.
    pub(super) due_at: Nanos,
    pub(super) left: Left,
}

/// Whether something has left, for the round trip: an answer to what left twice may be to either
/// (Karn).
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Left {
    /// Not yet.
    #[default]
    No,
    /// At this time.
    Once(Nanos),
    /// More than once.
    Again,
}

impl Left {
    /// It leaves.
    pub(super) fn note(&mut self, now: Nanos) {
        *self = match self {
            Self::No => Self::Once(now),
            Self::Once(_) | Self::Again => Self::Again,
        };
    }
}

pub(super) const NO_FLIGHT: Flight = Flight {
    number: Number::NONE,
    parts: Parts::NONE,
    set: NONE,
    add: NONE,
    operations: List::EMPTY,
    clock: 0,
    due_at: Nanos(0),
    left: Left::No,
};

/// An access of another process that waits for the row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote {
    pub(super) number: Number,
    pub(super) parts: Parts,
}

/// A copy of a row that was given away.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) index: u32,
    pub(super) to: u8,
    /// The localize that it answers.
    pub(super) localize: Number,
    pub(super) epoch: RowEpoch,
    pub(super) pause: Nanos,
    pub(super) left: Left,
    pub(super) doublings: u8,
    /// An older copy of this key.
    pub(super) next: u32,
}

impl Core {
    pub(super) fn new(config: &ProcessConfig<'_>, life: u64, now: Nanos) -> Self {
        let ProcessConfig { table, limits, .. } = *config;
        let row_len = usize::from(table.row_len);
        let processes = usize::from(table.processes);
        let actives = usize::from(limits.active_keys_max);
        let transfers = usize::from(limits.transfers_max);
        let remotes = usize::from(limits.remote_max);
        let lanes = usize::from(table.in_flight);
        let active = Active {
            index: NONE,
            localize: Number::NONE,
            localize_left: Left::No,
            doublings: 0,
            queue: List::EMPTY,
            localizers: List::EMPTY,
            wants_copy: false,
            pause: config.resend_min,
        };
        let kept = Kept {
            index: NONE,
            to: 0,
            localize: Number::NONE,
            left: Left::No,
            doublings: 0,
            epoch: RowEpoch::NONE,
            pause: config.resend_min,
            next: NONE,
        };
        let places = Places {
            active: NONE,
            kept: NONE,
            lost: 0,
            restored: 0,
            owner: NOBODY,
            until: 0,
            is_watched: false,
        };
        let mut session = Client::new(ClientConfig::every(HELLO_INTERVAL_NS, 0), life.max(1));
        session.begin(0, now);
        Self {
            table,
            me: config.me,
            home: config.home,
            processes: config.processes.to_vec(),
            mode: config.mode,
            has_cache: config.has_cache,
            limits,
            resend: (config.resend_min, config.resend_max),
            rtt: RttEstimator::new(config.resend_min, config.resend_min, config.resend_max),
            answered: None,
            beat: config.beat,
            beat_at: Nanos::MAX,
            session,
            is_lost: false,
            life: 0,
            run: 0,
            living: Members::EMPTY,
            cookie_up: Cookie::default(),
            cookie_down: Cookie::default(),
            open: OpenNumbers::new(limits.open_numbers_max as usize),
            batch: NO_BATCH,
            floors: vec![Number::NONE; processes],
            places: vec![places; table.key_count as usize],
            actives: Pool::new(actives, &active),
            noted: vec![Number::NONE; actives * processes],
            remote: vec![NONE; actives * table.lasts_per_row()],
            flights: vec![NO_FLIGHT; actives * lanes],
            remotes: Pool::new(remotes, &Remote { number: Number::NONE, parts: Parts::NONE }),
            remote_values: vec![0.0; remotes * 2 * row_len],
            kept: Pool::new(transfers, &kept),
            kept_values: vec![0.0; transfers * row_len],
            kept_lasts: vec![Number::NONE; transfers * table.lasts_per_row()],
            operations: Operations::new(limits.queued_max as usize, row_len),
            clock: 1,
            staleness: config.staleness,
            watched: Vec::with_capacity(table.key_count as usize),
            planned: BinaryHeap::with_capacity(limits.intents_max as usize),
            background: [0; 2],
            unsent: Marks::new(actives),
            unsent_kept: Marks::new(transfers),
            timers: Timers::new(actives),
            kept_timers: Timers::new(transfers),
            claims: Claims::new(table.block_count()),
            frames: Frames::new(table),
            scratch: vec![0.0; row_len],
            stats: ProcessStats::default(),
        }
    }

    pub(super) fn place(&self, index: u32) -> &Places {
        &self.places[index as usize]
    }

    /// Remembers who has a row.
    pub(super) fn learn_owner(&mut self, index: u32, owner: u8) {
        self.places[index as usize].owner = owner;
    }

    /// Where an access to a row that is elsewhere goes at first.
    pub(super) fn first_way(&self, index: u32) -> To {
        match self.place(index).owner {
            owner if self.has_cache && owner != NOBODY && self.is_living(owner) => {
                To::Process(owner)
            }
            _ => To::Home,
        }
    }

    pub(super) fn is_living(&self, process: u8) -> bool {
        self.living.contains(Members(1 << process))
    }

    /// The active key, which it becomes now if there is room.
    pub(super) fn activate(&mut self, index: u32) -> Option<u32> {
        let known = self.place(index).active;
        if known != NONE {
            return Some(known);
        }
        let place = self.actives.take(Active {
            index,
            localize: Number::NONE,
            localize_left: Left::No,
            doublings: 0,
            queue: List::EMPTY,
            localizers: List::EMPTY,
            wants_copy: false,
            pause: self.resend.0,
        })?;
        self.places[index as usize].active = place;
        Some(place)
    }

    /// Forgets an active key of which nothing is wanted any more.
    pub(super) fn retire(&mut self, active: u32) {
        let Active { index, localize, queue, localizers, wants_copy, .. } = &self.actives[active];
        let is_wanted = self.flights(active).iter().any(|flight| flight.number.is_some())
            || *wants_copy
            || localize.is_some()
            || !queue.is_empty()
            || !localizers.is_empty();
        if is_wanted {
            return;
        }
        self.places[*index as usize].active = NONE;
        self.actives[active].index = NONE;
        self.timers.set(active as usize, Nanos::MAX);
        self.actives.give_back(active);
    }

    /// The localize of `process` that waits here for the row.
    pub(super) fn noted(&mut self, active: u32, process: u8) -> &mut Number {
        &mut self.noted[active as usize * self.processes.len() + usize::from(process)]
    }

    /// The access of `process` that waits here for the row, of the lane of `number`.
    pub(super) fn remote(&mut self, active: u32, process: u8, number: Number) -> &mut u32 {
        let place = self.table.last_place(process, number);
        &mut self.remotes_of(active)[place]
    }

    /// The accesses of others that wait here for the row, as their last numbers stand in it.
    pub(super) fn remotes_of(&mut self, active: u32) -> &mut [u32] {
        let len = self.table.lasts_per_row();
        &mut self.remote[active as usize * len..][..len]
    }

    /// The accesses in flight of an active key, by lane.
    pub(super) fn flights(&self, active: u32) -> &[Flight] {
        let lanes = usize::from(self.table.in_flight);
        &self.flights[active as usize * lanes..][..lanes]
    }

    /// The access in flight in a lane.
    pub(super) fn flight(&self, active: u32, lane: u8) -> &Flight {
        &self.flights[active as usize * usize::from(self.table.in_flight) + usize::from(lane)]
    }

    pub(super) fn flight_mut(&mut self, active: u32, lane: u8) -> &mut Flight {
        let lanes = usize::from(self.table.in_flight);
        &mut self.flights[active as usize * lanes + usize::from(lane)]
    }

    /// The access in flight that has this number, if it is there.
    pub(super) fn flight_of(&self, active: u32, number: Number) -> Option<&Flight> {
        let flight = self.flight(active, self.table.lane(number));
        (number.is_some() && flight.number == number).then_some(flight)
    }

    /// Value and last numbers of a kept copy.
    pub(super) fn kept_row(&mut self, kept: u32) -> (&mut [f32], &mut [Number]) {
        let row_len = usize::from(self.table.row_len);
        let lasts = self.table.lasts_per_row();
        let value = &mut self.kept_values[kept as usize * row_len..][..row_len];
        (value, &mut self.kept_lasts[kept as usize * lasts..][..lasts])
    }

    /// The frames in the making, the floors, and value and last numbers of a kept copy.
    pub(super) fn kept_parts(&mut self, kept: u32) -> (&mut Frames, &[Number], &[f32], &[Number]) {
        let row_len = usize::from(self.table.row_len);
        let lasts_len = self.table.lasts_per_row();
        let value = &self.kept_values[kept as usize * row_len..][..row_len];
        let lasts = &self.kept_lasts[kept as usize * lasts_len..][..lasts_len];
        (&mut self.frames, &self.floors, value, lasts)
    }

    /// The copies that are kept of a key, the newest first.
    pub(super) fn kept_of(&self, index: u32) -> impl Iterator<Item = (u32, Kept)> + '_ {
        let mut next = self.place(index).kept;
        core::iter::from_fn(move || {
            let place = next;
            let kept = (place != NONE).then(|| self.kept[place])?;
            next = kept.next;
            Some((place, kept))
        })
    }

    /// Forgets a kept copy, if it is there; returns when it left.
    pub(super) fn forget_kept(&mut self, index: u32, epoch: RowEpoch) -> Option<Left> {
        let place = self.kept_of(index).find(|(_, kept)| kept.epoch == epoch)?.0;
        let before = self.kept_of(index).find(|(_, kept)| kept.next == place);
        let next = self.kept[place].next;
        match before {
            Some((before, _)) => self.kept[before].next = next,
            None => self.places[index as usize].kept = next,
        }
        self.kept[place].index = NONE;
        self.kept_timers.set(place as usize, Nanos::MAX);
        let left = self.kept[place].left;
        self.kept.give_back(place);
        Some(left)
    }

    /// Something of this key leaves for the first time.
    pub(super) fn begin_pause(&mut self, active: u32) {
        self.actives[active].pause = self.rtt.rto();
        self.actives[active].doublings = self.rtt.doublings();
    }

    /// What left so has been answered.
    pub(super) fn note_answer(&mut self, left: Left) {
        if let Left::Once(at) = left {
            self.answered.get_or_insert(at);
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.actives.used_count() == 0 && self.kept.used_count() == 0
    }
}

/// No number was given in this turn.
pub(super) const NO_BATCH: [Number; IN_FLIGHT_MAX as usize + 1] =
    [Number::NONE; IN_FLIGHT_MAX as usize + 1];
/// No process.
pub(super) const NOBODY: u8 = u8::MAX;
/// Between two datagrams of a handshake at first.
const HELLO_INTERVAL_NS: u64 = 20_000_000;
