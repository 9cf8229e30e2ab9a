//! The controller over gRPC, and as a process.

mod common;
mod grpc;
mod outside_policies;
mod program;
mod steering;
mod tls;
