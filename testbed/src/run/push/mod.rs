//! A run with a parameter server.
mod log;
mod message;
mod recording;
mod replica;
mod sequence;
mod verify;
pub use log::*;
pub use message::*;
pub use recording::*;
pub use verify::*;
