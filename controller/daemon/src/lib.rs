//! The controller's daemon: processes, sockets and files around the engine of `weft-plan`.
#![forbid(unsafe_code)]

pub mod exec;
