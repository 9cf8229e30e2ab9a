//! The log that a box keeps of its groups: `weft-node` writes a JSON object a line, in the order in
//! which things happened there (`[node] events`).

use std::collections::HashMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A line of a box's log.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LogLine {
    /// When, by the monotonic clock.
    pub t_ns: u64,
    /// Bytes of Ethernet frames that its port had received by then.
    #[serde(default)]
    pub rx_bytes: u64,
    /// What.
    #[serde(flatten)]
    pub event: BoxEvent,
}

impl LogLine {
    /// Of what a node says.
    pub(in crate::run) fn of(line: serde_json::Value) -> Self {
        serde_json::from_value(line).expect("a line of a node's log")
    }
}

/// What happened at a box. Group ids, orders and versions are the wire's.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are those of `weft_control`")]
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
        #[serde(default)]
        rate_bytes_per_sec: Option<u64>,
    },
    /// It refused one.
    Refused { group: u32, error: String },
    /// Aggregator: all chunks of a member's update are in.
    Gathered { group: u32, rank: u8 },
    /// All chunks of the group are staged.
    Staged { group: u32 },
    /// A transfer has arrived whole.
    Transferred {
        group: u32,
        rank: Option<u8>,
        bytes: u64,
        duration_ns: u64,
        #[serde(default)]
        wait_ns: u64,
        #[serde(default)]
        idle_ns: u64,
    },
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
    /// Replica: it is the server now, with all below `applied` of its predecessor's; it decides
    /// `order` next.
    Promoted { epoch: u32, applied: u64, order: u64, version: u64, momentum_norm: f64 },
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
pub(in crate::run) fn parse<L: DeserializeOwned>(text: &str) -> Result<Vec<L>, LogError> {
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

/// Leaves out what a server told again when it began anew: decisions that are in its log already,
/// with the same words. One that its former life had not logged gets the time of that life's last
/// line, and the exponent that its group was installed with.
pub(in crate::run) fn told_once(lines: Vec<LogLine>) -> Vec<LogLine> {
    let mut exponents = HashMap::new();
    let mut told: HashMap<u64, BoxEvent> = HashMap::new();
    let (mut is_retelling, mut last_ns) = (false, 0);
    let mut once = Vec::with_capacity(lines.len());
    for mut line in lines {
        match &mut line.event {
            BoxEvent::Installed { group, exponent, .. } => {
                exponents.insert(*group, *exponent);
            }
            BoxEvent::Decided { group, order, exponent, .. } => {
                *exponent = exponents.get(group).copied().unwrap_or(*exponent);
                let order = *order;
                let is_known = told.get(&order).is_some_and(|known| is_same(known, &line.event));
                if is_known {
                    is_retelling = true;
                    continue;
                }
                if is_retelling {
                    line.t_ns = line.t_ns.min(last_ns);
                }
                told.entry(order).or_insert_with(|| line.event.clone());
            }
            _ => {}
        }
        if !matches!(line.event, BoxEvent::Decided { .. }) {
            is_retelling = false;
        }
        last_ns = line.t_ns;
        once.push(line);
    }
    once
}

/// Whether two lines tell of the same decision. Whoever tells it again may not know the exponent.
fn is_same(one: &BoxEvent, other: &BoxEvent) -> bool {
    let words = |event: &BoxEvent| match event {
        BoxEvent::Decided { group, order, decision, version, members, norm, .. } => {
            Some((*group, *order, *decision, *version, *members, norm.to_bits()))
        }
        _ => None,
    };
    words(one).is_some() && words(one) == words(other)
}

/// A line that is no log line.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of a box's log: {reason}")]
pub struct LogError {
    line: usize,
    #[source]
    reason: serde_json::Error,
}

#[cfg(test)]
impl LogLine {
    /// A commit of one update, with this norm as the momentum's too.
    pub(super) fn committed(t_ns: u64, order: u64, version: u64, norm: f64) -> Self {
        let event = BoxEvent::Decided {
            group: 0,
            order,
            decision: LoggedDecision::Committed,
            version,
            members: 1,
            exponent: 0,
            norm,
            momentum_norm: norm,
        };
        Self { t_ns, rx_bytes: 0, event }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(t_ns: u64, order: u64, version: u64, exponent: i8) -> LogLine {
        let event = BoxEvent::Decided {
            group: 70 + u32::try_from(order).expect("small"),
            order,
            decision: LoggedDecision::Committed,
            version,
            members: 1,
            exponent,
            norm: 0.5,
            momentum_norm: 0.5,
        };
        LogLine { t_ns, rx_bytes: 0, event }
    }

    #[test]
    fn what_a_restarted_server_tells_again_is_left_out_and_what_it_tells_first_is_not() {
        let installed = BoxEvent::Installed {
            group: 72,
            order: 2,
            members: vec![(0, 2)],
            exponent: -9,
            via: None,
            replicate: false,
            rate_bytes_per_sec: None,
        };
        let lines = vec![
            decided(1, 0, 1, -20),
            decided(2, 1, 2, -20),
            LogLine { t_ns: 3, rx_bytes: 0, event: installed },
            // It was killed here.
            decided(50, 0, 1, -20),
            decided(50, 1, 2, -20),
            decided(50, 2, 3, -20),
            LogLine { t_ns: 51, rx_bytes: 0, event: BoxEvent::MemberLost { rank: 1 } },
            decided(60, 3, 4, -20),
        ];
        let once = told_once(lines);
        let expected = [
            decided(1, 0, 1, -20),
            decided(2, 1, 2, -20),
            once[2].clone(),
            decided(3, 2, 3, -9),
            LogLine { t_ns: 51, rx_bytes: 0, event: BoxEvent::MemberLost { rank: 1 } },
            decided(60, 3, 4, -20),
        ];
        assert_eq!(once, expected);
        // One that says something else stays, for the proof to find.
        let other = told_once(vec![decided(1, 0, 1, -20), decided(2, 0, 2, -20)]);
        assert_eq!(other.len(), 2);
    }
}
