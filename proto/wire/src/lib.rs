//! The wire format of Weft: newtypes, layout, views, quantisation.
#![no_std]
#![forbid(unsafe_code)]

pub mod quant;
mod types;

pub use types::{MacAddr, MacAddrError, Nanos};
