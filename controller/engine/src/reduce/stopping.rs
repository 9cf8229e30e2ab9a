//! What a stop waits for, and since when. What comes of it is in `stop`.

/// How a stop stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stopping {
    /// A worker has no stream.
    pub(super) missing_since_ns: Option<u64>,
    /// The stop itself, or what is kept of it afterwards.
    pub(super) since_ns: Option<(Part, u64)>,
}

/// A part of a stop that has a time of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Part {
    Standstill,
    Checkpoint,
}
