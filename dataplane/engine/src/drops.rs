//! Counters of refused frames. Every refused frame counts under exactly one reason (DESIGN I7); the
//! order of the checks is SPEC#checks.

pub use weft_control::figures::DropReason;

/// One counter per [`DropReason`].
#[derive(Clone, Debug)]
pub struct DropCounters([u64; DropReason::COUNT]);

impl Default for DropCounters {
    fn default() -> Self {
        Self([0; DropReason::COUNT])
    }
}

impl DropCounters {
    /// Counts one refused frame.
    pub fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// Counts frames that were refused elsewhere.
    pub fn count_many(&mut self, reason: DropReason, count: u64) {
        self.0[reason as usize] += count;
    }

    /// Frames refused for `reason`.
    #[must_use]
    pub fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Frames refused for any reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Reasons and counts, in the order of the enum.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|(reason, _)| (*reason, self.of(*reason)))
    }
}
