//! The roles: one state machine per kind of box.

pub mod aggregator;
pub mod channel;
pub mod push;
pub mod worker;
