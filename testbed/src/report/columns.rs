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

/// Every column of a run directory.
pub const COLUMNS: &[Column] = &[
    column(ROUNDS, "round", "number of the round, from 0"),
    column(ROUNDS, "start_ns", "when the first worker had its gradient ready"),
    column(ROUNDS, "duration_ns", "from then until the last worker held the sum"),
    column(ROUNDS, "wrong_sums", "elements of the sum that differ from the reference"),
    column(ROUNDS, "clamped_elements", "contributed elements that were clamped"),
    column(ROUNDS, "loss", "mean training loss of the round's minibatches"),
    column(TRANSFERS, "round", "number of the round, from 0"),
    column(TRANSFERS, "rank", "the worker"),
    column(TRANSFERS, "start_ns", "when its gradient was ready"),
    column(TRANSFERS, "duration_ns", "from then until it held the whole sum"),
    column(TRANSFERS, "bytes", "bytes of gradient, without headers"),
    column(TRANSFERS, "chunks_aggregated", "chunks whose sum came from an aggregator"),
    column(TRANSFERS, "chunks_direct", "chunks that were sent past the aggregators"),
    column(TRANSFERS, "retransmissions", "contributions that were sent again"),
    column(TRANSFERS, "duplicates", "answers that it held already"),
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
        let event = EventRow { t_ns: 1, event: "x".to_owned(), fields: serde_json::Map::default() };
        let value = serde_json::to_value(event).unwrap();
        for key in value.as_object().unwrap().keys() {
            assert!(documented(EVENTS).contains(&key.as_str()), "{key}");
        }
    }
}
