//! The sans-IO state machines of Weft.
//!
//! # The life of a packet
//!
//! | step | where | question |
//! | --- | --- | --- |
//! | 1 | `RoleLane::breathe` (weft-lane), `Port::rx_burst` (weft-io, weft-dpdk) | which frames arrived |
//! | 2 | [`classify`] | is it Weft's, is it whole |
//! | 3 | [`weft_wire::header::Header::parse`] | is it well-formed |
//! | 4 | [`role::aggregator::Aggregator::handle_frame`], [`admit`] | whose is it: row, rank, cookie, lane, quota |
//! | 5 | [`slot::bitmap`] | seen already? |
//! | 6 | [`slot::counter`] | what happened, for the record |
//! | 7 | [`slot::accumulate`] | the sum |
//! | 8 | [`slot::next_step`] | what comes of it: add, answer, send up, or refuse |
//! | 9 | [`role::Verdict`] | drop, hold, send, or multicast, in place |
//! | 10 | `RoleLane`, `Port::tx_burst` | out |
//!
//! What a frame must show at step 4 was agreed by a handshake: `session/client.rs` opens it,
//! `session/host.rs` answers, and above them stand a lease's formation and the channels.
//!
//! The same slot stages in the same order make up the P4 program; `proto/vectors/slot.toml` says
//! what they come to, cell by cell.
//!
//! Nothing here reads a clock, a socket or a random device: time and seeds are arguments (I10).
//! The crate is `no_std`, so it could not if it wanted to. All memory is taken when a lane is
//! made; no frame allocates, blocks or panics (I7, I8).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod admit;
pub mod classify;
pub mod drops;
pub mod figures;
pub mod random;
pub mod role;
pub mod send;
mod session;
pub mod slot;
pub mod steps;
pub mod table;
mod timers;

pub use session::path::{PathProbe, PathProbeConfig, PathVerdict};
