//! The weft command: labs, runs, benches, reports.
//!
//! The library holds what the `weft` binary is made of, so that tests and benches can use the
//! pieces: the scenario file, the lab of network namespaces, the workloads with their independent
//! reference, the run directory with its reports, and the doctor.

#![forbid(unsafe_code)]

pub mod bench;
pub mod certs;
pub mod doctor;
pub mod interrupt;
pub mod lab;
pub mod probe;
pub mod report;
pub mod run;
pub mod say;
pub mod scenario;
pub mod traffic;
pub mod workload;
