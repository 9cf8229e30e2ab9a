//! Decides what a server's log says: the sequence of its decisions, with members and delays. Pure.
//!
//! Checked on the way: every order number is decided once and in sequence (I3), the version grows
//! by the committed members and by nothing else (I1), no committed member's delay exceeds `tau_max`
//! (I4). What is found wrong is a problem of the run, in words.

use std::collections::HashMap;

use super::log::{BoxEvent, LogLine, LoggedDecision};

/// One decided order number.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// When, by the monotonic clock.
    pub t_ns: u64,
    /// The group's id.
    pub group: u32,
    /// Its order number.
    pub order: u64,
    /// What became of it.
    pub decision: LoggedDecision,
    /// The model's version afterwards.
    pub version: u64,
    /// The committed members, in the group's order.
    pub members: Vec<DecidedMember>,
    /// Members that the group was granted with, which bounds each contribution.
    pub granted: usize,
    /// Scale exponent of the group.
    pub exponent: i8,
    /// The aggregator that summed it.
    pub via: Option<u8>,
    /// Norm of the sum, as the server says.
    pub norm: f64,
    /// Norm of the momentum term afterwards, as the server says.
    pub momentum_norm: f64,
}

/// A committed member.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DecidedMember {
    /// Its worker.
    pub rank: u8,
    /// The version that its update was computed on; unknown without a controller.
    pub version: Option<u64>,
}

/// The decisions of a box in their sequence.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sequence {
    /// In the order in which they were decided.
    pub decided: Vec<Decided>,
    /// What contradicts the protocol.
    pub problems: Vec<String>,
    /// The order number and the version that a promotion goes on from.
    resumed: Option<(u64, u64)>,
}

/// What is known of a group before its decision.
struct InstalledGroup {
    members: Vec<(u8, u64)>,
    via: Option<u8>,
}

impl Sequence {
    /// Reads the decisions of the box called `name`.
    #[must_use]
    pub(super) fn new(name: &str, lines: &[LogLine]) -> Self {
        let mut known: HashMap<u32, InstalledGroup> = HashMap::new();
        let mut sequence = Self::default();
        for line in lines {
            match &line.event {
                BoxEvent::Installed { group, members, via, .. } => {
                    known.insert(*group, InstalledGroup { members: members.clone(), via: *via });
                }
                BoxEvent::Decided {
                    group,
                    order,
                    decision,
                    version,
                    members,
                    exponent,
                    norm,
                    momentum_norm,
                } => {
                    let known = known.remove(group);
                    let decided = Decided {
                        t_ns: line.t_ns,
                        group: *group,
                        order: *order,
                        decision: *decision,
                        version: *version,
                        members: in_order(*members, known.as_ref()),
                        granted: known.as_ref().map_or(1, |known| known.members.len()),
                        exponent: *exponent,
                        via: known.and_then(|known| known.via),
                        norm: *norm,
                        momentum_norm: *momentum_norm,
                    };
                    sequence.take(name, decided);
                }
                BoxEvent::Promoted { applied, order, version, .. } => {
                    sequence.take_promotion(name, (*applied, *order, *version));
                }
                _ => {}
            }
        }
        sequence
    }

    /// Another box decides from here on: it has all of the sequence and nothing else, and no order
    /// number comes again.
    fn take_promotion(&mut self, name: &str, (applied, order, version): (u64, u64, u64)) {
        let (next, known) = self.next();
        if applied != next {
            let problem = format!("{name}: promoted with all below order {applied}, not {next}");
            self.problems.push(problem);
        } else if version != known {
            let problem = format!("{name}: promoted at version {version}, not {known}");
            self.problems.push(problem);
        } else if order < next {
            self.problems.push(format!("{name}: promoted to order {order}, which was used"));
        }
        self.resumed = Some((order, version));
    }

    /// The order number that comes next, and the version before it.
    fn next(&self) -> (u64, u64) {
        let last = self.decided.last().map_or((0, 0), |last| (last.order + 1, last.version));
        self.resumed.unwrap_or(last)
    }

    fn take(&mut self, name: &str, decided: Decided) {
        let (order, version) = self.next();
        self.resumed = None;
        if decided.order != order && !(decided.is_hole() && decided.order > order) {
            let problem = format!("{name}: order {} decided instead of {order}", decided.order);
            self.problems.push(problem);
        }
        let committed = if decided.decision == LoggedDecision::Committed {
            decided.members.len() as u64
        } else {
            0
        };
        if decided.version != version + committed {
            self.problems.push(format!(
                "{name}: order {} took the version from {version} to {} with {committed} updates",
                decided.order, decided.version
            ));
        }
        self.decided.push(decided);
    }

