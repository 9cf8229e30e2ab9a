//! Trains the model of digits, and computes again in one process what workers did with it: the
//! references that check a run.

#![forbid(unsafe_code)]

pub mod digits;
pub mod push_reference;
pub mod reference;
