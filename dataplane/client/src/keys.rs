//! Rows of parameters that move between the processes of a job (SPEC#keys; PROTOCOL section 13).
//!
//! ```no_run
//! use weft_client::keys::{KeyConfig, KeySession};
//!
//! # fn main() -> Result<(), weft_client::keys::KeyError> {
//! let home = "10.0.0.100:22600".parse().unwrap();
//! let processes = ["10.0.0.1:22600".parse().unwrap(), "10.0.0.2:22600".parse().unwrap()];
//! // Process 0 of a table of a million rows of 100 elements.
//! let session = KeySession::connect(&KeyConfig::new(0, home, &processes).rows(1_000_000, 100))?;
//! session.localize(&[17, 18])?; // these rows are here now
//! let mut rows = [0.0; 200];
//! session.pull(&[17, 18], &mut rows)?; // out of this process's memory
//! session.push(&[17], &[0.5; 100])?;
//! let ticket = session.start_push(&[900_000], &[0.5; 100])?; // at whoever has it
//! ticket.wait()?;
//! # session.close();
//! # Ok(())
//! # }
//! ```
//!
//! | type | what it is |
//! | --- | --- |
//! | [`KeyConfig`] | which process this is, where the others and the box are, the table |
//! | [`KeySession`] | one life of one process; clones of it share the process's rows |
//! | [`Ticket`] | a call under way |
//! | [`KeyHome`] | the table's box, in a thread of this process |
//! | [`KeyError`] | why not |
//!
//! **Threads.** All threads of a process use one session, or clones of it. A row that is here is
//! read and written by the thread itself, under the lock of its stripe: keys are spread over 1024
//! locks (key modulo their number), and a lock is held for one operation on one row. What is not
//! here goes through the engine, behind one lock, and is answered to the thread by another that
//! reads the socket.
//!
//! **Consistency.** Each key is sequentially consistent, for calls that block and for those with
//! tickets: there is one order of all operations on it in which those of each thread stand as they
//! were called. Two keys have nothing to do with each other.

mod config;
mod driver;
mod error;
mod home;
mod session;
mod store;
mod ticket;

pub use config::{KeptRow, KeyConfig, OnLoss};
pub use error::KeyError;
pub use home::{KeyHome, KeyHomeConfig};
pub use session::{KeySession, KeyStatistics};
pub use ticket::Ticket;
