//! A run whose number of workers changes: an allreduce of the digits under a controller that stops
//! its workers before one round, and has as many others go on from their checkpoint as it was told.
//!
//! | file | does or decides |
//! | --- | --- |
//! | `plan` | the configurations of controller, box and workers (pure) |
//! | `worker` | trains on one worker of a cohort, and keeps the checkpoint |
//! | `live` | starts processes, says the words, starts each cohort when the controller wants it |
//! | `judge` | the reference that switches width and rate at the same rounds; the verdict (pure) |

mod judge;
mod live;
pub(super) mod plan;
pub(super) mod worker;

pub use judge::{JudgeError, Outcome, PauseRow, judge};
pub use live::{Seen, run};
pub use plan::ResizePlan;
