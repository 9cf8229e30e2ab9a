//! Named maxima that a controller and its boxes share (DESIGN I8).

/// Groups that a controller may have open at one box, rows `0 .. GROUPS_OPEN_MAX`.
pub const GROUPS_OPEN_MAX: u16 = 1024;
/// Chunks of one update.
pub const UPDATE_CHUNKS_MAX: u32 = 1 << 20;
/// Most chunks of a train, about a millisecond of 1 Gb/s.
pub const TRAIN_CHUNKS_MAX: u16 = 128;
