//! The trace format of Tiresias' simulator: a line a job, seconds.
//!
//! `job_id,num_gpu,submit_time,iterations,model_name,duration,interval`; `iterations`, `model_name`
//! and `interval` may be absent. Source: SymbioticLab/Tiresias at 959f9b0.

use super::{Collector, Trace};
use crate::cluster::Cluster;
use crate::job::Job;
use crate::text::{Table, TextError};

/// The jobs of a trace, in order of submission; with a cluster, none larger than it.
///
/// # Errors
/// [`TextError`] at the first line that is wrong.
pub fn read(file: &str, text: &str, cluster: Option<&Cluster>) -> Result<Trace, TextError> {
    let table = Table::new(file, text)?;
    let (id, gpus) = (table.column("job_id")?, table.column("num_gpu")?);
    let (submit, duration) = (table.column("submit_time")?, table.column("duration")?);
    let if_any = |name| table.has(name).then(|| table.column(name)).transpose();
    let (iterations, model) = (if_any("iterations")?, if_any("model_name")?);
    let mut jobs = Collector::new(file, cluster);
    for row in table.rows() {
        let row = row?;
        let job = Job {
            name: row.text(id).into(),
            gpus: row.whole(gpus, 1)?,
            submit_ns: row.seconds_ns(submit)?,
            duration_ns: row.duration_ns(duration)?,
            model: jobs.model(model.map_or("", |column| row.text(column))),
            iterations: iterations.map_or(Ok(0), |column| row.whole(column, 0))?.into(),
            global_batch: 0,
        };
        jobs.push(row.line(), ["job_id", "num_gpu"], job)?;
    }
    jobs.finish()
}
