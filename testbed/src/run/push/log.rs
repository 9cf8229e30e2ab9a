//! The log that a box keeps of its groups: `weft-node` writes a JSON object a line, in the order in
//! which things happened there (`[node] events`).

use serde::{Deserialize, Serialize};

/// A line of a box's log.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LogLine {
    /// When, by the monotonic clock.
    pub t_ns: u64,
    /// What.
    #[serde(flatten)]
    pub event: BoxEvent,
}

/// What happened at a box. Group ids, orders and versions are the wire's.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are those of `weft_engine::push`")]
pub enum BoxEvent {
    /// The box serves a group.
    Installed {
        group: u32,
        order: u64,
        /// Rank and version, in the group's order.
        members: Vec<(u8, u64)>,
        exponent: i8,
        via: Option<u8>,
        replicate: bool,
    },
    /// It refused one.
    Refused { group: u32, error: String },
    /// Aggregator: all chunks of a member's update are in.
    Gathered { group: u32, rank: u8 },
    /// All chunks of the group are staged.
    Staged { group: u32 },
    /// A transfer has arrived whole.
    Transferred { group: u32, rank: Option<u8>, bytes: u64, duration_ns: u64 },
    /// Server: an order number is decided. Replica: it is applied.
    Decided {
        group: u32,
        order: u64,
        decision: LoggedDecision,
        version: u64,
        /// Bitmap of the committed members.
        members: u64,
        exponent: i8,
        norm: f64,
        momentum_norm: f64,
    },
    /// Server: a member began a new life or left.
    MemberLost { rank: u8 },
    /// Server: how far the replica is.
    ReplicaAt { order: u64, divergence_bound: f64, is_held: bool },
    /// Something that this version does not know.
    #[serde(other)]
    Other,
}

/// What became of a group.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LoggedDecision {
    /// It is in the model.
    Committed,
    /// It is not, and may be sent anew.
    Void,
    /// It is not: too old.
    Dropped,
}

/// Reads a log; a last line that was cut short by the box's death is left out.
///
/// # Errors
/// Names the line.
pub(super) fn parse(text: &str) -> Result<Vec<LogLine>, LogError> {
    let mut lines = Vec::new();
    let count = text.lines().count();
    for (index, line) in text.lines().enumerate() {
        match serde_json::from_str(line) {
            Ok(line) => lines.push(line),
            Err(_) if index + 1 == count && !text.ends_with('\n') => {}
            Err(reason) => return Err(LogError { line: index + 1, reason }),
        }
    }
    Ok(lines)
}

/// A line that is no log line.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of a box's log: {reason}")]
pub struct LogError {
    line: usize,
    #[source]
    reason: serde_json::Error,
}
