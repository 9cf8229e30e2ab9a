//! An agent and unmodified workers around a switch made of a few maps, in virtual time.

mod fake;
mod refused;
mod windowed;
mod world;
