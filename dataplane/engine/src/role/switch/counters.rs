//! What the switch counts: refusals, transitions of slots, and how far each update has come.
//!
//! Decides when which counters are read, and what their growth means: for a job's statistics (I11:
//! what was summed by the switch counts as summed), and for a controller, which hears when a
//! member's update is whole here. A counter is never set back, so only growth is looked at.

use alloc::collections::{BTreeMap, VecDeque};
use core::ops::Range;

use weft_control::Event;
use weft_wire::{GroupId, JobId, MEMBERS_MAX, Members, Nanos, Rank};

use super::entry::RowKey;
use super::mirror::Mirror;
use super::target::Target;
use crate::drops::DropReason;
use crate::role::aggregator::Aggregator;
use crate::role::gather;
use crate::slot::counter::Transition;

/// A counter of the switch's program.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Counter {
    /// Refused frames, by [`DropReason`].
    Drops,
    /// Transitions of slots: 32 for each scope.
    Transitions,
    /// Contributions of each member to each whole lease: 64 for each.
    Progress,
}

impl Counter {
    /// Its name in the program.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drops => "drops",
            Self::Transitions => "transitions",
            Self::Progress => "progress",
        }
    }
}

/// Cells that are to be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Read {
    /// Of which counter.
    pub counter: Counter,
    /// Which.
    pub cells: Range<u32>,
}

/// Transitions of one job, by code.
pub type Codes = [u64; CODES];

/// What the switch has counted since this box began.
#[derive(Debug)]
pub struct Counters {
    drops: [u64; DropReason::COUNT],
    jobs: BTreeMap<u16, Codes>,
    /// What cells stood at when they were read last.
    last: BTreeMap<(Counter, u32), u64>,
    /// Groups that are not whole here yet, by row index.
    gathering: BTreeMap<u16, Gathering>,
    due: VecDeque<Read>,
    scopes: u16,
    read_at: Nanos,
    progress_at: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Gathering {
    job: JobId,
    group: GroupId,
    chunks: u32,
    missing: Members,
    /// Contributions in, by rank.
    entered: [u32; MEMBERS_MAX],
}

impl Counters {
    pub(super) fn new(target: &Target) -> Self {
        Self {
            drops: [0; DropReason::COUNT],
            jobs: BTreeMap::new(),
            last: BTreeMap::new(),
            gathering: BTreeMap::new(),
            due: VecDeque::new(),
            scopes: target.scopes,
            read_at: READ_EVERY,
            progress_at: Nanos::MAX,
        }
    }

    /// Frames that the switch refused for this reason.
    #[must_use]
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// Transitions of a job's windowed leases.
    #[must_use]
    pub fn windowed(&self, job: JobId, transition: Transition) -> u64 {
        self.code(job, transition as usize)
    }

    /// Transitions of a job's whole leases.
    #[must_use]
    pub fn whole(&self, job: JobId, transition: gather::Transition) -> u64 {
        let place = WHOLE.iter().position(|known| *known == transition);
        place.map_or(0, |place| self.code(job, Transition::COUNT + place))
    }

    fn code(&self, job: JobId, code: usize) -> u64 {
        self.jobs.get(&job.0).and_then(|codes| codes.get(code)).copied().unwrap_or(0)
    }

    /// The switch serves a group from now on.
    pub(super) fn begin(&mut self, key: RowKey, mirror: &Mirror, aggregator: &Aggregator) {
        let view = aggregator.gather().views().find(|push| push.config().job == key.job);
        let group = view.and_then(|push| push.groups().find(|group| group.id.row() == key.row));
        let (Some(group), Some(index)) = (group, mirror.row_index(key)) else { return };
        let gathering = Gathering {
            job: key.job,
            group: group.id,
            chunks: group.chunks,
            missing: group.mask,
            entered: [0; MEMBERS_MAX],
        };
        self.gathering.insert(index, gathering);
        self.progress_at = self.progress_at.min(Nanos(0));
    }

    /// The switch serves what had this place no more. Its cells are read once more, so that what
    /// comes next in the place begins from there.
    pub(super) fn end(&mut self, index: u16) {
        self.gathering.remove(&index);
        let cells = cells_of(index);
        self.due.push_back(Read { counter: Counter::Progress, cells });
    }

    /// All that statistics are made of is due.
    pub(super) fn hurry(&mut self) {
        self.read_at = Nanos(0);
    }

