//! How much a server's downlink carries, and how much of that while somebody waits for it.

use weft_wire::Nanos;

/// What it has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Downlink {
    /// Until then.
    pub at: Nanos,
    /// Octets that it was given.
    pub carried_bytes: u64,
    /// Time in which a worker had an update that was not decided.
    pub wanted: Nanos,
    /// Octets of that time.
    pub wanted_bytes: u64,
}

impl Downlink {
    /// Accounts for the time until `now`, in which nothing has changed.
    pub fn go_on(&mut self, now: Nanos, is_wanted: bool, carried_bytes: u64) {
        if is_wanted {
            self.wanted = self.wanted.saturating_add(now.since(self.at));
            self.wanted_bytes += carried_bytes - self.carried_bytes;
        }
        (self.at, self.carried_bytes) = (now, carried_bytes);
    }
}
