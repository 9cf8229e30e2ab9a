//! Order numbers that no group has, although later ones are there.
//!
//! Invariant: they hold up those behind them for a bounded time, and not at all once the controller
//! has said that no group will have them.

use weft_control::OrderNumber;
use weft_wire::Nanos;

/// The order numbers that no group has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holes {
    /// Since when the next number has been one.
    since: Option<Nanos>,
    /// Below this they are meant, and not waited for.
    skip_below: u64,
}

impl Holes {
    /// Numbers below that no group has stay unused.
    pub(super) fn skip(&mut self, below: OrderNumber) {
        self.skip_below = self.skip_below.max(below.0);
    }

    /// The next order number has a group, or there is none to wait for.
    pub(super) fn close(&mut self) {
        self.since = None;
    }

    /// Where the run of holes ends that begins with the next order number, as far as it is not
    /// waited for; else until when. `first` is the first number that has a group.
    pub(super) fn pass(
        &mut self,
        now: Nanos,
        next_order: u64,
        first: u64,
        lateness_ns: u64,
    ) -> Result<u64, Nanos> {
        let since = *self.since.get_or_insert(now);
        let until = since.saturating_add(Nanos(lateness_ns));
        let after = if now >= until { first } else { first.min(self.skip_below) };
        if after > next_order { Ok(after) } else { Err(until) }
    }
}
