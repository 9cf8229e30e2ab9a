//! Decides which jobs of a cluster run, where, and how wide; without a clock and without I/O.
//!
//! The simulator (`weft cluster`) and the controller ask the same policies the same questions.

pub mod bands;
pub mod model;
