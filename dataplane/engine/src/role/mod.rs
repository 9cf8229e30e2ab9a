//! The roles: one state machine per kind of box.

pub mod aggregator;
pub mod channel;
pub mod gather;
pub mod keys;
pub mod model;
pub mod push;
pub mod replica;
mod run;
pub mod server;
pub mod switch;
mod verdict;
mod way;
pub mod worker;

pub use run::{RUNS_MAX, RunIndex, Taken};
pub use verdict::{LeaseIndex, PushIndex, Verdict};
