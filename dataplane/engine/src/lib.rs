//! The sans-IO state machines of Weft.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod role;
pub mod send;
