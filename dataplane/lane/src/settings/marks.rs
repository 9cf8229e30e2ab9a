//! What the file says of labels and bands: which label a job's frames have, and in which band of
//! the box's own port they leave. Pure.

use std::sync::Arc;

use weft_config::Problem;
use weft_config::node::{BandsBy, KeysSection, NodeConfig};
use weft_io::marks::JobMarks;
use weft_wire::JobId;

/// The labels of the file's jobs and tables, and the bands that labels have for good.
pub(super) fn resolve(config: &NodeConfig) -> Result<Arc<JobMarks>, Problem> {
    let marks = JobMarks::default();
    let jobs = config.job.iter().map(|job| ("job", job.id, job.dscp));
    let pushes = config.push.iter().map(|job| ("push", job.job, job.dscp));
    let servers = config.server.iter().map(|job| ("server", job.job, job.dscp));
    let replicas = config.replica.iter().map(|job| ("replica", job.job, job.dscp));
    for (section, job, dscp) in jobs.chain(pushes).chain(servers).chain(replicas) {
        if !marks.set_label(JobId(job), dscp) {
            let problem = format!("is {dscp} for job {job}; it must be 0 to 63");
            return Err(Problem::new(format!("{section}.dscp"), problem));
        }
    }
    for (index, section) in config.keys.iter().enumerate() {
        mark_table(&marks, config, index, section)?;
    }
    let of_port = config.bands.as_ref().filter(|section| section.by == BandsBy::Port);
    for fixed in of_port.iter().flat_map(|section| &section.fixed) {
        marks.set_band_of_label(fixed.dscp, fixed.band);
    }
    Ok(Arc::new(marks))
}

/// Labels a table's frames, which are told by their job, as all frames are.
fn mark_table(
    marks: &JobMarks,
    config: &NodeConfig,
    index: usize,
    section: &KeysSection,
) -> Result<(), Problem> {
    let refuse = |key, problem| Err(Problem::of_entry("keys", index, key, problem));
    let (job, dscp) = (section.job, section.dscp);
    let out_of_range = |dscp: u8| format!("is {dscp}; it must be 0 to 63");
    let before = marks.label(JobId(job));
    if before != dscp && before > 0 {
        let problem = format!("is {dscp}, and job {job} has {before} elsewhere: a job has one");
        return refuse("dscp", problem);
    }
    if !marks.set_label(JobId(job), dscp) {
        return refuse("dscp", out_of_range(dscp));
    }
    let others = config.keys[..index].iter().filter(|other| other.job == job);
    if others.clone().any(|other| other.bulk_dscp != section.bulk_dscp || other.dscp != dscp) {
        let problem =
            format!("or dscp differs from that of job {job}'s other table: a job has one");
        return refuse("bulk_dscp", problem);
    }
    match section.bulk_dscp {
        Some(bulk) if !marks.set_bulk_label(JobId(job), bulk) => {
            refuse("bulk_dscp", out_of_range(bulk))
        }
        _ => Ok(()),
    }
}
