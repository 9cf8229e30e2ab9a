//! A run of several jobs: what its directory says of all of them, and how it is drawn. Each job has
//! the directory of a run of its own beside it, from which the rest of its report comes. No I/O.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::record::Record;
use super::render::{duration, text};
use super::table::table;
use super::{Report, Verdict};

/// `jobs.json`: what was run, on what, and how it ended.
pub type JobsRecord = Record<JobsOutcome>;

/// How a run of several jobs ended. Outside scripts read these names.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct JobsOutcome {
    /// Whether everything that every job promises held.
    pub verdict: Verdict,
    /// Why not, or what was degraded; empty otherwise.
    pub reasons: Vec<String>,
    /// The policy of bands; null without bands.
    pub policy: Option<String>,
    /// A row for each job, in the order of the scenario.
    pub jobs: Vec<JobRow>,
    /// What an operator said, and how long it took until it was to be seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<WordRow>,
}

/// An operator's word.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct WordRow {
    /// When, by the monotonic clock.
    pub at_ns: u64,
    /// What was said.
    pub word: String,
    /// How long the answer took.
    pub answered_ms: f64,
    /// How long until the controller's status showed it; null: not within 10 s.
    pub seen_ms: Option<f64>,
    /// Why it came to nothing.
    pub problem: Option<String>,
}

/// One job of several. Outside scripts read these names.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct JobRow {
    /// Its name, and its directory's.
    pub job: String,
    /// `ok` or `failed`.
    pub verdict: Verdict,
    /// When it came, after the first job might.
    pub start_s: f64,
    /// How long it waited for slots before its workers were started.
    pub waited_s: f64,
    /// That, and from its first worker that was ready to its last commit.
    pub jct_s: f64,
    /// What the simulator of jobs says of that; null for what it does not know.
    pub predicted_jct_s: Option<f64>,
    /// Rounds that were completed.
    pub rounds: u64,
    /// How long gradients waited for the last of their round, from last chunk to last chunk; null
    /// where that is not measured: in a job without rounds, and in an allreduce.
    pub barrier_wait_mean_ms: Option<f64>,
    /// What the simulator says of that, over all jobs.
    pub predicted_barrier_wait_mean_ms: Option<f64>,
    /// 99 % waited at most so long.
    pub barrier_wait_p99_ms: Option<f64>,
    /// The variance of that.
    pub barrier_wait_variance_ms2: Option<f64>,
    /// Gradients that waited.
    pub barrier_waits: u64,
    /// Times that it got another band.
    pub band_changes: u64,
    /// Whether its final model has the reference's bits; null where nothing could be compared.
    pub model_identical: Option<bool>,
    /// SHA-256 of that.
    pub model_sha256: Option<String>,
    /// Share of held-out images that it labels correctly; null where no model came to its end.
    pub accuracy: Option<f64>,
    /// Chunks whose sum came from an aggregator; null where no worker came to its end to say so, as
    /// in the next two.
    pub chunks_aggregated: Option<u64>,
    /// Chunks that were sent past the aggregators.
    pub chunks_direct: Option<u64>,
    /// Contributions that were sent again.
    pub retransmissions: Option<u64>,
    /// Of an allreduce that the controller steers: numbers of workers in order, such as `2-4`.
    pub widths: String,
    /// How long it stood still over all resizes.
    pub pause_s: f64,
}

/// What a run of several jobs says, from its directory's files.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobsReport {
    /// The run's name.
    pub name: String,
    /// Seed of every random choice.
    pub seed: u64,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Option<JobsOutcome>,
    /// The report of each job.
    pub reports: Vec<Report>,
    /// Version of Weft.
    pub weft_version: String,
    /// Commit that the binary was built from.
    pub commit: String,
    /// The command line.
    pub arguments: Vec<String>,
}

impl JobsReport {
    /// Puts together what the files say.
    #[must_use]
    pub fn new(record: &JobsRecord, reports: Vec<Report>) -> Self {
        Self {
            name: record.name.clone(),
            seed: record.seed,
            outcome: record.outcome.clone(),
            reports,
            weft_version: record.weft_version.clone(),
            commit: record.commit.clone(),
            arguments: record.arguments.clone(),
        }
    }
}

/// The report for people: the jobs side by side, then each by itself.
#[must_use]
pub fn jobs_text(report: &JobsReport) -> String {
    let mut out = String::new();
    match &report.outcome {
        None => out += "the run did not end\n",
        Some(outcome) => {
            let verdict = outcome.verdict.for_people();
            let policy = outcome.policy.as_deref().unwrap_or("none");
            let (name, count) = (&report.name, outcome.jobs.len());
            // Writing to a string does not fail.
            let _ = writeln!(out, "{name}: {verdict}, {count} jobs, bands: {policy}");
            for reason in &outcome.reasons {
                let _ = writeln!(out, "  {reason}");
            }
            let head = [
                "job",
                "verdict",
                "start",
                "jct",
                "simulated",
                "wait, mean",
                "p99",
                "bands",
                "model",
            ];
            let head = head.map(str::to_owned).to_vec();
            let rows: Vec<Vec<String>> =
                [head].into_iter().chain(outcome.jobs.iter().map(cells)).collect();
            let _ = write!(out, "\n{}", table(&rows));
            for word in &outcome.words {
                let seen = word.seen_ms.map_or_else(|| "never seen".to_owned(), milliseconds);
                let problem = word.problem.as_deref().unwrap_or("done");
                let answered = milliseconds(word.answered_ms);
                let _ = writeln!(
                    out,
                    "\n{}: seen after {seen}, answered after {answered}: {problem}",
                    word.word
                );
            }
        }
    }
    for job in &report.reports {
        let _ = write!(out, "\n== {} ==\n{}", job.name, text(job));
    }
    out
}

fn cells(row: &JobRow) -> Vec<String> {
    vec![
        row.job.clone(),
        row.verdict.for_people().to_owned(),
        format!("{:.1} s", row.start_s),
        format!("{:.2} s", row.jct_s),
        row.predicted_jct_s.map_or_else(|| "-".to_owned(), |jct_s| format!("{jct_s:.2} s")),
        row.barrier_wait_mean_ms.map_or_else(|| "-".to_owned(), milliseconds),
        row.barrier_wait_p99_ms.map_or_else(|| "-".to_owned(), milliseconds),
        format!("{} changes", row.band_changes),
        match row.model_identical {
            Some(true) => "identical",
            Some(false) => "DIFFERS",
            None => "not compared",
        }
        .to_owned(),
    ]
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time that is not negative"
)]
fn milliseconds(ms: f64) -> String {
    duration((ms * 1e6) as u64)
}
