//! What all handshakes share (SPEC#handshake): which life of a peer a JOIN is of, and whether the
//! path carries long datagrams. Allreduce's members and channels, and both ends of each, use the
//! same rules.

pub(crate) mod life;
pub(crate) mod probe;
