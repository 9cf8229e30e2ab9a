//! gRPC to what carries plans out.

pub mod node;
