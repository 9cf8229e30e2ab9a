//! A run whose number of workers changes: an allreduce of the digits under a controller that stops
//! its workers before one round, and has as many others go on from their checkpoint as it was told.
//!
//! | file | does or decides |
//! | --- | --- |
//! | `plan` | the configurations of controller, box and workers (pure) |
//! | `worker` | trains on one worker of a cohort, and keeps the checkpoint |
//! | `step` | how far a word has come (pure) |
//! | `kills` | kills a process in a step of a word |
//! | `live` | starts processes, says the words, starts each cohort when the controller wants it |
//! | `words` | says a word, and waits for what it comes to |
//! | `judge` | the reference that switches width and rate at the same rounds; the verdict (pure) |

mod judge;
mod kills;
mod live;
pub(super) mod plan;
mod step;
mod words;
pub(super) mod worker;

pub use judge::{JudgeError, judge};
pub use live::{Seen, run};
pub use plan::ResizePlan;
