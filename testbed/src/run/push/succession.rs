//! Decides which of a run's decisions count when the replica took the server's place. Pure.
//!
//! The model is then the old server's sequence as far as the replica had applied it, and the
//! replica's own from there on. What the old server decided beyond was told to nobody, and is no
//! part of the job: if it was told, the proof finds an update that is missing. A box that is killed
//! writes no last lines: what the replica had applied of the server's decisions stands for them.

use super::log::{BoxEvent, LogLine};

/// The logs of server and replica as the proof takes them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Succession {
    /// The decisions that count, in the order in which they were made.
    pub(super) server: Vec<LogLine>,
    /// The server's lines while it was followed.
    pub(super) followed: Vec<LogLine>,
    /// The replica's lines while it followed.
    pub(super) replica: Vec<LogLine>,
    /// When the replica took over, and with which order numbers applied; `None`: it never did.
    pub(super) promoted: Option<(u64, u64)>,
}

impl Succession {
    /// From the logs of the two boxes.
    #[must_use]
    pub(super) fn new(server: &[LogLine], replica: &[LogLine]) -> Self {
        let found = replica.iter().enumerate().find_map(|(at, line)| match line.event {
            BoxEvent::Promoted { applied, .. } => Some((at, line.t_ns, applied)),
            _ => None,
        });
        let Some((at, t_ns, applied)) = found else {
            let (server, replica) = (server.to_vec(), replica.to_vec());
            return Self { followed: server.clone(), server, replica, promoted: None };
        };
        let counts = |line: &&LogLine| match line.event {
            BoxEvent::Decided { order, .. } => order < applied,
            _ => true,
        };
        let mut followed: Vec<LogLine> = server.iter().filter(counts).cloned().collect();
        let (before, after) = replica.split_at(at);
        let logged = followed.iter().filter_map(|line| decided_order(&line.event)).max();
        let is_lost = |line: &&LogLine| match line.event {
            BoxEvent::Decided { order, .. } | BoxEvent::Installed { order, .. } => {
                logged.is_none_or(|logged| logged < order) && order < applied
            }
            _ => false,
        };
        followed.extend(before.iter().filter(is_lost).cloned());
        let server = followed.iter().chain(after).cloned().collect();
        Self { server, followed, replica: before.to_vec(), promoted: Some((t_ns, applied)) }
    }

    /// Leaves out what the replica applied beyond the last decision of a server whose log was cut
    /// off: its decisions from there on are not known.
    pub(super) fn cut(&mut self, logged: Option<u64>) {
        self.replica.retain(|line| decided_order(&line.event) <= logged);
    }
}

fn decided_order(event: &BoxEvent) -> Option<u64> {
    match event {
        BoxEvent::Decided { order, .. } => Some(*order),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sequence::Sequence;
    use super::*;

    fn decided(t_ns: u64, order: u64, version: u64) -> LogLine {
        LogLine::committed(t_ns, order, version, 1.0)
    }

    fn promoted(applied: u64, order: u64, version: u64) -> LogLine {
        let event = BoxEvent::Promoted { epoch: 1, applied, order, version, momentum_norm: 1.0 };
        LogLine { t_ns: 50, rx_bytes: 0, event }
    }

    #[test]
    fn the_replica_goes_on_from_what_it_had() {
        let server = [decided(10, 0, 1), decided(20, 1, 2), decided(30, 2, 3)];
        let replica = [
            decided(11, 0, 1),
            decided(21, 1, 2),
            promoted(2, 4099, 2),
            decided(60, 4099, 3),
            decided(70, 4100, 4),
        ];
        let succession = Succession::new(&server, &replica);
        assert_eq!(succession.promoted, Some((50, 2)));
        assert_eq!(succession.replica, replica[..2]);
        let sequence = Sequence::new("server", &succession.server);
        assert_eq!(sequence.problems, [""; 0]);
        let orders: Vec<u64> = sequence.decided.iter().map(|decided| decided.order).collect();
        assert_eq!(orders, [0, 1, 4099, 4100], "what only the old server had is not in it");
    }

    #[test]
    fn what_a_killed_server_did_not_write_down_its_replica_did() {
        let server = [decided(10, 0, 1)];
        let replica = [
            decided(11, 0, 1),
            decided(21, 1, 2),
            decided(22, 2, 3),
            promoted(3, 4099, 3),
            decided(60, 4099, 4),
        ];
        let succession = Succession::new(&server, &replica);
        let sequence = Sequence::new("server", &succession.server);
        assert_eq!(sequence.problems, [""; 0]);
        let orders: Vec<u64> = sequence.decided.iter().map(|decided| decided.order).collect();
        assert_eq!(orders, [0, 1, 2, 4099]);
    }

    #[test]
    fn a_promotion_that_skips_or_repeats_is_a_problem() {
        let server = [decided(10, 0, 1), decided(20, 1, 2)];
        for (line, words) in [
            (promoted(3, 4099, 2), "order 3"),
            (promoted(2, 4099, 3), "version 3"),
            (promoted(2, 1, 2), "order 1"),
        ] {
            let succession = Succession::new(&server, &[line]);
            let problems = Sequence::new("server", &succession.server).problems;
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains(words), "{problems:?}");
        }
    }
}
