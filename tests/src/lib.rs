//! Tests that span crates.

pub mod model;
