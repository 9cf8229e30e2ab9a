//! The weft command: labs, runs, benches, reports.
//!
//! The library holds what the `weft` binary is made of, so that tests and benches can use the
//! pieces: the scenario file, the lab of network namespaces, the workloads with their independent
//! reference, the run directory with its reports, and the doctor.

// These macros panic when nobody reads: `weft_process::say` does not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]
#![forbid(unsafe_code)]

pub mod bench;
pub mod certs;
pub mod conformance;
pub mod doctor;
pub mod interrupt;
pub mod lab;
pub mod operator;
pub mod probe;
mod proc;
pub mod replay;
pub mod report;
pub mod run;
pub mod scenario;
pub mod top;
pub mod traffic;
pub mod workload;
