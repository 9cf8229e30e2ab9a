//! The wire format of Weft: newtypes, layout, views, quantisation.
#![no_std]
#![forbid(unsafe_code)]

mod types;

pub use types::{MacAddr, MacAddrError, Nanos};
