//! What became of a job's updates, counted for reports.

use serde::Serialize;

/// What a job's updates came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct JobCounters {
    /// Asked for.
    pub requested: u64,
    /// Granted.
    pub granted: u64,
    /// Of these, through an aggregator.
    pub aggregated: u64,
    /// In the model.
    pub committed: u64,
    /// Granted and not in the model.
    pub voided: u64,
    /// Dropped by a plan, or by the server for their age.
    pub dropped: u64,
    /// Taken back by their worker, or lost with it.
    pub cancelled: u64,
    /// Ended while no controller listened: what became of them only the server knows.
    pub unknown: u64,
    /// Plans made anew for a failure.
    pub replans_failure: u64,
    /// Plans made anew because somebody paused, resumed or ended a job.
    pub replans_words: u64,
    /// Plans made anew because a transfer was late.
    pub replans_late: u64,
    /// Plans made anew because a link changed.
    pub replans_bandwidth: u64,
    /// Plans made anew because bands changed.
    pub replans_bands: u64,
    /// Plans that the job's policy failed to make; the default policy made them.
    pub policy_failures: u64,
    /// Largest delay of a committed update.
    pub delay_max: u64,
    /// Sum of the times from request to commit.
    pub commit_sum_ns: u64,
    /// Sum of the times from request to grant.
    pub grant_sum_ns: u64,
    /// Bytes granted.
    pub granted_bytes: u64,
    /// Times that its replica took over from its server.
    pub promotions: u64,
    /// Times that a box refused one of its groups.
    pub installs_refused: u64,
    /// Of the dropped: those whose group the server refused too often.
    pub unreachable: u64,
    /// Times that its band became another one.
    pub band_changes: u64,
}
