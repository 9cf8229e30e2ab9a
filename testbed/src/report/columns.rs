//! The tidy tables of a run directory: the one place where their columns are defined.
//!
//! Field order is column order. [`COLUMNS`] is what `weft report --columns` and the README print;
//! a test holds it to the structs. Times are nanoseconds since the start of the run; units are
//! last in names.

use serde::{Deserialize, Serialize};

/// A row of `rounds.csv`: one round of the job.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RoundRow {
    /// Number of the round, from 0.
    pub round: u64,
    /// When the first worker had its gradient ready.
    pub start_ns: u64,
    /// From then until the last worker held the sum.
    pub duration_ns: u64,
    /// Elements of the sum that differ from the reference.
    pub wrong_sums: u64,
    /// Contributed elements that were clamped.
    pub clamped_elements: u64,
    /// Mean training loss of the round's minibatches.
    pub loss: f32,
}

/// A row of `transfers.csv`: one worker's part in one round.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TransferRow {
    /// Number of the round, from 0.
    pub round: u64,
    /// The worker.
    pub rank: u32,
    /// When its gradient was ready.
    pub start_ns: u64,
    /// From then until it held the whole sum.
    pub duration_ns: u64,
    /// Bytes of gradient, without headers.
    pub bytes: u64,
    /// Chunks whose sum came from an aggregator.
    pub chunks_aggregated: u64,
    /// Chunks that were sent past the aggregators.
    pub chunks_direct: u64,
    /// Contributions that were sent again.
    pub retransmissions: u64,
    /// Answers that it held already.
    pub duplicates: u64,
    /// Who sent: the worker, or the aggregator of a sum.
    pub source: String,
    /// Where to: an aggregator, the server or the replica.
    pub target: String,
    /// Id of a push's group; empty in an allreduce.
    pub group: Option<u32>,
    /// Its order number; empty when it was never decided.
    pub order: Option<u64>,
    /// Into the server: from the first PULL to the first frame.
    #[serde(default)]
    pub wait_ns: Option<u64>,
    /// Into the server: how long no chunk had come when the first one did.
    #[serde(default)]
    pub idle_ns: Option<u64>,
    /// Into the server: the granted rate.
    #[serde(default)]
    pub ceiling_bytes_per_sec: Option<u64>,
}

/// A row of `updates.csv`: one update that a worker pushed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateRow {
    /// The worker.
    pub rank: u32,
    /// Its life: 0, and one more after each restart.
    pub life: u32,
    /// Number of the update in that life.
    pub update: u64,
    /// Version of the model that it was computed on.
    pub version: u64,
    /// `committed`, `dropped`, `void` or `unknown`.
    pub outcome: String,
    /// The model's version with it; empty unless committed.
    pub committed_version: Option<u64>,
    /// Version before its commit less its own; empty unless committed.
    pub delay: Option<u64>,
    /// Order number of its group; empty unless committed.
    pub order: Option<u64>,
    /// The aggregator that summed it; empty for a direct one.
    pub via: String,
    /// When the pull of its model began.
    pub pull_ns: u64,
    /// How long that took, with the wait for a new version.
    pub pull_duration_ns: u64,
    /// How long the gradient took, emulated computing included.
    pub compute_ns: u64,
    /// When it was handed over.
    pub push_ns: u64,
    /// From then until its outcome was known.
    pub duration_ns: u64,
    /// Mean loss of its minibatch.
    pub loss: f32,
}

/// A row of `commits.csv`: one order number that the server decided.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CommitRow {
    /// When.
    pub t_ns: u64,
    /// The order number.
    pub order: u64,
    /// The group's id.
    pub group: u32,
    /// `committed`, `void` or `dropped`.
    pub decision: String,
    /// Updates that entered the model.
    pub members: u32,
    /// The model's version afterwards.
    pub version: u64,
    /// The aggregator; empty for a direct one.
    pub via: String,
    /// Largest delay of a member; empty unless committed.
    pub delay_max: Option<u64>,
    /// Euclidean norm of the sum.
    pub norm: f64,
    /// Held-out loss of the model; empty where it was not computed.
    pub loss: Option<f64>,
    /// Held-out accuracy of the model; empty where it was not computed.
    pub accuracy: Option<f64>,
}

/// A row of `replica.csv`: server and replica at a moment at which either changed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaRow {
    /// When.
    pub t_ns: u64,
    /// Order numbers that the server had decided.
    pub server_order: u64,
    /// Order numbers that the replica had applied.
    pub replica_order: u64,
    /// The true distance of their models.
    pub distance: f64,
    /// Its bound from the norms, by what the server knew of the replica.
    pub bound: Option<f64>,
    /// Whether the server declared that it is held.
    pub is_held: bool,
}

/// A line of `events.jsonl`: something that happened once.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct EventRow {
    /// When.
    pub t_ns: u64,
    /// What, in the words of the dataplane, such as `aggregator_restart`.
    pub event: String,
    /// What else is known about it.
    #[serde(flatten)]
    pub fields: serde_json::Map<String, serde_json::Value>,
}

/// A column and what it means.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Column {
    /// The file.
    pub file: &'static str,
    /// The column, or the key of a JSON line.
    pub column: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

const fn column(file: &'static str, column: &'static str, meaning: &'static str) -> Column {
    Column { file, column, meaning }
}

/// Name of the table of rounds.
pub(super) const ROUNDS: &str = "rounds.csv";
/// Name of the table of transfers.
pub(super) const TRANSFERS: &str = "transfers.csv";
/// Name of the list of events.
pub(super) const EVENTS: &str = "events.jsonl";

