//! Weft's gRPC interface, generated from `weft/v1/*.proto`; the comments there are its manual.
//!
//! gRPC carries requests, grants, commands and events between a controller, its workers and its
//! boxes. It never carries a gradient: those travel in the packets of `weft-wire`.
//!
//! The generated types are in [`v1`]: [`v1::workers_client`] for whoever trains,
//! [`v1::nodes_client`] for boxes, [`v1::status_client`] for tools, and a `_server` module beside
//! each for a controller.

#[cfg(feature = "certs")]
pub mod certs;
#[cfg(feature = "convert")]
pub mod convert;
pub mod identity;
#[cfg(feature = "tls")]
pub mod tls;

/// How long a call takes at most from its dial to its first answer: the name, TCP, TLS, HTTP/2 and
/// the answer together. The process that listens may be stopped, or no server of gRPC at all.
pub const DIAL_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// Package `weft.v1`.
#[allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unused_qualifications,
    elided_lifetimes_in_paths,
    clippy::all,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::manual_let_else,
    clippy::use_self,
    rustdoc::all,
    reason = "generated"
)]
pub mod v1 {
    tonic::include_proto!("weft.v1");
}

/// P4Runtime, generated from `p4/p4/v1/*.proto`, which p4.org publishes.
#[cfg(feature = "p4")]
#[allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unused_qualifications,
    elided_lifetimes_in_paths,
    clippy::all,
    clippy::pedantic,
    rustdoc::all,
    reason = "generated"
)]
pub mod p4 {
    /// Package `p4.v1`.
    pub mod v1 {
        tonic::include_proto!("p4.v1");
    }
    /// Package `p4.config.v1`.
    pub mod config {
        /// Package `p4.config.v1`.
        pub mod v1 {
            tonic::include_proto!("p4.config.v1");
        }
    }
}

/// What P4Runtime uses of Google's types.
#[cfg(feature = "p4")]
#[allow(missing_docs, clippy::all, clippy::pedantic, rustdoc::all, reason = "generated")]
pub mod google {
    /// Package `google.rpc`.
    pub mod rpc {
        tonic::include_proto!("google.rpc");
    }
}

#[cfg(feature = "p4")]
pub mod p4info;
