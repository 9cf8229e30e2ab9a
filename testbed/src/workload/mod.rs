//! What the workers of a run compute, and the references that check what came of it.

pub mod factorisation;
mod model;

pub use weft_workload::{digits, push_reference, reference};
