//! A run of several jobs: one lab, one controller, a `weft-node` for each host of boxes, and for
//! each job what a run of that job alone leaves behind, in a folder of its own.
//!
//! | file | does or decides |
//! | --- | --- |
//! | `plan` | the jobs' plans, and the boxes that they share (pure) |
//! | `gate` | which job may run, where they share slots (pure) |
//! | `predict` | what the simulator of jobs says of the same (pure) |
//! | `processes` | starts boxes and jobs, and hears every job to its end |
//! | `steered` | an allreduce whose number of workers the controller changes |
//! | `words` | says an operator's words, and looks how soon they show |
//! | `share` | what of a shared box's log and counters is a job's (pure) |
//! | `barrier` | how long gradients waited for the last of their round (pure) |
//! | `rows` | what is said of each job and of all (pure) |

mod barrier;
mod gate;
mod plan;
mod predict;
mod processes;
mod rows;
mod share;
mod steered;
mod words;

pub use barrier::{BarrierWaits, barrier_waits};
pub use plan::{JobPlan, SeveralPlan};
pub use predict::{Prediction, predict};
pub use processes::{JobSeen, run_several};
pub use rows::{outcome, row, steered};
