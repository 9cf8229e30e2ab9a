//! The certificates of a run: one for its controller and for each of those who call it. They are
//! good for this run alone, whose folder is gone with it.

use weft_rpc::certs::Validity;
use weft_rpc::identity::Identity;

use crate::certs::{Folder, FolderError};
use crate::run::plan::Plan;

/// Makes them; nothing for a run without a controller.
///
/// # Errors
/// The folder cannot be written to.
pub fn make_certificates(plan: &Plan, folder: &Folder, now_unix_s: i64) -> Result<(), FolderError> {
    let Some(controller) = &plan.controller else { return Ok(()) };
    let validity = Validity::days(now_unix_s, RUN_DAYS_MAX);
    folder.init(validity)?;
    let host = controller.config.listen.ip().to_string();
    folder.issue(&Identity::Controller, &[host], validity)?;
    for node in &plan.boxes {
        folder.issue(&node_identity(&node.name), &[], validity)?;
    }
    for worker in &plan.workers {
        folder.issue(&worker_identity(worker.rank), &[], validity)?;
    }
    Ok(())
}

/// Who a box of a run is.
pub(super) fn node_identity(name: &str) -> Identity {
    Identity::Node { name: Some(name.to_owned()) }
}

/// Who a worker of a run is.
pub(in crate::run) fn worker_identity(rank: u8) -> Identity {
    Identity::Worker { job: Some(JOB), rank: Some(rank) }
}

/// The one job of a run.
const JOB: u16 = 0;
/// Beyond the longest run.
const RUN_DAYS_MAX: u32 = 30;
