//! A run of a scenario with `[factorisation]`: a `weft-node` as the home of a table, and processes
//! whose threads factor a matrix over it.
//!
//! | file | does or decides |
//! | --- | --- |
//! | `plan` | the home's configuration, and what each process is told (pure) |
//! | `message` | what processes say |
//! | `gate` | where the threads of all processes wait for each other |
//! | `script` | what each thread does, in its order (pure) |
//! | `process` | one process: its session and its threads |
//! | `live` | starts home and processes, opens the gates, kills the home |
//! | [`packet`] | the same in virtual time |
//! | `judge` | compares with the reference; the verdict (pure) |
//!
//! The processes' steps are kept apart by `weft run`, over standard input and output, and not by
//! the table: what is measured is the table alone.

mod gate;
mod judge;
mod live;
mod message;
pub mod packet;
mod plan;
pub mod process;
mod script;

pub use judge::judge;
pub use live::{Seen, run};
pub use message::{ProcessMessage, TableSummary};
pub use plan::{FactorisationPlan, ProcessPlan};

/// What a run leaves in its directory: all factors in the end, by key, each an f32 with its lowest
/// byte first.
pub const FACTORS: &str = "factors.f32";
