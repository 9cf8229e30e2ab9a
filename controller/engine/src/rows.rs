//! Decides group ids: a row that no open group has, with a generation that it never had.
//!
//! Rows are shared by all jobs, so an id names one open group in the whole system. The row that was
//! free longest comes first, and every use of a row raises its generation, so an id comes again
//! after 2^26 groups at the earliest.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use weft_control::GROUPS_OPEN_MAX;
use weft_wire::GroupId;

/// All rows.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    free: VecDeque<u16>,
    generations: Vec<u32>,
    /// No generation is above this without [`Rows::ceiling`] having been saved.
    ceiling: u32,
}

impl Rows {
    /// All rows free; none was used more than `ceiling` times.
    pub(super) fn new(ceiling: u32) -> Self {
        Self {
            free: (0..GROUPS_OPEN_MAX).collect(),
            generations: vec![ceiling; usize::from(GROUPS_OPEN_MAX)],
            ceiling,
        }
    }

    /// An id; none while all rows are taken.
    pub(super) fn take(&mut self) -> Option<GroupId> {
        let row = self.free.pop_front()?;
        let generation = &mut self.generations[usize::from(row)];
        *generation += 1;
        if *generation > self.ceiling {
            self.ceiling = *generation + GENERATIONS_AHEAD;
        }
        #[expect(clippy::cast_possible_truncation, reason = "generations count modulo 2^16")]
        Some(GroupId::new(row, *generation as u16))
    }

    /// Takes the row of a group that a box still has. False when it is not a controller's row, or
    /// taken.
    pub(super) fn claim(&mut self, group: GroupId) -> bool {
        let Some(position) = self.free.iter().position(|row| *row == group.row()) else {
            return false;
        };
        self.free.remove(position);
        // From here on it counts from what the box knows, so that the next use differs; one that
        // is behind is an old one, and its row has gone on.
        let known = &mut self.generations[usize::from(group.row())];
        #[expect(clippy::cast_possible_truncation, reason = "generations count modulo 2^16")]
        let ahead = group.generation().wrapping_sub(*known as u16);
        if ahead <= u16::MAX / 2 {
            *known += u32::from(ahead);
            self.ceiling = self.ceiling.max(*known);
        }
        true
    }

    /// Frees a row.
    pub(super) fn free(&mut self, group: GroupId) {
        debug_assert!(!self.free.contains(&group.row()));
        self.free.push_back(group.row());
    }

    /// What a later controller must begin above.
    pub(super) const fn ceiling(&self) -> u32 {
        self.ceiling
    }
}

/// How far ahead generations are saved, so that it is done rarely.
const GENERATIONS_AHEAD: u32 = 64;
