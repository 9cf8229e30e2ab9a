//! Tables of rows of parameters that move between processes (SPEC#keys; PROTOCOL section 13).
//!
//! ```no_run
//! use weft_client::keys::{KeyConfig, KeySession};
//!
//! # fn main() -> Result<(), weft_client::keys::KeyError> {
//! let processes = vec!["10.0.0.1:4000".parse().unwrap(), "10.0.0.2:4000".parse().unwrap()];
//! let config = KeyConfig::new("10.0.0.100:22341".parse().unwrap(), processes, 0, 16, 1000);
//! let session = KeySession::connect(&config)?;
//! session.localize(&[7, 8])?; // now both rows are here
//! session.push(&[7], &[0.5; 16])?; // adds
//! let mut rows = vec![0.0; 32];
//! session.pull(&[7, 900], &mut rows)?;
//! # Ok(())
//! # }
//! ```
//!
//! | file | what it does |
//! | --- | --- |
//! | `session.rs` | [`KeySession`]: what worker threads call |
//! | `shared.rs` | what these and the port's thread share |
//! | `submit.rs` | how many keys come to the engine, or wait for room |
//! | `store.rs` | the rows, which they and the engine share |
//! | `latency.rs` | how long operations take |
//! | `clock.rs` | intents and clocks: which rows or copies come before they are used |
//! | `checkpoint.rs` | keeping a table while it is used, and what was kept |
//! | `capture.rs` | what the port's thread does for that |
//! | `part.rs`, `parts.rs` | what is kept, as bytes and as files |
//! | `calls.rs` | [`KeyTicket`]: calls that wait for others |
//! | `driver.rs` | the thread that owns the port and the timers |
//!
//! [`Mode`] chooses between rows that move and the two classic parameter servers, whose rows stay
//! where the first life put them: the same program runs on each, and its `localize` does nothing
//! there, and two that keep copies of what was read, for a number of clocks
//! ([`KeyConfig::staleness`]). All processes of a table have the same mode.
//!
//! A program need not localize: [`KeySession::intend`] says what it is about to use, and when. The
//! row comes where one process means to use it; where several do, one has it and the others have
//! copies. Of a key that is meant to be used, pulls may bring a copy, so it is not sequentially
//! consistent then: its method says what it is.
//!
//! An operation on a row that is here runs in the caller's thread, under the lock of the row's
//! stripe, and wakes nobody. Any other goes to the engine, and the port's thread sends it. Each key
//! is sequentially consistent, for calls and for tickets: one thread's operations on a key happen
//! in the order of its calls, for the engine runs what waits for a row in the turn of the row's
//! lock in which the row comes. Operations on different keys have no order, nor do those of one
//! call that names a key twice. With [`KeyConfig::in_flight`] above 1, tickets of one key have none
//! either while they are open: that is the price of accesses that do not wait for each other.

mod calls;
mod capture;
mod checkpoint;
mod clock;
mod config;
mod driver;
mod error;
mod latency;
mod part;
mod parts;
mod session;
mod shared;
mod store;
mod submit;
#[cfg(test)]
mod tests;

pub use calls::KeyTicket;
pub use config::{KeyConfig, OnLoss};
pub use error::KeyError;
pub use latency::{Histogram, KeyLatencies, SAMPLE_EVERY};
pub use parts::TableFileError;
pub use session::{KeySession, KeyStatistics};
pub use store::STRIPES_MAX;
pub use weft_engine::role::keys::{IN_FLIGHT_MAX, Mode};
