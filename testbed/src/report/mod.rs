//! A run's directory, and the report that is drawn from it alone.
//!
//! [`RunWriter`] writes the directory while a run goes on; [`RunFiles`] reads one back;
//! [`Report`] computes what people and scripts want to know; `render` and `svg` draw it.
//! `weft run` prints the same report from the same files, so `weft report` later shows no less.

mod bands_picture;
mod cluster;
mod cluster_pictures;
mod columns;
mod compare;
mod compare_text;
mod factorisation;
mod files;
mod fold;
mod gantt;
mod histogram;
mod jobs;
mod jobs_compare;
mod losses;
mod machine;
mod page;
mod pictures;
mod plan_picture;
mod push;
mod record;
mod render;
mod resize;
mod surroundings;
mod svg;
mod table;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use bands_picture::bands_svg;
pub use cluster::{ClusterRow, ClusterSample, cluster_rows};
pub use cluster_pictures::{completions_svg, utilisation_svg};
pub use columns::{
    COLUMNS, Column, CommitRow, EventRow, ReplicaRow, RoundRow, TransferRow, UpdateRow,
};
pub use compare::{CompareRow, Ended, PolicyRow, Spread, compare};
pub use compare_text::compare_text;
pub use factorisation::{FactorisationOutcome, FactorisationRecord, LatencyRow};
pub use files::{FilesError, RunFiles, RunWriter};
pub use fold::{COLUMNS_MAX, fold};
pub use gantt::{Bar, Mark, gantt_svg};
pub use histogram::{Bin, Quantiles, bins};
pub use jobs::{JobRow, JobsOutcome, JobsRecord, JobsReport, WordRow, jobs_text};
pub use jobs_compare::{BandsRow, JobsEnded, bands_text, compare_bands};
pub use losses::{LossCurves, loss_curve, losses_svg};
pub use machine::Machine;
pub(crate) use machine::dpdk_version;
pub use page::SvgError;
pub use pictures::{Picture, pictures};
pub use plan_picture::plan_picture;
pub use push::{PushOutcome, PushReport};
pub use record::Record;
pub use render::{duration, metrics, text};
pub use resize::{KillRow, PauseRow, ResizeOutcome, ResizeRecord, pauses_svg};
pub use surroundings::{CaptureRow, FlowRow, LinkDelay, Surroundings, VirtualTime};
pub use svg::round_times_svg;
pub use table::table;

/// `run.json`: what was run, on what, and how it ended.
pub type RunRecord = Record<RunOutcome>;

/// How a run ended. Outside scripts read these names.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RunOutcome {
    /// Whether everything that the run promises held.
    pub verdict: Verdict,
    /// Why not, or what was degraded; empty otherwise.
    pub reasons: Vec<String>,
    /// Port that was asked for.
    pub io_requested: String,
    /// Port that carried the frames.
    pub io: String,
    /// Port of the workers, which `io` is where it was not kept.
    #[serde(default)]
    pub worker_io: String,
    /// Rounds that were completed.
    pub rounds: u64,
    /// Completed rounds per second; `None` without one.
    pub rounds_per_second: Option<f64>,
    /// Share of held-out images that the final model labels correctly; `None` where no model came
    /// to its end.
    pub accuracy: Option<f64>,
    /// Whether every worker's final model has the reference's bits; `None` where nothing could be
    /// compared, as in the next two.
    pub model_identical: Option<bool>,
    /// SHA-256 of the final model.
    pub model_sha256: Option<String>,
    /// Elements of sums that differ from the reference.
    pub wrong_sums: Option<u64>,
    /// Chunks whose sum came from an aggregator; `None` where no worker came to its end to say so,
    /// as in the next three.
    pub chunks_aggregated: Option<u64>,
    /// Chunks whose sum left its aggregator once for all workers, and came so.
    pub chunks_by_multicast: Option<u64>,
    /// Chunks that were sent past the aggregators.
    pub chunks_direct: Option<u64>,
    /// Contributions that were sent again.
    pub retransmissions: Option<u64>,
    /// Repeated contributions that aggregators recognised and did not add; `None` where a box left
    /// no statistics.
    pub duplicates_dropped: Option<u64>,
    /// The limit of the rate of rounds: `cpu`, `link`, `slots`, `server`, `compute` or `faults`;
    /// `None` where the run, or a worker, did not come to its end.
    pub bottleneck: Option<String>,
    /// The measurement behind `bottleneck`.
    pub bottleneck_evidence: Option<String>,
    /// Seed of every random choice.
    pub seed: u64,
    /// What surrounded the job.
    #[serde(flatten)]
    pub surroundings: Surroundings,
    /// What a run that pushes has to tell besides.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub push: Option<PushOutcome>,
}

