//! What surrounded the job of a run: traffic of others, delays of links, captures. No I/O.

use std::collections::BTreeMap;
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
    /// The delays of links; absent when there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_delay: Option<LinkDelay>,
    /// What boxes captured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub captures: Vec<CaptureRow>,
    /// The clock, where it was not this machine's.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub virtual_time: Option<VirtualTime>,
}

/// The clock of a run in virtual time.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct VirtualTime {
    /// How the run was carried out: `packet`.
    pub level: String,
    /// How long it took by its own clock.
    pub virtual_seconds: f64,
    /// Events that happened: frames that arrived, messages, timers.
    pub events: u64,
    /// How long it took this machine.
    pub wall_seconds: f64,
    /// Hash of all frames, events and messages with their times: the same for the same seed.
    pub fingerprint: String,
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

/// The delays of links, and who made them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LinkDelay {
    /// `netem`, for every frame; `fault_ports`: workers and boxes, for Weft's datagrams; `packet`:
    /// the simulated links.
    pub by: String,
    /// How long a frame took in each direction, in milliseconds, by host.
    pub hosts_ms: BTreeMap<String, f64>,
}

impl LinkDelay {
    /// In a sentence.
    #[must_use]
    pub fn words(&self) -> String {
        let by = match self.by.as_str() {
            "netem" => "netem",
            "packet" => "the simulated links",
            _ => "the fault ports of workers and boxes (Weft's datagrams alone)",
        };
        let hosts = self.hosts_ms.iter().map(|(host, delay_ms)| format!("{host} {delay_ms} ms"));
        let hosts = hosts.collect::<Vec<_>>().join(", ");
        format!("link delay in each direction, by {by}: {hosts}")
    }
}

/// A capture in the run directory.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct CaptureRow {
    /// Its file.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// Frames in it; null when its box was killed.
    pub frames: Option<u64>,
    /// Frames that are not in it because it was full, or could not be written; null as before.
    pub cut_frames: Option<u64>,
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
    if let Some(delay) = &surroundings.link_delay {
        let _ = writeln!(out, "\n{}", delay.words());
    }
    if let Some(VirtualTime { virtual_seconds, events, wall_seconds, fingerprint, .. }) =
        &surroundings.virtual_time
    {
        let _ = writeln!(
            out,
            "\nvirtual time: {virtual_seconds:.3} s, {events} events, in {wall_seconds:.1} s; \
             fingerprint {fingerprint}"
        );
    }
    if !surroundings.captures.is_empty() {
        let _ = writeln!(out, "\ncaptures in the run directory");
        let head = ["file", "MB", "frames", "cut off"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        let known = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |c| c.to_string());
        rows.extend(surroundings.captures.iter().map(|capture| {
            vec![
                capture.file.clone(),
                format!("{:.2}", capture.bytes as f64 / 1e6),
                known(capture.frames),
                known(capture.cut_frames),
            ]
        }));
        out.push_str(&table(&rows));
    }
}
