//! Whether the box knows all that it is to hold, and so may say that it does not serve something.
//!
//! A box that gets its jobs and leases from a controller comes back from a crash without them, and
//! members that ask for theirs meanwhile must not hear that it serves no such thing: they would
//! give up what is there again in a moment (SPEC#handshake). So until the controller has said that
//! the box has all, such a HELLO is not answered, and its member asks on, as it asks a box that is
//! down.
//!
//! Invariant: the silence ends, by the controller's word or [`UNSETTLED_MAX`] after the first such
//! HELLO.

use weft_wire::Nanos;

/// Whether the box has all that it is to hold.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settled {
    /// More may come.
    is_partial: bool,
    /// When it was first asked for what it does not serve.
    asked: Option<Nanos>,
}

impl Settled {
    /// Of a box to which more may come.
    pub(super) const PARTIAL: Self = Self { is_partial: true, asked: None };
    /// Of one that has all.
    pub(super) const WHOLE: Self = Self { is_partial: false, asked: None };

    /// Somebody asks for what the box does not serve: whether it may say so.
    pub(super) fn may_refuse(&mut self, now: Nanos) -> bool {
        let asked = *self.asked.get_or_insert(now);
        !self.is_partial || now.since(asked) >= UNSETTLED_MAX
    }
}

/// How long a box whose controller says nothing keeps silent about what it does not serve.
pub const UNSETTLED_MAX: Nanos = Nanos::from_millis(60_000);
