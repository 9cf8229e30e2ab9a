//! When to send, how much, and when again. Each type is plain arithmetic on `now`.

pub mod datagram;
pub mod delay;
pub(crate) mod order;
pub mod pacer;
pub mod path;
pub mod retransmit;
pub(crate) mod share;
pub mod train;
pub mod window;
