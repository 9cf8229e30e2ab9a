//! What a WELCOME agrees, at both ends (SPEC#handshake).

use weft_wire::hello::Hello;
use weft_wire::{Cookie, Epoch, GroupId};

/// Identity of one formation, as one peer sees it. Equal terms, same formation and same life.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Terms {
    pub(crate) epoch: Epoch,
    pub(crate) group: GroupId,
    /// Carried by the client's frames.
    pub(crate) cookie_up: Cookie,
    /// Carried by the host's frames.
    pub(crate) cookie_down: Cookie,
}

impl Terms {
    /// The terms of a WELCOME that came under this group id.
    pub(crate) fn of(welcome: &Hello, group: GroupId) -> Self {
        let Hello { epoch, cookie_up, cookie_down, .. } = *welcome;
        Self { epoch, group, cookie_up, cookie_down }
    }
}
