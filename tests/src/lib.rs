//! Tests that span crates.

/// The protocol's rules as small models, and the search that visits all their states.
pub mod model;
