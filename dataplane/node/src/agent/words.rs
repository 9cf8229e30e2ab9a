//! What people are told of events that change a node's role.

use weft_control::Event;
use weft_wire::JobId;

/// Tells people what changes a node's role.
pub(super) fn say(job: JobId, event: &Event) {
    let job = job.0;
    match event {
        Event::Promoted { epoch, applied, version, .. } => weft_process::say!(
            "weft-node: this replica is the server of job {job} now, epoch {}, with all below order \
             {} at version {}; there is no replica any more, replication is not held",
            epoch.0,
            applied.0,
            version.0
        ),
        Event::PromotionRefused { applied } => weft_process::say!(
            "weft-node: this replica cannot become the server of job {job}: it has only what is \
             below order {}",
            applied.0
        ),
        Event::StoodDown { epoch } => weft_process::say!(
            "weft-node: this is not the server of job {job} any more: another one is, in epoch {}; \
             nothing is answered for the job, end this node",
            epoch.0
        ),
        _ => {}
    }
}
