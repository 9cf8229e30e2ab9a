//! A run with a parameter server: workers push updates, a controller plans, a server commits.
//!
//! | file | does or decides |
//! | --- | --- |
//! | `plan`, `configs` | which boxes and workers there are, and each one's configuration (pure) |
//! | `certs` | the certificates with which all of them call the controller |
//! | `worker` | trains on one worker over a push session |
//! | `recording` | the updates that a worker leaves behind for the proof |
//! | `processes` | starts, restarts and stops all processes |
//! | `memory` | the same in one process, over memory ports, without a controller |
//! | `packet` | the same in virtual time, on a simulated network |
//! | `recorded` | outside policies there: their answers are kept |
//! | `log` | what boxes write about their groups |
//! | `sequence` | what the server's log says (pure) |
//! | `losses` | when a run ends that commits nothing (pure) |
//! | `installs` | holds it against what the controller had installed (pure) |
//! | `replica` | follows the replica behind the server (pure) |
//! | `verify` | recomputes the run by the independent reference |
//! | `curve` | loss and accuracy over the run (pure) |
//! | `downlink` | how full the server's downlink was while it was wanted (pure) |
//! | `finished` | the verdict |
//! | `tables` | the rows of the run directory |

mod certs;
mod configs;
mod curve;
mod downlink;
mod finished;
mod installs;
mod log;
mod losses;
mod memory;
mod message;
mod packet;
mod plan;
mod processes;
mod recorded;
mod recording;
mod replica;
mod sequence;
mod succession;
mod tables;
mod until;
mod verify;
mod worker;

pub use certs::make_certificates;
pub use curve::CurvePoint;
pub use finished::PushFinished;
pub use log::{BoxEvent, LogError, LogLine, LoggedDecision};
pub use memory::{MemoryError, run_push_in_memory};
pub use message::{PushMessage, PushSummary, UpdateMessage, UpdateOutcome};
pub use packet::run_push_in_virtual_time;
pub use plan::{PushPlan, PushWorkerPlan, initial_path, log_path, model_path};
pub use processes::{PushObserved, find_controller, run_push_processes};
pub use recording::{RecordedUpdate, UpdateReader, UpdateRecording, read_model, updates_path};
pub use replica::DivergencePoint;
pub use sequence::{Decided, DecidedMember};
pub use verify::{Evidence, LIVES_MAX, PushProof, PushVerifyError, verify_push};
pub use worker::run_push_worker;
