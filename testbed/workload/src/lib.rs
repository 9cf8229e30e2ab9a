//! Trains the model of digits, and computes again in one process what workers did with it: the
//! references that check a run.
//!
//! A crate of its own because a build for tests optimises it: a run waits for it.

#![forbid(unsafe_code)]

pub mod digits;
pub mod push_reference;
pub mod reference;
