//! Engines on ports: what makes lanes of both, whoever runs them.
//!
//! | what | does |
//! | --- | --- |
//! | [`Settings`] | are what a configuration means, and make engines and lanes of it |
//! | [`RoleLane`] | breathes: receives a burst, lets its engine decide, sends what it says |
//! | [`LaneEngine`] | is what a lane asks of its engine |
//! | [`Keyed`] | puts homes of tables of rows beside an engine |
//! | [`LaneMap`] | decides which lane a frame belongs to |
//! | [`SteeredPort`] | hands frames between lanes |
//! | [`DrawTape`] | keeps what an engine draws |
//! | [`Wrapped`] | puts captures and faults around a port |
//! | [`Idle`] | decides when a lane sleeps |
//! | [`buffers`] | decides how much a box's sockets have to hold |
//!
//! Nothing here opens a port, starts a thread or reads a clock.
#![forbid(unsafe_code)]

mod assemble;
mod breath;
pub mod buffers;
mod draws;
mod engine;
mod idle;
mod keys;
mod settings;
mod steer;
mod steered;
mod wrap;

pub use assemble::LanePorts;
pub use breath::{AggregatorLane, HostSide, LaneStats, RoleLane};
pub use draws::DrawTape;
pub use engine::LaneEngine;
pub use idle::Idle;
pub use keys::{Homes, Keyed};
pub use settings::{KeyTable, Settings, holdings};
pub use steer::LaneMap;
pub use steered::{FramePool, LanePort, Relay, RelayPort, Ring, SteerStats, SteeredPort, steer};
pub use wrap::{Capture, Wrapped};
