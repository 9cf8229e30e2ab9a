//! Tests that span crates, and what several of them share.

pub mod crc32c;
pub mod frames;
pub mod fuzz;
pub mod links;
pub mod live;
pub mod model;
pub mod push_sim;
pub mod reference;
pub mod sim;
pub mod transcript;
pub mod vectors;
