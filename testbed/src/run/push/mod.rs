//! A run with a parameter server: workers push updates, a controller plans, a server commits.
//!
//! | file | does or decides |
//! | --- | --- |
//! | `configs` | each box's configuration, and the controller's (pure) |
//! | `certs` | the certificates with which all of them call the controller |
//! | `worker` | trains on one worker over a push session |
//! | `recording` | the updates that a worker leaves behind for the proof |
//! | `memory`, `packet` | the server in one process; all in virtual time |
//! | `recorded` | outside policies there: their answers are kept |
//! | `log` | what boxes write about their groups |
//! | `sequence` | what the server's log says (pure) |
//! | `until`, `losses` | when a run ends that trains until a loss, or commits nothing (pure) |
//! | `installs` | holds it against what the controller had installed (pure) |
//! | `replica` | follows the replica behind the server (pure) |
//! | `verify` | recomputes the run by the independent reference |
//! | `curve` | loss and accuracy over the run (pure) |
//! | `downlink` | how full the server's downlink was while it was wanted (pure) |
//! | `judge` | the verdict (pure) |
//! | `tables` | the rows of the run directory |

pub(super) mod certs;
pub(super) mod configs;
mod curve;
mod downlink;
mod installs;
pub(super) mod judge;
pub(super) mod log;
pub(super) mod losses;
pub(super) mod memory;
pub(super) mod packet;
mod recorded;
mod recording;
mod replica;
mod sequence;
mod succession;
pub(super) mod tables;
pub(super) mod until;
mod verify;
pub(super) mod worker;

pub use certs::make_certificates;
pub use curve::CurvePoint;
pub use log::{BoxEvent, LogError, LogLine, LoggedDecision};
pub use recording::{RecordedUpdate, UpdateReader, UpdateRecording, read_model, updates_path};
pub use replica::DivergencePoint;
pub use sequence::{Decided, DecidedMember};
pub use verify::{Evidence, LIVES_MAX, PushProof, PushVerifyError, verify_push};
