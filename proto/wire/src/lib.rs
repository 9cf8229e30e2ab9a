//! The wire format of Weft, as `proto/SPEC.md` describes it.
//!
//! | module | answers |
//! | --- | --- |
//! | [`frame`] | is this Ethernet frame a whole UDP datagram, and how is one written |
//! | [`header`] | what the 32-byte header says |
//! | [`hello`] | what a handshake body says |
//! | [`keys`] | what the body of a datagram about keys says |
//! | [`probe`] | what the datagrams of a packet train say |
//! | [`quant`] | how values become fixed-point numbers and back |
//! | [`rows`] | which rows mean the same in every job |
//! | [`mod@words`] | what text, files and help call the values of an enumeration |
//!
//! No I/O, no allocation, no unsafe. Views never judge content; parsed forms are always valid.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod frame;
pub mod header;
pub mod hello;
pub mod keys;
pub mod probe;
pub mod quant;
pub mod rows;
mod types;
pub mod words;

pub use types::{
    ChunkIndex, Cookie, Epoch, GroupId, JobId, MEMBERS_MAX, MacAddr, MacAddrError, Members, Nanos,
    Rank,
};