/// Name of the table of updates.
pub(super) const UPDATES: &str = "updates.csv";
/// Name of the table of commits.
pub(super) const COMMITS: &str = "commits.csv";
/// Name of the table of the replica.
pub(super) const REPLICA: &str = "replica.csv";

/// Every column of a run directory.
pub const COLUMNS: &[Column] = &[
    column(ROUNDS, "round", "number of the round, from 0; a push: as many updates as a round has"),
    column(ROUNDS, "start_ns", "when the first worker had its gradient ready"),
    column(ROUNDS, "duration_ns", "from then until the last worker held the sum"),
    column(ROUNDS, "wrong_sums", "elements of the sum that differ from the reference"),
    column(ROUNDS, "clamped_elements", "contributed elements that were clamped"),
    column(ROUNDS, "loss", "mean training loss of the round's minibatches"),
    column(TRANSFERS, "round", "number of the round, from 0; a push: of the update's place in it"),
    column(TRANSFERS, "rank", "the worker; of a sum: its first member"),
    column(TRANSFERS, "start_ns", "when its gradient was ready; a push: its first frame came"),
    column(
        TRANSFERS,
        "duration_ns",
        "from then until it held the sum; a push: its last frame came",
    ),
    column(TRANSFERS, "bytes", "bytes of gradient, without headers"),
    column(TRANSFERS, "chunks_aggregated", "chunks whose sum came from an aggregator"),
    column(TRANSFERS, "chunks_direct", "chunks that were sent past the aggregators"),
    column(TRANSFERS, "retransmissions", "contributions that were sent again"),
    column(TRANSFERS, "duplicates", "answers that it held already"),
    column(TRANSFERS, "source", "who sent: the worker, or the aggregator of a sum"),
    column(TRANSFERS, "target", "where to: an aggregator, the server or the replica"),
    column(TRANSFERS, "group", "id of a push's group; empty in an allreduce"),
    column(TRANSFERS, "order", "its order number; empty when it was never decided"),
    column(TRANSFERS, "wait_ns", "into the server: from the first PULL to the first frame"),
    column(TRANSFERS, "idle_ns", "into the server: how long no chunk had come when it began"),
    column(TRANSFERS, "ceiling_bytes_per_sec", "into the server: the granted rate"),
    column(UPDATES, "rank", "the worker"),
    column(UPDATES, "life", "its life: 0, and one more after each restart"),
    column(UPDATES, "update", "number of the update in that life"),
    column(UPDATES, "version", "version of the model that it was computed on"),
    column(UPDATES, "outcome", "committed, dropped, void or unknown"),
    column(UPDATES, "committed_version", "the model's version with it; empty unless committed"),
    column(UPDATES, "delay", "version before its commit less its own; empty unless committed"),
    column(UPDATES, "order", "order number of its group; empty unless committed"),
    column(UPDATES, "via", "the aggregator that summed it; empty for a direct one"),
    column(UPDATES, "pull_ns", "when the pull of its model began"),
    column(UPDATES, "pull_duration_ns", "how long that took, with the wait for a new version"),
    column(UPDATES, "compute_ns", "how long the gradient took, emulated computing included"),
    column(UPDATES, "push_ns", "when it was handed over"),
    column(UPDATES, "duration_ns", "from then until its outcome was known"),
    column(UPDATES, "loss", "mean loss of its minibatch"),
    column(COMMITS, "t_ns", "when the server decided"),
    column(COMMITS, "order", "the order number"),
    column(COMMITS, "group", "the group's id"),
    column(COMMITS, "decision", "committed, void or dropped"),
    column(COMMITS, "members", "updates that entered the model"),
    column(COMMITS, "version", "the model's version afterwards"),
    column(COMMITS, "via", "the aggregator; empty for a direct one"),
    column(COMMITS, "delay_max", "largest delay of a member; empty unless committed"),
    column(COMMITS, "norm", "Euclidean norm of the sum"),
    column(COMMITS, "loss", "held-out loss of the model; empty where it was not computed"),
    column(COMMITS, "accuracy", "held-out accuracy of the model; empty where it was not computed"),
    column(REPLICA, "t_ns", "when server or replica changed"),
    column(REPLICA, "server_order", "order numbers that the server had decided"),
    column(REPLICA, "replica_order", "order numbers that the replica had applied"),
    column(REPLICA, "distance", "the true distance of their models"),
    column(REPLICA, "bound", "its bound from the norms, by what the server knew of the replica"),
    column(REPLICA, "is_held", "whether the server declared that the bound is held"),
    column(EVENTS, "t_ns", "when it happened"),
    column(EVENTS, "event", "what happened; further keys belong to the event"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn header<T: Serialize>(row: T) -> Vec<String> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.serialize(row).unwrap();
        let text = String::from_utf8(writer.into_inner().unwrap()).unwrap();
        text.lines().next().unwrap().split(',').map(str::to_owned).collect()
    }

    #[test]
    fn every_column_is_documented_in_order() {
        let documented = |file| {
            COLUMNS.iter().filter(move |c| c.file == file).map(|c| c.column).collect::<Vec<_>>()
        };
        assert_eq!(header(RoundRow::default()), documented(ROUNDS));
        assert_eq!(header(TransferRow::default()), documented(TRANSFERS));
        assert_eq!(header(UpdateRow::default()), documented(UPDATES));
        assert_eq!(header(CommitRow::default()), documented(COMMITS));
        assert_eq!(header(ReplicaRow::default()), documented(REPLICA));
        let event = EventRow { t_ns: 1, event: "x".to_owned(), fields: serde_json::Map::default() };
        let value = serde_json::to_value(event).unwrap();
        for key in value.as_object().unwrap().keys() {
            assert!(documented(EVENTS).contains(&key.as_str()), "{key}");
        }
    }
}
