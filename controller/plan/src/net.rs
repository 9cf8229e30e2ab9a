//! What is left of the network, link by link and over time.

pub mod estimate;
pub mod ledger;
pub(crate) mod profile;
pub mod sharing;
pub mod timeline;
pub mod topology;
pub mod units;
