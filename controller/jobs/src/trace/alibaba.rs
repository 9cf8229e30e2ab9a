//! The trace format of Alibaba's clusters with spot GPUs, 2026: a line a job, seconds.
//!
//! `job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,`
//! `job_type`; only the name, `gpu_request`, `worker_num` and the times are looked at. A job's GPUs
//! are `gpu_request` of each of `worker_num` workers; a worker that asks for a part of a GPU
//! occupies it. `gpu_model` is no training model: jobs have none. Source: alibaba/clusterdata,
//! cluster-trace-v2026-spot-gpu, `job_info_df.csv`.

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
    let (name, workers) = (table.column("job_name")?, table.column("worker_num")?);
    let gpus = table.column("gpu_request")?;
    let (submit, duration) = (table.column("submit_time")?, table.column("duration")?);
    let mut jobs = Collector::new(file, cluster);
    for row in table.rows() {
        let row = row?;
        let each = weft_plan::float::ceil(row.number(gpus)?);
        if each < 1.0 {
            return Err(row.wrong(gpus, "is 0; a job has at least one GPU"));
        }
        let all = each * f64::from(row.whole(workers, 1)?);
        if all > f64::from(super::GPUS_MAX) {
            return Err(row.wrong(gpus, "times worker_num is more than any cluster has"));
        }
        #[expect(clippy::cast_possible_truncation, reason = "whole, and within the type")]
        #[expect(clippy::cast_sign_loss, reason = "at least 1")]
        let gpus = all as u32;
        let job = Job {
            name: row.text(name).into(),
            gpus,
            submit_ns: row.seconds_ns(submit)?,
            duration_ns: row.duration_ns(duration)?,
            model: jobs.model(""),
            iterations: 0,
            global_batch: 0,
        };
        jobs.push(row.line(), ["job_name", "gpu_request"], job)?;
    }
    jobs.finish()
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString as _};
    use alloc::vec::Vec;

    use super::*;

    const HEADER: &str = "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,\
                          submit_time,duration,job_type\n";

    fn read_rows(rows: &str) -> Result<Vec<Job>, String> {
        let text = String::from(HEADER) + rows;
        read("a.csv", &text, Some(&Cluster::of_nodes(4, 8)))
            .map(|trace| trace.jobs)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn gpus_are_those_of_all_workers() {
        let rows = include_str!("../../tests/traces/alibaba.csv");
        let jobs = read("alibaba.csv", rows, None).expect("a trace").jobs;
        let short = jobs.iter().map(|job| (&*job.name, job.gpus, job.submit_ns / 1_000_000_000));
        let short: Vec<_> = short.collect();
        let expected = [
            ("239255", 1, 0),
            ("253689", 1, 0),
            ("437260", 16, 9_589_663),
            ("437261", 94, 9_589_663),
        ];
        assert_eq!(short, expected);
        assert_eq!(jobs[2].duration_ns, 41_060_000_000_000);
        let part = read_rows("a,1,A10,8,0.25,3,0,5,Spot").expect("parts of GPUs");
        assert_eq!(part[0].gpus, 3, "each worker occupies the GPU that it has a part of");
    }

    #[test]
    fn bad_lines_are_refused_by_file_line_and_field() {
        let good = "a,1,A10,8,1,1,0,5,HP\n";
        for (row, message) in [
            (
                "b,1,A10,8,NaN,1,0,5,HP",
                "a.csv:3: gpu_request: \"NaN\" is not a number of at least 0",
            ),
            ("b,1,A10,8,0,1,0,5,HP", "a.csv:3: gpu_request: is 0; a job has at least one GPU"),
            (
                "b,1,A10,8,1,0,0,5,HP",
                "a.csv:3: worker_num: \"0\" is not a whole number of at least 1",
            ),
            (
                "b,1,A10,8,8,5,0,5,HP",
                "a.csv:3: gpu_request: 40 GPUs are more than the cluster's 32",
            ),
            ("b,1,A10,8,1,1,-1,5,HP", "a.csv:3: submit_time: \"-1\" is negative"),
            ("b,1,A10,8,1,1,0,-5,HP", "a.csv:3: duration: \"-5\" is negative"),
            ("b,1,A10,8,1,1,0,0,HP", "a.csv:3: duration: is 0; a job takes time"),
            ("a,1,A10,8,1,1,0,5,HP", "a.csv:3: job_name: there is another job `a`"),
            (
                "b,1,A10,8,1e9,9,0,5,HP",
                "a.csv:3: gpu_request: times worker_num is more than any cluster has",
            ),
            ("b,1,A10", "a.csv:3: row: 3 fields, where the header has 9"),
        ] {
            assert_eq!(read_rows(&(String::from(good) + row)).expect_err(row), message);
        }
        let error = read("a.csv", "job_name,gpu_request\na,1", None).expect_err("no worker_num");
        assert!(error.to_string().starts_with("a.csv:1: worker_num: there is no such column"));
        assert!(read_rows("").expect_err("no jobs").starts_with("a.csv:2: row: "));
    }
}
