//! `weft-node` as a process.

mod af_packet;
mod bands;
mod bands_answered;
mod bands_kept;
mod bands_killed;
mod bands_tables;
#[path = "common/capture.rs"]
mod capture;
mod common;
mod config;
#[cfg(feature = "dpdk")]
mod dpdk;
#[cfg(feature = "dpdk")]
mod dpdk_labels;
mod keys;
#[path = "common/lab.rs"]
mod lab;
mod leases;
#[path = "common/member.rs"]
mod member;
#[path = "common/played.rs"]
mod played;
mod port_bands;
#[path = "common/rig.rs"]
mod rig;
mod server;
mod udp;
