//! What the workers of a run compute, and the references that check what came of it.

pub mod digits;
pub mod factorisation;
mod model;
pub mod push_reference;
pub mod reference;
