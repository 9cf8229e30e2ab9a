//! What the workers of a run compute, and the reference that checks what they got back.

pub mod digits;
pub mod reference;
