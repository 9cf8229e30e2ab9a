//! What a run may end with, by what it is about (I1, I2, I6, I9).

use weft_engine::role::worker::WorkerError;
use weft_wire::hello::Reason;
use weft_wire::{Members, Nanos};

use super::Report;
use super::member::{End, MemberNode};
use super::scenario::{Action, Kind, Scenario};
use super::topology::MEMBER_TIMEOUT;

/// What is wrong with how a run ended.
#[must_use]
pub fn judge(scenario: &Scenario, report: &Report) -> Vec<String> {
    let mut violations = Vec::new();
    for (index, member) in report.members.iter().enumerate() {
        let exempt = scenario.kind == Kind::Greedy && member.placement.job == 0;
        let problem = if exempt { None } else { judge_member(scenario, report, index) };
        violations.extend(problem.map(|problem| format!("member {index}: {problem}")));
    }
    violations.extend(disagreement(scenario, &report.members));
    violations
}

fn judge_member(scenario: &Scenario, report: &Report, index: usize) -> Option<String> {
    let member = &report.members[index];
    if let Some(wrong) = &member.data.wrong {
        return Some(format!("wrong sum: {wrong}"));
    }
    let end = member.end;
    let killed = killed(scenario);
    match scenario.kind {
        Kind::Death if killed == Some(index) => None,
        Kind::Death => bereaved(scenario, report, member),
        Kind::Killed if member.placement.job == 0 => None,
        Kind::Return => {
            // Who had taken no sum yet begins anew without a word.
            let lost = |error: &WorkerError| {
                matches!(error, WorkerError::Refused { reason: Reason::MemberLost, .. })
            };
            if !member.errors.iter().all(lost) {
                return Some(format!("another error than the loss: {:?}", member.errors));
            }
            let job =
                report.members.iter().filter(|other| other.placement.job == member.placement.job);
            let attempts: Vec<_> = job.map(MemberNode::attempt).collect();
            member.data.torn(&attempts).or_else(|| finished(scenario, member))
        }
        Kind::Late => {
            let limit = u64::from(scenario.window * scenario.shards);
            let late = scenario.cues.iter().any(|cue| match cue.action {
                Action::Pause { member, .. } => member == index,
                _ => false,
            });
            let resent = member.retransmissions - member.retransmissions_before;
            if !late && resent > limit {
                return Some(format!("resent {resent} of {limit} slots"));
            }
            finished(scenario, member)
        }
        Kind::Faults | Kind::Greedy | Kind::Killed | Kind::Restart => {
            if let Some(error) = member.errors.first() {
                if crosses(scenario) && is_clear(error) {
                    return None;
                }
                return Some(format!("failed in round {}: {error}", member.rounds_done()));
            }
            let all = scenario.kind != Kind::Restart;
            if all && end == Some(End::Closed { by_all: false }) {
                return Some("closed alone".to_owned());
            }
            finished(scenario, member)
        }
    }
}

/// Two boxes of a tree crash in one run: the job may end with a clear error (I9 is about one).
fn crosses(scenario: &Scenario) -> bool {
    let mut boxes = scenario.cues.iter().filter_map(|cue| match cue.action {
        Action::RestartBox { index, .. } => Some(index),
        _ => None,
    });
    let first = boxes.next();
    scenario.levels == 2 && boxes.any(|index| Some(index) != first)
}

fn is_clear(error: &WorkerError) -> bool {
    matches!(
        error,
        WorkerError::MembersMissing { .. }
            | WorkerError::Stuck
            | WorkerError::Refused { reason: Reason::MemberLost, .. }
    )
}

fn finished(scenario: &Scenario, member: &MemberNode) -> Option<String> {
    let closed = matches!(member.end, Some(End::Closed { .. }));
    let done = member.rounds_done() == scenario.rounds;
    (!closed || !done).then(|| {
        format!(
            "{:?} after {} rounds; errors {:?}",
            member.end,
            member.rounds_done(),
            member.errors
        )
    })
}

/// A survivor of a death ends in bounded time with an error that names whom it lacks.
fn bereaved(scenario: &Scenario, report: &Report, member: &MemberNode) -> Option<String> {
    let Some(dead) = killed(scenario).map(|dead| &report.members[dead]) else {
        return Some("nobody died".to_owned());
    };
    let Some(End::Failed(error)) = member.end else {
        return Some(format!("ended with {:?} although another died", member.end));
    };
    let bound = dead.ended_at.saturating_add(Nanos(2 * MEMBER_TIMEOUT.0));
    if member.ended_at > bound {
        return Some(format!("ended {:?} after the death", member.ended_at.since(dead.ended_at)));
    }
    let here = dead.placement.box_index == member.placement.box_index;
    // Survivors give up one after another, so those who did so first are missing too; and the last
    // HAVE may be of a step that this member's own contribution has not reached.
    let gone = |other: &&MemberNode| {
        other.placement.box_index == member.placement.box_index && other.ended_at <= member.ended_at
    };
    let gone = report.members.iter().filter(gone);
    let gone =
        gone.fold(Members::EMPTY, |gone, other| gone.union(Members(1 << other.placement.rank)));
    match error {
        WorkerError::MembersMissing { missing }
            if here && !missing.is_empty() && gone.contains(missing) =>
        {
            None
        }
        // A leaf whose own members are all there waits for the level above.
        WorkerError::MembersMissing { missing } if scenario.levels == 2 && missing.is_empty() => {
            None
        }
        _ => Some(format!("the error does not name the dead: {error}")),
    }
}

fn killed(scenario: &Scenario) -> Option<usize> {
    scenario.cues.iter().find_map(|cue| match cue.action {
        Action::Kill { member } => Some(member),
        _ => None,
    })
}

/// Every member of a job has the same bits for the same chunk, whatever the order of additions.
fn disagreement(scenario: &Scenario, members: &[MemberNode]) -> Option<String> {
    let mut seen = std::collections::BTreeMap::new();
    for (index, member) in members.iter().enumerate() {
        if scenario.kind == Kind::Greedy && member.placement.job == 0 {
            continue;
        }
        for sum in &member.data.sums {
            let (first, other) =
                seen.entry((member.placement.job, sum.place)).or_insert((sum, index));
            if *first != sum {
                return Some(format!("members {other} and {index} differ in {:?}", sum.place));
            }
        }
    }
    None
}
