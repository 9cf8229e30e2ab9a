//! What surrounded the job of a run: traffic of others. No I/O.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::table::table;

/// The part of an outcome that says what surrounded the job. Outside scripts read these names.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Surroundings {
    /// Traffic of others, in the scenario's order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<FlowRow>,
}

/// A flow of others' traffic. Rates are of frames, Mbit/s, over the time that it was sent.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct FlowRow {
    /// The host that sent.
    pub from: String,
    /// The host that received.
    pub to: String,
    /// The rate that was asked for.
    pub rate_mbit: f64,
    /// When it began, in seconds since the boxes were ready; null when the run was over before.
    pub begin_s: Option<f64>,
    /// When it ended.
    pub end_s: Option<f64>,
    /// The rate at which it left its sender.
    pub sent_mbit: f64,
    /// The rate at which it arrived.
    pub received_mbit: f64,
}

/// Draws it for people.
pub(super) fn text(out: &mut String, surroundings: &Surroundings) {
    if !surroundings.background.is_empty() {
        let _ = writeln!(out, "\nbackground traffic, Mbit/s of frames");
        let head = ["from", "to", "asked for", "sent", "arrived", "begin", "end"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        let second =
            |at_s: Option<f64>| at_s.map_or_else(|| "-".to_owned(), |s| format!("{s:.1} s"));
        rows.extend(surroundings.background.iter().map(|flow| {
            vec![
                flow.from.clone(),
                flow.to.clone(),
                flow.rate_mbit.to_string(),
                format!("{:.2}", flow.sent_mbit),
                format!("{:.2}", flow.received_mbit),
                second(flow.begin_s),
                second(flow.end_s),
            ]
        }));
        out.push_str(&table(&rows));
    }
}
