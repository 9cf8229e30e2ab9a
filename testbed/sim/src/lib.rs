//! The whole system in virtual time: the real engines on a simulated network, one seed at a time.
//!
//! | module | what |
//! | --- | --- |
//! | [`world`] | the simulator: clock, queue, nodes on a network, an enemy, what is done to nodes |
//! | [`allreduce`] | workers and aggregators that reduce |
//! | [`push`] | workers, aggregators, server, replica and controller |
//! | [`steer`] | an allreduce job that is paused and resized while its controller and its box die |
//! | [`keys`] | processes that move rows among them, and their box |
//! | [`network`], [`links`] | what happens to each frame on its way, and when it is through |
//! | [`hostile`] | an enemy who adds frames |
//! | [`seeds`] | many seeds of every kind of scenario, on all processors |
//! | [`report`] | what came of a seed |
//! | [`engine`] | a lane's engine |
//! | [`coverage`] | what was provoked |
//! | [`transcript`] | the fingerprint of a run |
#![forbid(unsafe_code)]

pub mod allreduce;
pub mod coverage;
pub mod engine;
pub mod frames;
pub mod hostile;
pub mod keys;
pub mod links;
pub mod network;
pub mod push;
pub mod report;
pub mod seeds;
pub mod steer;
pub mod transcript;
pub mod world;

use weft_engine::random::SplitMix64;

/// Mixes words into one.
#[must_use]
pub fn hash(words: &[u64]) -> u64 {
    words.iter().fold(0, |hash, word| SplitMix64::new(hash ^ word.rotate_left(32)).next_u64())
}
