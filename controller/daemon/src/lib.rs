//! The controller daemon: sockets and a clock around [`weft_controller_engine`], which decides.
//!
//! | module | does |
//! | --- | --- |
//! | [`cli`] | the command line |
//! | [`core`] | the one task that owns the engine: messages in, actions out, their words |
//! | [`auth`] | who calls, and what a caller may do |
//! | `stream` | takes what workers and boxes say to the core |
//! | [`northbound`] | gRPC to workers |
//! | [`southbound`] | gRPC to boxes |
//! | [`events`] | the log of what boxes were told to install |
//! | [`exec`] | policies that are other programs |
//! | [`status`] | gRPC to tools, `/metrics`, statistics |
//! | [`state`] | the file with what boxes cannot tell |
//! | [`daemon`] | starts and ends it all |
//!
//! Dependencies go one way: [`northbound`], [`southbound`] and [`status`] see [`core`], [`daemon`]
//! sees all.
//!
//! Invariant: what a peer sends, or a peer that goes away or reads nothing, touches that peer's
//! stream only. Every queue is bounded; a peer whose queue is full loses its stream and dials
//! again.
// These macros panic when nobody reads: `weft_process::say` does not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]
#![forbid(unsafe_code)]

pub mod auth;
pub mod cli;
pub mod core;
pub mod daemon;
pub mod error;
pub mod events;
pub mod exec;
pub mod northbound;
pub mod southbound;
pub mod state;
pub mod status;
mod stream;
