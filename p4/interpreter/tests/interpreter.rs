//! The interpreter against the real switch.

mod golden;
mod programs;
mod rig;
mod testgen;
