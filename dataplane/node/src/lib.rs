//! The aggregator daemon: lcores, configuration, statistics, the host side of a port.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`agent`] | speaks with the controller, logs what happens to groups |
//! | [`config`] | reads the file that [`weft_config::node`] is the manual of |
//! | [`cli`] | the command line |
//! | [`control`] | queues between a lane and a controller's agent |
//! | [`durable`] | what servers keep on disk, and begin anew with |
//! | [`model`] | files that models come from and go to |
//! | [`node`] | opens the port, runs the lanes, ends them |
//! | [`record`] | keeps what the engines met, and what they began with |
//! | [`lane`] | one lane's thread |
//! | [`host`] | ARP, NDP and ping through smoltcp |
//! | [`environment`] | finds out before the start why a start would fail |
//! | [`error`] | why a node did not run |
//! | `switch` | runs a lane behind a P4 switch |
//! | [`stats`] | snapshots, reports, text, metrics |
//! | `tally` | what lanes count, for the controller |
//!
//! The binary is `main.rs`; everything here can be tested without it.
// These macros panic when nobody reads: `weft_process::say` does not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]
#![forbid(unsafe_code)]

pub mod agent;
pub mod bands;
pub mod cli;
pub mod config;
pub mod control;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod durable;
pub mod environment;
pub mod error;
pub mod host;
pub mod lane;
pub mod model;
pub mod node;
mod offloads;
pub mod record;
mod reporter;
mod shm;
pub mod stats;
mod switch;
mod tally;
mod trace;
