//! Runs a P4 program that p4c compiled for BMv2, without BMv2: a stand-in for `simple_switch` that
//! needs nothing but the JSON file, and is stricter.
//!
//! It decides what a `simple_switch` would send for a frame: parser, checksums, ingress,
//! replication and egress as in BMv2's `JSON_format.md` and its source. Only what the project's
//! program uses is there; a primitive, an operator or a feature beyond it is refused when a file is
//! loaded.
//!
//! What BMv2 lets pass, and here is a [`Fault`]: reading or writing a field of an invalid header
//! (BMv2 gives what an earlier packet left there), an index beyond an array (BMv2 ignores it, or
//! reads beyond, by its build), a frame that grows by more than 512 bytes (BMv2 aborts, or writes
//! beyond its buffer) and a look ahead behind the end of a frame. A fault names action and line.
//!
//! Nothing here has a clock or does I/O: meters are green until a test colours them, time stamps
//! are 0, and copies of one frame are worked on in the order of their replication.
#![forbid(unsafe_code)]

mod compile;
mod fault;
mod program;
mod run;
mod state;
mod switch;
mod value;

pub use compile::LoadError;
pub use fault::{Fault, FaultKind, Place};
pub use switch::{Count, Switch, TableInfo, WriteError};
