//! What of boxes is shown: their streams, the queues of their ports, and what they and others
//! dropped. Pure.

use serde::{Deserialize, Serialize};
use weft_control::figures::{DROP_OTHER, QUEUES};
use weft_rpc::v1;

use super::small;

/// A box.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are those of `v1::NodeStatus`")]
pub struct NodeLine {
    pub node: String,
    pub is_attached: bool,
    pub events: u64,
    pub commands: u64,
}

/// A queue of a box's port. Those that never had a frame are left out.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are those of `v1::BandFrames`")]
pub struct QueueLine {
    pub node: String,
    /// `0` to `6`, of which 0 goes first; `rest`; `bare`: frames without elements.
    pub band: String,
    pub sent: u64,
    pub sent_bytes: u64,
    /// Between two readings.
    pub sent_mbit: Option<f64>,
    pub full: u64,
    pub aged: u64,
    pub wait_max_ms: f64,
    pub waiting: u64,
    pub waiting_bytes: u64,
    pub oldest_ms: f64,
}

/// What a job lost, or what was refused.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct DropLine {
    /// The job; empty: of none.
    pub job: String,
    /// The box; empty: messages to the controller, or it is of a job.
    pub node: String,
    /// Of a job `dropped`, `void`, `cancelled`, `unreachable`, `install refused`; of a box the
    /// reason of the check as in metrics, `rx_dropped`, `tx_dropped`, `band_N_full`; or the field
    /// of a refused message.
    pub what: String,
    /// How many.
    pub count: u64,
}

pub(super) fn node_line(node: &v1::NodeStatus) -> NodeLine {
    NodeLine {
        node: node.name.clone(),
        is_attached: node.is_attached,
        events: node.events,
        commands: node.commands,
    }
}

pub(super) fn queue_lines(
    node: &v1::NodeStatus,
    now_ns: u64,
    before: Option<&v1::StatusReply>,
) -> Vec<QueueLine> {
    let was = before.and_then(|before| {
        let was = before.nodes.iter().find(|was| was.name == node.name)?;
        Some((was, now_ns - before.uptime_ns))
    });
    let line = |band: &v1::BandFrames| {
        let sent_mbit = was.and_then(|(was, span_ns)| {
            let was = was.bands.iter().find(|was| was.queue == band.queue)?;
            let bytes = band.sent_bytes.saturating_sub(was.sent_bytes);
            Some(bytes as f64 * 8e3 / span_ns as f64)
        });
        QueueLine {
            node: node.name.clone(),
            band: band_word(band).to_owned(),
            sent: band.sent,
            sent_bytes: band.sent_bytes,
            sent_mbit,
            full: band.full,
            aged: band.aged,
            wait_max_ms: band.wait_max_ns as f64 / 1e6,
            waiting: band.waiting,
            waiting_bytes: band.waiting_bytes,
            oldest_ms: band.oldest_ns as f64 / 1e6,
        }
    };
    let was_used = |band: &&v1::BandFrames| band.sent + band.full + band.waiting > 0;
    node.bands.iter().filter(was_used).map(line).collect()
}

pub(super) fn drop_lines(now: &v1::StatusReply) -> Vec<DropLine> {
    let line = |job: &str, node: &str, what: &str, count| DropLine {
        job: job.to_owned(),
        node: node.to_owned(),
        what: what.to_owned(),
        count,
    };
    let of_job = |job: &v1::JobStatus| {
        [
            line(&job.name, "", "dropped", job.dropped),
            line(&job.name, "", "void", job.voided),
            line(&job.name, "", "cancelled", job.cancelled),
            line(&job.name, "", "unreachable", job.unreachable),
            line(&job.name, "", "install refused", job.installs_refused),
        ]
    };
    let of_node = |node: &v1::NodeStatus| {
        let refused = node.drops.iter().map(|it| (drop_word(it.reason), it.frames));
        let lost = [("rx_dropped", node.rx_dropped), ("tx_dropped", node.tx_dropped)];
        let lost = lost.map(|(what, frames)| (what.to_owned(), frames));
        let full = node.bands.iter().map(|it| (format!("band_{}_full", band_word(it)), it.full));
        let all = refused.chain(lost).chain(full);
        all.map(|(what, frames)| line("", &node.name, &what, frames)).collect::<Vec<_>>()
    };
    let mut refused: Vec<(&String, &u64)> = now.refused.iter().collect();
    refused.sort();
    let refused = refused.into_iter().map(|(field, count)| line("", "", field, *count));
    let of_boxes = now.nodes.iter().flat_map(of_node);
    let all = now.jobs.iter().flat_map(of_job).chain(of_boxes).chain(refused);
    all.filter(|line| line.count > 0).collect()
}

/// The name of a queue, as in metrics.
fn band_word(band: &v1::BandFrames) -> &'static str {
    let at = usize::try_from(band.queue).unwrap_or(usize::MAX);
    QUEUES.get(at).copied().unwrap_or("other")
}

/// The name of a reason, as in metrics.
fn drop_word(reason: i32) -> String {
    match v1::FrameDrop::try_from(reason).unwrap_or_default() {
        v1::FrameDrop::Unspecified => DROP_OTHER.to_owned(),
        known => small(known.as_str_name(), "FRAME_DROP_"),
    }
}
