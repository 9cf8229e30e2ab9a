//! Live tests that measure links: one at a time, beside nothing else.

mod live_bandwidth;
mod live_hosts;
mod live_probe;
