//! What all handshakes share (SPEC#handshake), whatever carries their datagrams.
//!
//! | file | decides |
//! | --- | --- |
//! | `token.rs` | which life of a peer a JOIN is of |
//! | `probe.rs` | whether the path carries long datagrams |
//! | `path.rs` | whether it still does, asked beside a session |
//! | `backoff.rs` | when the next datagram goes |
//! | `terms.rs` | what a WELCOME agrees |
//! | `client.rs` | what the opening end asks, and what it believes |
//! | `host.rs` | what the answering end takes, and what all its replies say |

pub(crate) mod backoff;
pub(crate) mod client;
pub(crate) mod host;
pub(crate) mod path;
pub(crate) mod probe;
pub(crate) mod terms;
pub(crate) mod token;