    /// The committed groups.
    pub(super) fn committed(&self) -> impl Iterator<Item = &Decided> {
        self.decided.iter().filter(|decided| decided.decision == LoggedDecision::Committed)
    }
}

impl Decided {
    /// Whether it ends numbers that nobody installed: one decision, under the last of them.
    pub(super) fn is_hole(&self) -> bool {
        self.decision == LoggedDecision::Void && self.group == 0 && self.members.is_empty()
    }

    /// The version before it.
    #[must_use]
    pub(super) fn version_before(&self) -> u64 {
        match self.decision {
            LoggedDecision::Committed => self.version - self.members.len() as u64,
            LoggedDecision::Void | LoggedDecision::Dropped => self.version,
        }
    }

    /// Delay of the member at `position` if its update was computed on `version`.
    #[must_use]
    pub(super) fn delay(&self, position: usize, version: u64) -> u64 {
        (self.version_before() + position as u64).saturating_sub(version)
    }
}

/// The members of a bitmap: in the descriptor's order, else by rank.
fn in_order(mask: u64, known: Option<&InstalledGroup>) -> Vec<DecidedMember> {
    let is_in = |rank: u8| mask.checked_shr(rank.into()).is_some_and(|mask| mask & 1 == 1);
    match known {
        Some(known) => known
            .members
            .iter()
            .filter(|(rank, _)| is_in(*rank))
            .map(|(rank, version)| DecidedMember { rank: *rank, version: Some(*version) })
            .collect(),
        None => (0..64)
            .filter(|rank| is_in(*rank))
            .map(|rank| DecidedMember { rank, version: None })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(t_ns: u64, event: BoxEvent) -> LogLine {
        LogLine { t_ns, rx_bytes: 0, event }
    }

    fn installed(group: u32, order: u64, members: &[(u8, u64)]) -> LogLine {
        let members = members.to_vec();
        let event = BoxEvent::Installed {
            group,
            order,
            members,
            exponent: -20,
            via: Some(0),
            replicate: false,
            rate_bytes_per_sec: None,
        };
        line(0, event)
    }

    fn decided(
        group: u32,
        order: u64,
        decision: LoggedDecision,
        version: u64,
        mask: u64,
    ) -> LogLine {
        let event = BoxEvent::Decided {
            group,
            order,
            decision,
            version,
            members: mask,
            exponent: -20,
            norm: 1.0,
            momentum_norm: 1.0,
        };
        line(order, event)
    }

    #[test]
    fn members_keep_the_groups_order_and_delays_count_them() {
        let lines = [
            installed(7, 0, &[(5, 0), (2, 0), (3, 0)]),
            decided(7, 0, LoggedDecision::Committed, 2, 0b10_1000),
            decided(8, 1, LoggedDecision::Void, 2, 0),
            decided(9, 2, LoggedDecision::Committed, 3, 0b1),
        ];
        let sequence = Sequence::new("server", &lines);
        assert_eq!(sequence.problems, Vec::<String>::new());
        let first = &sequence.decided[0];
        let ranks: Vec<u8> = first.members.iter().map(|member| member.rank).collect();
        assert_eq!(ranks, [5, 3]);
        assert_eq!((first.delay(0, 0), first.delay(1, 0)), (0, 1));
        assert_eq!(sequence.decided[2].delay(0, 0), 2);
        assert_eq!(sequence.committed().count(), 2);
    }

    #[test]
    fn numbers_that_nobody_installed_end_together_and_others_do_not() {
        let lines = [
            decided(7, 0, LoggedDecision::Committed, 1, 0b1),
            decided(0, 3, LoggedDecision::Void, 1, 0),
            decided(8, 4, LoggedDecision::Committed, 2, 0b1),
            decided(9, 6, LoggedDecision::Void, 2, 0),
        ];
        let sequence = Sequence::new("server", &lines);
        assert_eq!(sequence.problems, ["server: order 6 decided instead of 5"]);
    }

    #[test]
    fn a_repeated_order_and_a_wrong_version_are_problems() {
        let lines = [
            decided(7, 0, LoggedDecision::Committed, 1, 0b1),
            decided(8, 0, LoggedDecision::Committed, 2, 0b1),
            decided(9, 1, LoggedDecision::Committed, 9, 0b1),
        ];
        let sequence = Sequence::new("server", &lines);
        assert_eq!(
            sequence.problems,
            [
                "server: order 0 decided instead of 1",
                "server: order 1 took the version from 2 to 9 with 1 updates",
            ]
        );
    }
}
