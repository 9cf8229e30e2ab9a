//! Decides which jobs of a cluster run, where, and how wide; without a clock and without I/O.
//!
//! The simulator (`weft cluster`) and the controller ask the same policies the same questions.
//! Times are integer nanoseconds; the public formats are in seconds.

#![no_std]
#![forbid(unsafe_code)]

#[macro_use]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bands;
pub mod cluster;
pub mod experiment;
pub mod job;
pub mod lights;
pub mod live;
pub mod model;
pub mod optimum;
pub mod place;
pub mod policy;
pub mod sim;
pub mod text;
pub mod trace;
