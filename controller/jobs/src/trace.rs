//! Traces of jobs, and clusters, from text.
//!
//! Invariant: what is read can run: no two jobs have one name, none is larger than its cluster.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::cluster::Cluster;
use crate::job::{Job, NS_PER_S};
#[cfg(feature = "json")]
use crate::text::without_mark;
use crate::text::{Table, TextError, plain};

pub mod alibaba;
pub mod elasticflow;
pub mod generate;
#[cfg(feature = "json")]
pub mod philly;
pub mod tiresias;

/// The cluster of a file with the columns
/// `num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node` and one row.
///
/// # Errors
/// [`TextError`] for a missing column, a second row, and a cluster without GPUs.
pub fn cluster(file: &str, text: &str) -> Result<Cluster, TextError> {
    let table = Table::new(file, text)?;
    let switches = table.column("num_switch")?;
    let nodes = table.column("num_node_p_switch")?;
    let gpus = table.column("num_gpu_p_node")?;
    let (cpus, mem) = (table.column("num_cpu_p_node")?, table.column("mem_p_node")?);
    let mut rows = table.rows();
    let Some(row) = rows.next().transpose()? else {
        return Err(TextError::new(file, 2, "row", "there is none under the header"));
    };
    if let Some(second) = rows.next().transpose()? {
        return Err(second.wrong(switches, "a cluster is one row; all its nodes are alike"));
    }
    for column in [switches, nodes, gpus] {
        if row.whole(column, 0)? == 0 {
            return Err(row.wrong(column, "is 0: the cluster has no GPUs"));
        }
    }
    let cluster = Cluster {
        switches: row.whole(switches, 1)?,
        nodes_per_switch: row.whole(nodes, 1)?,
        gpus_per_node: row.whole(gpus, 1)?,
        cpus_per_node: row.whole(cpus, 0)?,
        mem_per_node_gb: row.whole(mem, 0)?,
    };
    if cluster.gpus() > GPUS_MAX {
        return Err(row.wrong(gpus, &format!("the cluster has more than {GPUS_MAX} GPUs")));
    }
    Ok(cluster)
}

/// What a file of jobs has.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The jobs in order of submission; those of one time in order of the file.
    pub jobs: Vec<Job>,
    /// The line of each job, from 1.
    pub lines: Vec<usize>,
    /// Jobs of the file that are not among them, for nothing says how long they ran: Philly's
    /// without an attempt that is over.
    pub left_out: usize,
}

impl Trace {
    /// That no job is shorter than a second, for whole seconds would make its duration 0.
    ///
    /// # Errors
    /// [`TextError`] at the first that is.
    pub fn in_seconds(&self, file: &str) -> Result<(), TextError> {
        let mut jobs = self.jobs.iter().zip(&self.lines);
        match jobs.find(|(job, _)| job.duration_ns < NS_PER_S) {
            None => Ok(()),
            Some((_, line)) => {
                let problem = "is below 1 s; in whole seconds the job would take no time";
                Err(TextError::new(file, *line, "duration", problem))
            }
        }
    }
}

/// The jobs of a file in any of the formats, which its first line tells: JSON is Philly's, the
/// column `job_name` Alibaba's, `global_batch_size` or `batch_size` ElasticFlow's, and else it is
/// Tiresias'.
///
/// # Errors
/// [`TextError`] at the first line that is wrong.
#[cfg(feature = "json")]
pub fn read(file: &str, text: &str, cluster: Option<&Cluster>) -> Result<Trace, TextError> {
    let text = without_mark(text);
    if text.trim_start().starts_with(['[', '{']) {
        return philly::read(file, text, cluster);
    }
    if elasticflow::is_it(text) {
        return elasticflow::read(file, text, cluster);
    }
    if Table::new(file, text)?.has("job_name") {
        return alibaba::read(file, text, cluster);
    }
    tiresias::read(file, text, cluster)
}

/// The most GPUs of a cluster.
pub const GPUS_MAX: u32 = 1 << 24;

/// Jobs of one file, on their way to a trace.
#[derive(Debug)]
pub struct Collector<'a> {
    file: &'a str,
    cluster: Option<&'a Cluster>,
    names: BTreeSet<Arc<str>>,
    models: BTreeSet<Arc<str>>,
    jobs: Vec<(usize, Job)>,
}

impl<'a> Collector<'a> {
    /// Nothing yet. With a cluster, a job that is larger than it is refused.
    #[must_use]
    pub fn new(file: &'a str, cluster: Option<&'a Cluster>) -> Self {
        Self { file, cluster, names: BTreeSet::new(), models: BTreeSet::new(), jobs: Vec::new() }
    }

    /// The one copy of a model's [`plain`] name.
    pub fn model(&mut self, name: &str) -> Arc<str> {
        let name = plain(name);
        if let Some(known) = self.models.get(name.as_str()) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        self.models.insert(Arc::clone(&name));
        name
    }

    /// Takes a job of a line; `fields` are the names of the columns of its id and its GPUs.
    ///
    /// # Errors
    /// [`TextError`] for a second job of one name, a name that a table cannot hold, a job without
    /// GPUs or work, and one that is larger than the cluster.
    pub fn push(&mut self, line: usize, fields: [&str; 2], job: Job) -> Result<(), TextError> {
        let error = |field: &str, reason: String| TextError::new(self.file, line, field, &reason);
        if job.name.is_empty() {
            return Err(error(fields[0], "is empty".to_owned()));
        }
        let is_plain = |c: char| c != ',' && c != '"' && !c.is_control();
        if job.name.starts_with('#')
            || job.name.trim() != &*job.name
            || !job.name.chars().all(is_plain)
        {
            let reason = "a job's name has no comma, quotation mark, control or space around it, and \
                          begins with no #";
            return Err(error(fields[0], format!("{:?}: {reason}", &*job.name)));
        }
        if job.gpus == 0 {
            return Err(error(fields[1], "is 0; a job has at least one GPU".to_owned()));
        }
        if let Some(gpus) = self.cluster.map(Cluster::gpus)
            && job.gpus > gpus
        {
            let reason = format!("{} GPUs are more than the cluster's {gpus}", job.gpus);
            return Err(error(fields[1], reason));
        }
        if !self.names.insert(Arc::clone(&job.name)) {
            return Err(error(fields[0], format!("there is another job `{}`", job.name)));
        }
        self.jobs.push((line, job));
        Ok(())
    }

    /// The jobs in order of submission; those of one time in order of the file.
    ///
    /// # Errors
    /// [`TextError`] when there are none.
    pub fn finish(mut self) -> Result<Trace, TextError> {
        if self.jobs.is_empty() {
            return Err(TextError::new(self.file, 2, "row", "there is no job"));
        }
        self.jobs.sort_by_key(|(_, job)| job.submit_ns);
        let (lines, jobs) = self.jobs.into_iter().unzip();
        Ok(Trace { jobs, lines, left_out: 0 })
    }
}

#[cfg(test)]
mod tests;
