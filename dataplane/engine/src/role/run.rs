//! Runs: contributions of one burst to one step, which wait for each other and are summed in one
//! pass.
//!
//! Here is what a role says of a frame that may wait, and the numbers of the runs that do. Which
//! contributions wait is for the roles: `aggregator/run.rs` for windowed leases, `gather/run.rs`
//! for whole ones.

use crate::drops::DropReason;

/// What became of a frame of a burst. Small, so that it travels in a register.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Taken {
    /// Not decided here, and nothing has changed. When all runs are summed, `handle_frame` decides.
    Else,
    /// Refused, and counted under this reason. The frame is free.
    Drop(DropReason),
    /// Taken in: it waits in this run, behind those that wait there already.
    Wait(RunIndex),
    /// The same, and the run is to be summed at once.
    Sum(RunIndex),
}

/// Number of a run among those that wait, below [`RUNS_MAX`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RunIndex(u8);

impl RunIndex {
    /// Of a windowed lease's run.
    #[inline(always)]
    pub(super) const fn windowed(number: u8) -> Self {
        Self(number)
    }

    /// Of a whole lease's run.
    #[inline(always)]
    pub(super) const fn whole(number: u8) -> Self {
        Self(WHOLE | number)
    }

    /// Its number among those of its kind of lease.
    #[inline(always)]
    pub(super) const fn number(self) -> u8 {
        self.0 & !WHOLE
    }

    /// True when it is of a whole lease.
    #[inline(always)]
    #[must_use]
    pub const fn is_whole(self) -> bool {
        self.0 & WHOLE != 0
    }

    /// As an index.
    #[inline(always)]
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0) % RUNS_MAX
    }
}

/// The runs of one kind of lease in a lane; `W` is what is known of one that waits: a few numbers,
/// each read as it was written. What is put together in memory can only be read when all stores
/// before it are done.
#[derive(Debug)]
pub(super) struct Runs<W> {
    waiting: [W; WAITING_MAX],
    /// A bit for each that does not wait.
    free: u64,
}

impl<W: Copy> Runs<W> {
    /// None waits. `none` is only memory.
    pub(super) fn new(none: W) -> Self {
        Self { waiting: [none; WAITING_MAX], free: u64::MAX }
    }

    /// True when no other can begin.
    #[inline(always)]
    pub(super) const fn is_full(&self) -> bool {
        self.free == 0
    }

    /// Begins one, where there is room.
    #[inline(always)]
    pub(super) fn begin(&mut self, waiting: W) -> u8 {
        let number = lowest(self.free);
        self.free &= self.free.wrapping_sub(1);
        *self.get_mut(number) = waiting;
        number
    }

    /// One that waits.
    #[inline(always)]
    pub(super) fn first(&self) -> Option<u8> {
        let waiting = !self.free;
        (waiting != 0).then(|| lowest(waiting))
    }

    /// What is known of one.
    #[inline(always)]
    pub(super) fn get(&self, number: u8) -> W {
        self.waiting[usize::from(number) % WAITING_MAX]
    }

    /// The same, to be changed.
    #[inline(always)]
    pub(super) fn get_mut(&mut self, number: u8) -> &mut W {
        &mut self.waiting[usize::from(number) % WAITING_MAX]
    }

    /// It waits no more.
    #[inline(always)]
    pub(super) fn end(&mut self, number: u8) -> W {
        self.free |= 1 << (usize::from(number) % WAITING_MAX);
        self.get(number)
    }
}

/// The lowest bit that is set.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "at most 64")]
const fn lowest(bits: u64) -> u8 {
    bits.trailing_zeros() as u8
}

/// Runs of one kind of lease that wait at most; with more, a frame goes the short way.
pub(super) const WAITING_MAX: usize = u64::BITS as usize;
/// Runs that wait at most.
pub const RUNS_MAX: usize = 2 * WAITING_MAX;
const WHOLE: u8 = 0x40;
const _: () = assert!(WHOLE as usize == WAITING_MAX);
