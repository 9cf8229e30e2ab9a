//! The files of `weft job add` and `hold`: sections of a controller's file and of a node's.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use serde::Deserialize;
use weft_config::controller::{JobConfig, Options};
use weft_config::node::{Io, JobSection, NodeConfig, PortSection, PushSection, RowSection};
use weft_config::{ConfigFile, Problem};
use weft_control::{AckMode, HoldingCommand};
use weft_rpc::v1;

use super::cluster_elastic::read;
use super::{Exit, Failure};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Jobs {
    #[serde(default)]
    job: Vec<JobConfig>,
    /// Only its presence counts.
    reduce: Option<toml::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Holdings {
    port: Option<PortSection>,
    #[serde(default)]
    job: Vec<JobSection>,
    #[serde(default)]
    row: Vec<RowSection>,
    #[serde(default)]
    push: Vec<PushSection>,
}

/// The job of a file.
pub(super) fn job(path: &Path) -> Result<v1::RegisterJobRequest, Failure> {
    let file = ConfigFile::new(path.display().to_string(), read(path)?);
    let jobs: Jobs = file.read().map_err(|error| Exit::Usage.because(error))?;
    let refused = |problem: Problem| Exit::Usage.because(file.refuse(&problem));
    if jobs.reduce.is_some() {
        let problem = "is of the controller's file alone: write it there, and start it again";
        return Err(refused(Problem::new("reduce", problem)));
    }
    let [job] = <[JobConfig; 1]>::try_from(jobs.job).map_err(|jobs| {
        refused(Problem::new("job", format!("is there {} times: give one", jobs.len())))
    })?;
    request(job).map_err(refused)
}

/// The registration of a job. The controller checks it.
fn request(job: JobConfig) -> Result<v1::RegisterJobRequest, Problem> {
    let file_only = |key| {
        let problem = "is of the controller's file alone: take it out, or add the job there";
        Err(Problem::of_entry("job", 0, key, problem))
    };
    if job.options != Options::default() {
        return file_only("options");
    }
    if job.workers.iter().any(|worker| worker.address().is_some()) {
        return file_only("workers");
    }
    // On the wire 0 is what was not given.
    for (key, is_zero) in [
        ("elements_per_chunk", job.elements_per_chunk == Some(0)),
        ("tau_max", job.tau_max == Some(0)),
        ("partial_count", job.partial_count == Some(0)),
        ("weight", job.weight == 0.0),
    ] {
        if is_zero {
            return Err(Problem::of_entry("job", 0, key, "must be above 0 at run time"));
        }
    }
    Ok(v1::RegisterJobRequest {
        name: job.name,
        job: job.index.into(),
        dimension: job.dimension,
        element_type: v1::ElementType::from(job.element).into(),
        elements_per_chunk: job.elements_per_chunk.unwrap_or(0).into(),
        tau_max: job.tau_max.unwrap_or(0),
        mode: v1::Mode::from(job.mode).into(),
        partial_count: job.partial_count.unwrap_or(0),
        worker_hosts: job.workers.iter().map(|worker| worker.host().to_owned()).collect(),
        server: job.server,
        aggregators: job.aggregators,
        replica: job.replica,
        momentum: job.momentum,
        div_max: job.div_max,
        policy: job.policy.unwrap_or_default(),
        ack_replica: job.ack == AckMode::Replica,
        weight: job.weight,
    })
}

/// The holdings of a file, in an order in which a node takes them.
pub(super) fn holdings(path: &Path) -> Result<Vec<HoldingCommand>, Failure> {
    let file = ConfigFile::new(path.display().to_string(), read(path)?);
    let Holdings { port, job, row, push } =
        file.read().map_err(|error| Exit::Usage.because(error))?;
    let refused = |problem: Problem| Exit::Usage.because(file.refuse(&problem));
    if job.is_empty() && row.is_empty() && push.is_empty() {
        return Err(refused(Problem::new("", "has neither [[job]] nor [[row]] nor [[push]]")));
    }
    // The node's own file names and labels its jobs; a command has neither.
    let jobs = job.iter().enumerate().map(|(at, it)| ("job", at, it.name.is_some(), it.dscp));
    let pushes = push.iter().enumerate().map(|(at, it)| ("push", at, it.name.is_some(), it.dscp));
    for (section, index, has_name, dscp) in jobs.chain(pushes) {
        let key = match (has_name, dscp) {
            (true, _) => "name",
            (false, 1..) => "dscp",
            (false, 0) => continue,
        };
        let problem = "is of the node's file alone: take it out";
        return Err(refused(Problem::of_entry(section, index, key, problem)));
    }
    let port = port.unwrap_or_else(|| PortSection::new(Io::Udp, IpAddr::from(Ipv4Addr::LOCALHOST)));
    let config = NodeConfig { job, row, push, ..NodeConfig::new(port) };
    weft_lane::holdings(config).map_err(refused)
}