    pub(super) fn poll(&mut self, now: Nanos, mirror: &Mirror) -> Option<Read> {
        if now >= self.read_at {
            self.read_at = now.saturating_add(READ_EVERY);
            let reasons = u32::try_from(DropReason::COUNT).expect("few reasons");
            self.due.push_back(Read { counter: Counter::Drops, cells: 0..reasons });
            for scope in 0..self.scopes {
                if mirror.owner(usize::from(scope)).is_some() {
                    let first = u32::from(scope) * CODES_U32;
                    let cells = first..first + CODES_U32;
                    self.due.push_back(Read { counter: Counter::Transitions, cells });
                }
            }
        }
        if now >= self.progress_at {
            let is_done = self.gathering.is_empty();
            self.progress_at =
                if is_done { Nanos::MAX } else { now.saturating_add(PROGRESS_EVERY) };
            for (index, gathering) in &self.gathering {
                let ranks = MEMBERS_MAX - gathering.missing.0.leading_zeros() as usize;
                let first = cells_of(*index).start;
                let cells = first..first + u32::try_from(ranks).expect("at most 64");
                self.due.push_back(Read { counter: Counter::Progress, cells });
            }
        }
        self.due.pop_front()
    }

    pub(super) fn timeout(&self) -> Nanos {
        if self.due.is_empty() { self.read_at.min(self.progress_at) } else { Nanos(0) }
    }

    /// Takes what a cell stands at.
    pub(super) fn handle(
        &mut self,
        counter: Counter,
        cell: u32,
        value: u64,
        mirror: &Mirror,
        events: &mut VecDeque<(JobId, Event)>,
    ) {
        let last = self.last.entry((counter, cell)).or_default();
        let grown = value.saturating_sub(*last);
        *last = value;
        if grown == 0 {
            return;
        }
        let index = cell as usize;
        match counter {
            Counter::Drops => {
                if let Some(drops) = self.drops.get_mut(index) {
                    *drops += grown;
                }
            }
            Counter::Transitions => {
                let owner = mirror.owner(index / CODES).and_then(|owner| owner.job());
                if let Some(job) = owner {
                    self.jobs.entry(job.0).or_insert([0; CODES])[index % CODES] += grown;
                }
            }
            Counter::Progress => self.advance(index, grown, events),
        }
    }

    fn advance(&mut self, cell: usize, grown: u64, events: &mut VecDeque<(JobId, Event)>) {
        let Ok(index) = u16::try_from(cell / MEMBERS_MAX) else { return };
        let Some(gathering) = self.gathering.get_mut(&index) else { return };
        let Some(rank) = u8::try_from(cell % MEMBERS_MAX).ok().and_then(Rank::new) else { return };
        let entered = &mut gathering.entered[rank.index()];
        *entered = entered.saturating_add(u32::try_from(grown).unwrap_or(u32::MAX));
        if *entered >= gathering.chunks && gathering.missing.contains(rank.bit()) {
            gathering.missing = gathering.missing.without(rank.bit());
            events.push_back((gathering.job, Event::Gathered { group: gathering.group, rank }));
            if gathering.missing.is_empty() {
                self.gathering.remove(&index);
            }
        }
    }
}

fn cells_of(index: u16) -> Range<u32> {
    let ranks = u32::try_from(MEMBERS_MAX).expect("64");
    let first = u32::from(index) * ranks;
    first..first + ranks
}

/// What whole leases go through in a switch; their codes follow those of windowed leases, in this
/// order, which is that of `p4/reasons.p4`.
pub const WHOLE: [gather::Transition; 12] = [
    gather::Transition::Narrow,
    gather::Transition::Store,
    gather::Transition::Add,
    gather::Transition::SendOnContribution,
    gather::Transition::RepeatCollecting,
    gather::Transition::RepeatSent,
    gather::Transition::RefuseStale,
    gather::Transition::CreditEmpty,
    gather::Transition::CreditCollecting,
    gather::Transition::SendOnCredit,
    gather::Transition::SendAgain,
    gather::Transition::CreditStale,
];
/// Transitions that the switch counts for each scope.
pub const CODES: usize = 32;
const CODES_U32: u32 = 32;
const _: () = assert!(Transition::COUNT + WHOLE.len() <= CODES);

/// How often the counters of statistics are read.
const READ_EVERY: Nanos = Nanos::from_millis(500);
/// How often it is looked how far updates have come.
const PROGRESS_EVERY: Nanos = Nanos::from_millis(50);
