//! Engines on ports: what makes a lane out of both, whoever runs it.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`breath`] | receives a burst, lets the engine decide, sends what it says |
//! | [`engine`] | what a lane asks of its engine, and how each role answers |
//! | [`steer`] | decides which lane a frame belongs to |
//! | [`steered`] | hands frames between lanes |
//! | [`wrap`] | puts captures and faults around a port |
//!
//! Nothing here opens a port, starts a thread or reads a clock.
#![forbid(unsafe_code)]

pub mod breath;
pub mod engine;
pub mod steer;
pub mod steered;
pub mod wrap;

pub use breath::{AggregatorLane, HostSide, LaneStats, RoleLane};
pub use engine::LaneEngine;
