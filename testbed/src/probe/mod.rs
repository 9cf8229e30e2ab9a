//! `weft probe`: estimates the bandwidth of every link of a lab and holds it against what the lab's
//! links are shaped to.
//!
//! | file | what it does |
//! | --- | --- |
//! | [`network`] | decides what the truth is, from the links of a lab |
//! | `options`, `process` | what it is asked to do; the processes that do it |
//! | [`session`] | starts an agent in every host, hands the planner's trains out, collects what they show |
//! | `cross` | traffic beside them, where it was asked for |
//! | [`agent`] | one host: sends and receives trains, reads its NIC's counters |
//! | [`message`] | what the two tell each other |
//! | [`report`] | the table, as text, JSON and CSV |
//!
//! All estimating is `weft-plan`'s, as the controller has it; nothing here knows the shaped rates
//! but the report.

pub mod agent;
mod cross;
pub mod message;
pub mod network;
mod options;
mod process;
pub mod report;
pub mod session;

pub use network::{Network, NetworkError};
pub use options::{Cross, CrossTool, Options, Step};
pub use report::{Report, Row};
pub use session::{ProbeFailure, run};
