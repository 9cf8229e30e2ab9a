//! The trace format of ElasticFlow's simulator: a line a job, seconds.
//!
//! `job_id,num_gpu,submit_time,iterations,model_name,duration,global_batch_size`; what else there
//! is (`deadline`) is not read. `duration` is that on `num_gpu`. The published traces have
//! `iteration` and `batch_size` instead. Source: gudiandian/ElasticFlow at b3f5ea4 (ASPLOS'23).

use super::{Collector, Trace};
use crate::cluster::Cluster;
use crate::job::Job;
use crate::text::{Table, TextError};

/// Whether a text is of this format and not of Tiresias', by its header.
#[must_use]
pub fn is_it(text: &str) -> bool {
    Table::new("", text)
        .is_ok_and(|table| table.has("global_batch_size") || table.has("batch_size"))
}

/// The jobs of a trace, in order of submission; with a cluster, none larger than it.
///
/// # Errors
/// [`TextError`] at the first line that is wrong.
pub fn read(file: &str, text: &str, cluster: Option<&Cluster>) -> Result<Trace, TextError> {
    let table = Table::new(file, text)?;
    let [id, gpus, model] =
        [table.column("job_id")?, table.column("num_gpu")?, table.column("model_name")?];
    let [submit, duration] = [table.column("submit_time")?, table.column("duration")?];
    let iterations = table.either("iterations", "iteration")?;
    let batch = table.either("global_batch_size", "batch_size")?;
    let mut jobs = Collector::new(file, cluster);
    for row in table.rows() {
        let row = row?;
        let job = Job {
            name: row.text(id).into(),
            gpus: row.whole(gpus, 1)?,
            submit_ns: row.seconds_ns(submit)?,
            duration_ns: row.duration_ns(duration)?,
            model: jobs.model(row.text(model)),
            iterations: row.whole(iterations, 1)?.into(),
            global_batch: row.whole(batch, 1)?,
        };
        jobs.push(row.line(), ["job_id", "num_gpu"], job)?;
    }
    jobs.finish()
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    const HEADER: &str =
        "job_id,num_gpu,submit_time,iterations,model_name,duration,global_batch_size,deadline\n";

    #[test]
    fn a_small_trace_is_read() {
        let text = alloc::format!(
            "{HEADER}1,2,4686,19793,GPT2,4830,256,11932\n0,1,0,7246,resnet50,3930,64,5896\n"
        );
        assert!(is_it(&text) && !is_it("job_id,num_gpu\n"));
        let jobs = read("t.csv", &text, Some(&Cluster::of_nodes(1, 8))).expect("a trace").jobs;
        assert_eq!((&*jobs[0].name, &*jobs[1].name), ("0", "1"));
        assert_eq!((jobs[1].gpus, jobs[1].submit_ns), (2, 4_686_000_000_000));
        assert_eq!((jobs[1].iterations, jobs[1].global_batch), (19_793, 256));
        assert_eq!((&*jobs[1].model, jobs[1].duration_ns), ("gpt2", 4_830_000_000_000));
        let published = text.replace("iterations,", "iteration,").replace("global_", "");
        let published = published.replace("GPT2", "GPT-2").replace("num_gpu", "Num GPU");
        assert!(is_it(&published));
        assert_eq!(read("t.csv", &published, None).expect("a trace").jobs, jobs);
    }

    #[test]
    fn bad_lines_are_refused_by_file_line_and_field() {
        for (row, problem) in [
            ("0,1,0,0,a,9,64,1", "t.csv:2: iterations: \"0\" is not a whole number of at least 1"),
            (
                "0,1,0,5,a,9,-1,1",
                "t.csv:2: global_batch_size: \"-1\" is not a number of at least 0",
            ),
            ("0,1,0,5,a,0,64,1", "t.csv:2: duration: is 0; a job takes time"),
            ("0,9,0,5,a,9,64,1", "t.csv:2: num_gpu: 9 GPUs are more than the cluster's 8"),
            ("0,1,NaN,5,a,9,64,1", "t.csv:2: submit_time: \"NaN\" is not a number"),
        ] {
            let text = alloc::format!("{HEADER}{row}\n");
            let refused = read("t.csv", &text, Some(&Cluster::of_nodes(1, 8)));
            assert_eq!(refused.expect_err("a bad line").to_string(), problem);
        }
        let missing = read("t.csv", "job_id,num_gpu\n0,1\n", None).expect_err("no such column");
        assert!(missing.to_string().starts_with("t.csv:1: model_name: there is no such column"));
    }
}
