//! How a peer is reached, as a switch that stands before the box needs to know it.

use weft_wire::Cookie;
use weft_wire::frame::Encap;

/// The way to a peer, and what frames on it carry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way<'a> {
    pub(crate) encap: &'a Encap,
    /// The peer's frames carry it.
    pub(crate) cookie_up: Cookie,
    /// Frames to the peer carry it.
    pub(crate) cookie_down: Cookie,
}
