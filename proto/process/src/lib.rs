//! What every program of Weft does alike as a process.
//!
//! | module | what |
//! | --- | --- |
//! | [`say`](mod@say) | lines for people, which end nothing when nobody reads them |
//! | [`signals`] | a flag that says when to end; whether a hang-up is to be heard |
//! | [`notify`] | reports to a service manager that the program serves |
//! | [`shipped`] | where the files are that ship with the programs |
//! | [`metrics`] | a page for Prometheus and its answer to a request; the sockets are each program's |

#![forbid(unsafe_code)]

pub mod metrics;
pub mod notify;
pub mod say;
pub mod shipped;
pub mod signals;
