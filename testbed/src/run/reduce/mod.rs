//! A run that sums its gradients by allreduce.
//!
//! | file | does or decides |
//! | --- | --- |
//! | `configs` | each aggregator's configuration (pure) |
//! | `worker` | trains on one worker over a session |
//! | `memory`, `packet` | the aggregator in one process; all in virtual time |
//! | `verify` | recomputes the run by the independent reference |
//! | `judge` | the verdict, and the rows of the run directory (pure) |

pub(super) mod configs;
pub(super) mod judge;
pub(super) mod memory;
pub(super) mod packet;
pub(super) mod verify;
pub(super) mod worker;
