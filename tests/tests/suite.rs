//! Tests that span crates and need no process of their own.

mod allocations;
mod conformance;
#[path = "support/counting.rs"]
mod counting;
mod crate_graph;
mod fingerprints;
mod fuzz_regressions_engine;
mod fuzz_regressions_wire;
mod goodput;
mod key_model;
mod key_simulation;
mod layout;
mod module_graph;
mod no_io;
mod p4_build;
mod p4_random;
mod protocol_model;
mod push_simulation;
mod reference;
mod replay_captures;
mod replay_corpus;
mod simulation;
mod steer_simulation;
mod vectors;
mod wireshark;
