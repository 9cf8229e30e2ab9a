//! The roles: one state machine per kind of box.

pub mod aggregator;
pub mod channel;
pub mod gather;
pub mod model;
pub mod push;
pub mod replica;
pub mod server;
mod verdict;
pub mod worker;

pub use verdict::{LeaseIndex, PushIndex, Verdict};
