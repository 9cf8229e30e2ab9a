//! Decides whether a server committed what its controller planned: the groups that the controller
//! had installed, each at the order number that it gave them, with no other members (I3). Pure.
//!
//! The server's own log cannot tell: it says what the server made of its commands. The controller
//! writes its log before it sends one.

use std::collections::HashMap;

use weft_control::GROUPS_OPEN_MAX;
use weft_wire::GroupId;

use super::log::{BoxEvent, LogLine};
use super::sequence::{Decided, Sequence};
use super::verify::Evidence;

/// A group and its members, rank and version each.
type Group<'a> = (u32, &'a [(u8, u64)]);

/// What the server's sequence has otherwise than the controller's log, if somebody plans.
pub(super) fn contradictions(evidence: &Evidence<'_>, sequence: &Sequence) -> Vec<String> {
    let policy = evidence.scenario.push.as_ref().map_or("", |push| &push.policy);
    let Some(controller) = evidence.controller else { return Vec::new() };
    find(controller, sequence, policy != FAIR)
}

/// Where the policy has no order (`is_ordered` is false), only the groups count.
fn find(controller: &[LogLine], sequence: &Sequence, is_ordered: bool) -> Vec<String> {
    let mut installed: HashMap<u64, Vec<Group<'_>>> = HashMap::new();
    let mut by_group: HashMap<u32, Vec<Group<'_>>> = HashMap::new();
    for line in controller {
        if let BoxEvent::Installed { group, order, members, .. } = &line.event {
            installed.entry(*order).or_default().push((*group, members));
            by_group.entry(*group).or_default().push((*group, members));
        }
    }
    // What workers send without a word from the controller has rows of its own.
    let is_planned = |decided: &&Decided| GroupId(decided.group).row() < GROUPS_OPEN_MAX;
    let mut problems = Vec::new();
    for decided in sequence.committed().filter(is_planned) {
        let meant = match is_ordered {
            true => installed.get(&decided.order),
            false => by_group.get(&decided.group),
        };
        let (order, group) = (decided.order, decided.group);
        let meant = meant.map(Vec::as_slice).unwrap_or_default();
        let Some(last) = meant.last() else {
            problems.push(format!(
                "order {order}: the server committed group {group:#x}, and the controller had \
                 installed none there"
            ));
            continue;
        };
        // A number whose group was taken back may have been given to another.
        let Some((_, members)) = meant.iter().rfind(|(known, _)| *known == group) else {
            problems.push(format!(
                "order {order}: the server committed group {group:#x}, and the controller had \
                 installed {:#x} there",
                last.0
            ));
            continue;
        };
        if !is_part_in_order(decided, members) {
            problems.push(format!(
                "order {order}: the members of group {group:#x} are not those that the controller \
                 installed, in their order"
            ));
        }
    }
    problems
}

/// Whether the committed members are members, and in the group's order.
fn is_part_in_order(decided: &Decided, members: &[(u8, u64)]) -> bool {
    let mut rest = members.iter();
    decided.members.iter().all(|own| {
        let is_it = |(rank, version): &(u8, u64)| {
            *rank == own.rank && own.version.is_none_or(|own| own == *version)
        };
        rest.any(is_it)
    })
}

/// The policy whose server commits what has arrived.
const FAIR: &str = "fair";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::push::log::LoggedDecision;

    fn installed(group: u32, order: u64, members: &[(u8, u64)]) -> LogLine {
        let event = BoxEvent::Installed {
            group,
            order,
            members: members.to_vec(),
            exponent: 0,
            via: None,
            replicate: false,
            rate_bytes_per_sec: None,
        };
        LogLine { t_ns: 0, rx_bytes: 0, event }
    }

    fn committed(group: u32, order: u64, version: u64, members: u64) -> LogLine {
        let event = BoxEvent::Decided {
            group,
            order,
            decision: LoggedDecision::Committed,
            version,
            members,
            exponent: 0,
            norm: 1.0,
            momentum_norm: 1.0,
        };
        LogLine { t_ns: order, rx_bytes: 0, event }
    }

    fn found(controller: &[LogLine], server: &[LogLine], is_ordered: bool) -> Vec<String> {
        let sequence = Sequence::new("server", server);
        assert_eq!(sequence.problems, Vec::<String>::new(), "the server's log alone is right");
        find(controller, &sequence, is_ordered)
    }

    #[test]
    fn what_was_planned_is_right_whoever_it_was_offered_to_before() {
        let controller = [
            installed(1, 0, &[(0, 0)]),
            // Its group was refused: the number went to the next one.
            installed(2, 1, &[(1, 0)]),
            installed(3, 1, &[(2, 0), (1, 0)]),
            installed(4, 2, &[(0, 1)]),
        ];
        let server = [
            controller[0].clone(),
            controller[2].clone(),
            controller[3].clone(),
            committed(1, 0, 1, 0b1),
            // Without one that was lost.
            committed(3, 1, 2, 0b100),
            committed(4, 2, 3, 0b1),
            // A worker went on by itself.
            committed(0x8000_0000, 3, 4, 0b10),
        ];
        assert_eq!(found(&controller, &server, true), Vec::<String>::new());
    }

    #[test]
    fn a_server_that_commits_in_another_order_is_found() {
        let controller = [installed(1, 0, &[(0, 0)]), installed(2, 1, &[(1, 0)])];
        // It numbers what arrives as it arrives, and says that this was its command.
        let server = [
            installed(2, 0, &[(1, 0)]),
            installed(1, 1, &[(0, 0)]),
            committed(2, 0, 1, 0b10),
            committed(1, 1, 2, 0b1),
        ];
        let problems = found(&controller, &server, true);
        assert_eq!(
            problems,
            [
                "order 0: the server committed group 0x2, and the controller had installed 0x1 \
                 there",
                "order 1: the server committed group 0x1, and the controller had installed 0x2 \
                 there",
            ]
        );
        assert_eq!(found(&controller, &server, false), Vec::<String>::new());
        let made_up = [committed(7, 0, 1, 0b1)];
        assert!(found(&controller, &made_up, false)[0].contains("had installed none"));
    }

    #[test]
    fn members_in_another_order_or_from_elsewhere_are_found() {
        let controller = [installed(1, 0, &[(0, 4), (1, 4)])];
        for members in [[(1, 4), (0, 4)], [(0, 4), (1, 3)]] {
            let server = [installed(1, 0, &members), committed(1, 0, 2, 0b11)];
            let problems = found(&controller, &server, true);
            assert!(problems[0].contains("are not those"), "{problems:?}");
        }
    }
}
