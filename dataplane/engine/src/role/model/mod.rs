//! What a server and its replica must do alike, bit for bit: stage sums, apply them, keep
//! versions to be pulled, and know how far apart the two can be.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `config.rs` | the model's shape |
//! | `jobs.rs` | which job a frame, a command or an event is of |
//! | `stage.rs` | sums on their way into the model, with their contributors |
//! | `ledger.rs` | the one sequence of decisions, and the model that they make |
//! | `params.rs` | the model and its momentum term, and the step that a commit is |
//! | `snapshot.rs` | versions that are being pulled |
//! | `rate.rs` | how a delay scales an update |
//! | `outcomes.rs` | what each worker's last updates became |
//! | `state.rs` | what of all this must survive |
//! | `journal.rs`, `replay.rs` | its form on disk, and the model made again from it |
//! | `counter.rs` | the bits of a counter that travel |
//! | `queue.rs` | what waits to be taken: events, acknowledgements |
//! | `bound.rs` | the distance of server and replica |

mod bound;
mod config;
mod counter;
mod jobs;
pub mod journal;
mod ledger;
mod outcomes;
mod params;
mod queue;
mod rate;
mod replay;
mod snapshot;
mod stage;
mod state;

#[cfg(test)]
mod journal_tests;
#[cfg(test)]
mod tests;

pub use bound::distance;
pub use config::{ModelConfig, ModelConfigError};
pub use params::ModelView;
pub use replay::{Replay, ReplayError};
pub use state::{DecidedUpdate, ModelState, WorkerOutcomes};

pub(crate) use counter::{generation_of, low_bits, near};
pub(crate) use jobs::{Incoming, Jobs, ModelJob, Refusal};
pub(crate) use ledger::{Entry, Ledger};
pub(crate) use outcomes::{Decided, direct_rank};
#[cfg(test)]
pub(crate) use params::Model;
pub(crate) use queue::{EVENTS_MAX, Queue};
#[cfg(test)]
pub(crate) use rate::scale;
pub(crate) use snapshot::{Offer, Snapshots};
pub(crate) use stage::{StageIndex, StagePool, Staged};
