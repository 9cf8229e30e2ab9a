//! Keys: rows of parameters that move between processes (SPEC#keys; PROTOCOL section 13).
//!
//! | file | decides |
//! | --- | --- |
//! | `home/` | [`Home`]: the box of a table, which knows where rows are, or learns it again |
//! | `process/` | [`Process`]: holds rows, asks for others, gives and takes |
//! | `config.rs` | what a table is, and the maxima |
//! | `store.rs` | where a process's rows lie: [`Store`] |
//! | `check.rs` | which datagrams are read at all |
//! | `frames.rs` | how entries are put together to frames, one destination at a time |
//! | `open.rs` | which numbers a process has open |
//! | `pool.rs` | memory that is taken at the start |
//!
//! Both are sans-IO and serve one table: datagrams (UDP payloads) and their sources come in, and
//! what goes out is told to an [`Outbox`], what has happened to a [`Sink`]. Invariant: a row is at
//! one process, or on its way to one; each set and push counts exactly once; each key is
//! sequentially consistent, but for copies of those that a process means to use, and in tables with
//! several accesses in flight, where what is called before another is done may come after it. The
//! rules are checked in every state of small models (`tests/src/model/keys`); the order of checks
//! here is theirs.
//!
//! All memory is taken when a table is made: no datagram and no call allocates.

mod check;
mod config;
mod frames;
mod home;
mod open;
mod pool;
mod process;
mod store;
#[cfg(test)]
mod tests;

pub use config::{
    BLOCK_LEN, HOPS_MAX, IN_FLIGHT_MAX, KEPT_PER_KEY_MAX, KEYS_MAX, Mode, PROCESSES_MAX,
    ProcessConfig, ProcessLimits, TableConfig, TableError,
};
pub use frames::{Outbox, To};
pub use home::{Home, HomeConfig, HomeStats};
pub use process::{CallError, Op, Presence, Process, ProcessStats, Sink};
pub use store::{OwnStore, Slot, Store};
