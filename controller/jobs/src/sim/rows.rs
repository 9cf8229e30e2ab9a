//! What is known of a job when it has ended, and how a file says it.

use alloc::format;
use alloc::string::{String, ToString};

use crate::job::{Job, NS_PER_S};

/// A job that ended.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Which.
    pub job: &'a Job,
    /// When it first ran.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// How long it worked on GPUs: the service that it received, without what its starts took.
    pub executed_ns: u64,
    /// That times its GPUs of the time.
    pub gpu_ns: u64,
    /// How long it had no GPUs.
    pub pending_ns: u64,
    /// What its starts took.
    pub overhead_ns: u64,
    /// How often it was stopped.
    pub preemptions: u32,
    /// How often it was put on GPUs, the first time too.
    pub resumes: u32,
    /// How often it went back to the first queue for having waited.
    pub promotes: u32,
    /// How often it got another width.
    pub resizes: u32,
}

impl Row<'_> {
    /// Its completion time.
    #[must_use]
    pub const fn jct_ns(&self) -> u64 {
        self.end_ns - self.job.submit_ns
    }

    /// Its line under [`HEADER`], without the line's end. With `is_compat`, `executed_time` is the
    /// time from first start to end, as the public simulator has it.
    #[must_use]
    pub fn line(&self, is_compat: bool) -> String {
        let executed_ns = if is_compat { self.end_ns - self.start_ns } else { self.executed_ns };
        format!(
            "{},{},{},{},{},{},{},{},{},{},{},{}",
            self.job.name,
            self.job.gpus,
            seconds(self.job.submit_ns),
            seconds(self.start_ns),
            seconds(self.end_ns),
            seconds(executed_ns),
            seconds(self.jct_ns()),
            seconds(self.job.duration_ns),
            seconds(self.pending_ns),
            self.preemptions,
            self.resumes,
            self.promotes
        )
    }
}

/// The columns of a file of rows; times are in seconds.
pub const HEADER: &str = "job_id,num_gpu,submit_time,start_time,end_time,executed_time,JCT,\
                          duration,pending_time,preempt,resume,promote";

/// Nanoseconds as seconds, exactly: `12` or `0.5`.
#[must_use]
pub fn seconds(time_ns: u64) -> String {
    let (whole, rest) = (time_ns / NS_PER_S, time_ns % NS_PER_S);
    match rest {
        0 => whole.to_string(),
        _ => format!("{whole}.{rest:09}").trim_end_matches('0').to_string(),
    }
}
