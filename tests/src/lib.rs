//! Tests that span crates, and what several of them share.

pub mod crc32c;
pub mod fuzz;
pub mod live;
pub mod model;
pub mod recordings;
pub mod reference;
pub mod seeds;
pub mod vectors;
