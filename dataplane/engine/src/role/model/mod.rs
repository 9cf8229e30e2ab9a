//! What a server and its replica must do alike, bit for bit: stage sums, apply them, keep
//! versions to be pulled, and know how far apart the two can be.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `config.rs` | the model's shape |
//! | `jobs.rs` | which job a frame, a command or an event is of |
//! | `stage.rs` | sums on their way into the model, with their contributors |
//! | `params.rs` | the model and its momentum term, and the step that a commit is |
//! | `snapshot.rs` | versions that are being pulled |
//! | `rate.rs` | how a delay scales an update |
//! | `outcomes.rs` | what each worker's last updates became |
//! | `state.rs` | what of all this must survive |
//! | `journal.rs`, `replay.rs` | its form on disk, and the model made again from it |
//! | `bound.rs` | the distance of server and replica |

mod bound;
mod config;
mod jobs;
pub mod journal;
mod outcomes;
mod params;
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
pub(crate) use rate::scale;
pub use replay::{Replay, ReplayError};
pub use state::{DecidedUpdate, ModelState, WorkerOutcomes};

pub(crate) use jobs::{Incoming, Jobs, ModelJob, Refusal};
pub(crate) use outcomes::{Decided, Outcomes, direct_rank, outcome_of};
pub(crate) use params::{Model, Sum};
pub(crate) use snapshot::{Offer, Snapshots};
pub(crate) use stage::{StageIndex, StagePool, Staged};

/// The number near `reference` whose low 32 bits are `low`: how counters that grow without bound
/// travel in a field of 32 bits.
pub(crate) fn near(reference: u64, low: u32) -> u64 {
    const SPAN: u64 = 1 << 32;
    let candidate = (reference & !(SPAN - 1)) | u64::from(low);
    if candidate > reference.saturating_add(SPAN / 2) {
        candidate.checked_sub(SPAN).unwrap_or(candidate)
    } else if reference > candidate.saturating_add(SPAN / 2) {
        candidate.checked_add(SPAN).unwrap_or(candidate)
    } else {
        candidate
    }
}

/// The low 32 bits of a counter, for a header.
pub(crate) const fn low_bits(counter: u64) -> u32 {
    (counter & 0xffff_ffff) as u32
}

/// The low 16 bits of a counter, for a generation.
pub(crate) const fn generation_of(counter: u64) -> u16 {
    (counter & 0xffff) as u16
}
