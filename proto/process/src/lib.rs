//! What every program of Weft does alike as a process.
//!
//! | module | what |
//! | --- | --- |
//! | [`lock`] | what only one process at a time may write |
//! | [`say`](mod@say) | lines for people, which end nothing when nobody reads them |
//! | [`signals`] | a flag that says when to end; whether a hang-up is to be heard |
//! | [`metrics`] | a page for Prometheus and its answer to a request; the sockets are each program's |

#![forbid(unsafe_code)]

pub mod lock;
pub mod metrics;
pub mod say;
pub mod signals;
