//! The ports.

mod af_packet;
mod af_packet_runs;
mod alloc;
mod bands;
mod common;
#[path = "../../../tests/tests/support/counting.rs"]
mod counting;
mod fault;
mod memory;
mod pcap;
mod probe;
mod restamp;
mod shm;
mod shm_casts;
mod shm_lanes;
mod shm_source;
mod udp;
mod udp_joined;
mod udp_lanes;
mod udp_multicast;
mod udp_offload;