impl RunOutcome {
    /// Share of chunks that an aggregator summed; `None` where there were none, or nobody says.
    #[must_use]
    pub fn aggregated_share(&self) -> Option<f64> {
        let aggregated = self.chunks_aggregated?;
        let all = aggregated + self.chunks_direct?;
        (all > 0).then(|| aggregated as f64 / all as f64)
    }
}

/// The verdict of a run.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Everything held.
    Ok,
    /// Something did not.
    #[default]
    Failed,
}

impl Verdict {
    /// As text shows it: what failed is not to be overlooked.
    #[must_use]
    pub fn for_people(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "FAILED",
        }
    }
}

/// What a run directory says, computed from its files.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The run's name.
    pub name: String,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Option<RunOutcome>,
    /// Times of rounds.
    pub round_time_ns: Option<Quantiles>,
    /// Who was late.
    pub stragglers: Vec<Straggler>,
    /// What the tables of a run that pushes say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updates: Option<PushReport>,
    /// How often each kind of event was recorded.
    #[serde(flatten)]
    pub recorded: Recorded,
    /// Version of Weft.
    pub weft_version: String,
    /// Commit that the binary was built from.
    pub commit: String,
    /// The command line.
    pub arguments: Vec<String>,
    /// Where it ran.
    pub machine: Machine,
    /// Times of rounds for the histogram; in `rounds.csv` for scripts.
    #[serde(skip)]
    pub round_times_ns: Vec<u64>,
}

/// How often each kind of event was recorded. In virtual time `events` are those of the simulator.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are those of the key")]
pub enum Recorded {
    Events(BTreeMap<String, u64>),
    RecordedEvents(BTreeMap<String, u64>),
}

impl Recorded {
    fn new(files: &RunFiles) -> Self {
        let mut counts = BTreeMap::new();
        for row in &files.events {
            *counts.entry(row.event.clone()).or_insert(0) += 1;
        }
        let outcome = files.record.outcome.as_ref();
        match outcome.and_then(|outcome| outcome.surroundings.virtual_time.as_ref()) {
            None => Self::Events(counts),
            Some(_) => Self::RecordedEvents(counts),
        }
    }

    fn counts(&self) -> &BTreeMap<String, u64> {
        let (Self::Events(counts) | Self::RecordedEvents(counts)) = self;
        counts
    }
}

/// How late one worker was, compared with the first worker of each round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Straggler {
    /// The worker.
    pub rank: u32,
    /// Its lag over all rounds.
    pub lag_ns: Quantiles,
    /// Rounds in which it was the last to start.
    pub rounds_last: u64,
}

impl Report {
    /// Computes the report of a run.
    #[must_use]
    pub fn new(files: &RunFiles) -> Self {
        let round_times_ns: Vec<u64> = files.rounds.iter().map(|row| row.duration_ns).collect();
        let record = &files.record;
        Self {
            name: record.name.clone(),
            outcome: record.outcome.clone(),
            round_time_ns: Quantiles::of(&round_times_ns),
            // A push has no moment at which all must be ready.
            stragglers: if files.updates.is_empty() {
                stragglers(&files.transfers)
            } else {
                Vec::new()
            },
            updates: PushReport::new(files),
            recorded: Recorded::new(files),
            weft_version: record.weft_version.clone(),
            commit: record.commit.clone(),
            arguments: record.arguments.clone(),
            machine: record.machine.clone(),
            round_times_ns,
        }
    }
}

/// Lags by rank; a round with a single transfer has no first and last, and is left out.
fn stragglers(transfers: &[TransferRow]) -> Vec<Straggler> {
    let mut rounds: BTreeMap<u64, Vec<(u32, u64)>> = BTreeMap::new();
    for row in transfers {
        rounds.entry(row.round).or_default().push((row.rank, row.start_ns));
    }
    let mut lags: BTreeMap<u32, (Vec<u64>, u64)> = BTreeMap::new();
    for starts in rounds.values().filter(|starts| starts.len() > 1) {
        let first = starts.iter().map(|(_, start)| *start).min().unwrap_or(0);
        let last = starts.iter().max_by_key(|(_, start)| *start).map(|(rank, _)| *rank);
        for &(rank, start) in starts {
            let (lag, times_last) = lags.entry(rank).or_default();
            lag.push(start - first);
            *times_last += u64::from(Some(rank) == last);
        }
    }
    let row = |(rank, (lag, rounds_last)): (u32, (Vec<u64>, u64))| {
        Quantiles::of(&lag).map(|lag_ns| Straggler { rank, lag_ns, rounds_last })
    };
    lags.into_iter().filter_map(row).collect()
}

#[cfg(test)]
mod tests;
