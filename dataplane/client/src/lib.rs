//! What a training program uses: connect, sum with the other workers, go on.
//!
//! ```no_run
//! use weft_client::{Config, Numbers, Session};
//!
//! # fn main() -> Result<(), weft_client::Error> {
//! let config = Config::new("10.0.0.1:22500".parse().unwrap(), "10.0.0.100:22341".parse().unwrap())
//!     .rank(0)
//!     .numbers(Numbers::Fixed);
//! let mut session = Session::connect(&config)?;
//! let mut gradient = vec![0.5_f32; 100_000];
//! session.allreduce(&mut gradient)?; // now the sum over all workers, the same bits everywhere
//! session.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! | type | what it is |
//! | --- | --- |
//! | [`Config`] | who this worker is, where the aggregator is, what the numbers are |
//! | [`Session`] | one life of one worker; blocking calls, one round at a time |
//! | [`Background`] | a session in a thread of its own, and a [`Ticket`] for each sum under way |
//! | [`WorkerPort`] | UDP sockets, memory shared with an aggregator of this host, or an interface |
//! | [`leaf`] | a box in a worker's process: the workers of one host sum before one sum leaves it |
//! | `dpdk` | sessions over DPDK devices, with the feature of that name |
//! | [`hosted`] | a worker's own part as a host, on ports without a kernel |
//! | [`Error`] | why not; names the members that are missing |
//! | [`checkpoint`] | what a job keeps of itself, to begin again with as many workers or others |
//! | [`payload`] | the caller's vectors, as engines take and give them |
//! | [`rounds`] | an allreduce's stream to its controller: paused and resized at the boundary of a round |
//! | [`keys`] | tables of rows of parameters that move between processes |
//! | [`push`] | asynchronous SGD: updates pushed to a parameter server, its model pulled |
//!
//! The state machines are `weft_engine::role::{worker, push}`; here are the port, the clock and the
//! data.
#![forbid(unsafe_code)]

pub mod background;
pub mod checkpoint;
mod config;
#[cfg(feature = "dpdk")]
pub mod dpdk;
mod error;
mod group;
pub mod hosted;
mod io;
pub mod keys;
pub mod leaf;
mod many;
mod messages;
mod narrow;
pub mod payload;
mod port;
pub mod push;
pub mod rounds;
mod session;

pub use background::{Background, Sum, Ticket};
pub use config::{Config, Io, Numbers};
pub use error::Error;
pub use messages::MessageCounter;
pub use narrow::NarrowPath;
pub use port::WorkerPort;
pub use session::{RoundReport, Session, Statistics};
