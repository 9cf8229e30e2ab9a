//! What every program of Weft does alike as a process.
//!
//! | module | what |
//! | --- | --- |
//! | [`files`] | how many descriptors it may have |
//! | [`listener`] | takes connections; answers scrapers of a page |
//! | [`lock`] | what only one process at a time may write |
//! | [`say`](mod@say) | lines for people, which end nothing when nobody reads them |
//! | [`signals`] | a flag that says when to end; whether a hang-up is to be heard |
//! | [`metrics`] | a page for Prometheus and its answer to a request |
//! | [`notify`] | reports to a service manager that the program serves |
//! | [`places`] | which connections may stay |
//! | [`shipped`] | where the files are that ship with the programs |

#![forbid(unsafe_code)]

pub mod files;
pub mod listener;
pub mod lock;
pub mod metrics;
pub mod notify;
pub mod places;
pub mod say;
pub mod shipped;
pub mod signals;
