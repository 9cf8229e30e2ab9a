//! When to send, how much, and when again. Each type is plain arithmetic on `now`.

pub mod datagram;
pub mod delay;
pub mod pacer;
pub mod path;
pub mod retransmit;
pub mod train;
pub mod window;
