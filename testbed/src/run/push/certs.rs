//! The certificates of a run: one for its controller and for each of those who call it. They are
//! good for this run alone, whose folder is gone with it.

use weft_config::controller::ControllerConfig;
use weft_rpc::certs::Validity;
use weft_rpc::identity::Identity;

use crate::certs::{Folder, FolderError};
use crate::run::plan::{BoxPlan, Plan, WorkerPlan};

/// Makes them; nothing for a run without a controller.
///
/// # Errors
/// The folder cannot be written to.
pub fn make_certificates(plan: &Plan, folder: &Folder, now_unix_s: i64) -> Result<(), FolderError> {
    let workers = plan.workers.iter();
    make_for(plan.controller.as_ref(), &plan.boxes, workers, folder, now_unix_s)
}

/// Makes those of a controller, its boxes and its workers.
pub(in crate::run) fn make_for<'a>(
    controller: Option<&BoxPlan<ControllerConfig>>,
    nodes: &[BoxPlan],
    workers: impl Iterator<Item = &'a WorkerPlan>,
    folder: &Folder,
    now_unix_s: i64,
) -> Result<(), FolderError> {
    let Some(controller) = controller else { return Ok(()) };
    let validity = Validity::days(now_unix_s, RUN_DAYS_MAX);
    folder.init(validity)?;
    let host = controller.config.listen.ip().to_string();
    folder.issue(&Identity::Controller, &[host], validity)?;
    // Who watches the run, or steers its jobs.
    folder.issue(&Identity::Operator { name: None }, &[], validity)?;
    for node in nodes {
        folder.issue(&node_identity(&node.name), &[], validity)?;
    }
    for worker in workers {
        folder.issue(&worker_identity(worker.job, worker.rank), &[], validity)?;
    }
    Ok(())
}

/// Who a box of a run is.
pub(super) fn node_identity(name: &str) -> Identity {
    Identity::Node { name: Some(name.to_owned()) }
}

/// Who a worker of a run is.
pub(in crate::run) fn worker_identity(job: u16, rank: u8) -> Identity {
    Identity::Worker { job: Some(job), rank: Some(rank) }
}

/// Beyond the longest run.
const RUN_DAYS_MAX: u32 = 30;
