//! What must hold at the end of a run: each row is at one process, each history is consistent, each
//! add is in its row once, nobody waits for anything.

use weft_wire::keys::RowEpoch;

use super::Seen;
use super::copies;
use super::history::{Event, judge};
use super::lanes;
use super::node::{FIRST_KEY, Node, read};
use super::scenario::Scenario;

/// Says what does not hold. `is_dead` says which processes are.
pub(super) fn violations(
    scenario: &Scenario,
    nodes: &mut [Node],
    is_dead: &[bool],
    seen: &mut Seen,
) -> Vec<String> {
    let mut violations = Vec::new();
    for (node, _) in nodes.iter().zip(is_dead).filter(|(_, is_dead)| !**is_dead) {
        let open = node.sessions.iter().filter(|session| !session.is_done());
        violations.extend(open.map(|session| format!("waits for ever: {}", session.describe())));
    }
    for (process, (node, _)) in
        nodes.iter().zip(is_dead).enumerate().filter(|(_, (_, is_dead))| !**is_dead)
    {
        if violations.is_empty() && !node.engine.is_idle() {
            violations.push(format!("process {process} keeps a copy, or asks for a row, for ever"));
        }
    }
    for key in FIRST_KEY..FIRST_KEY + u64::from(scenario.keys) {
        if let Err(what) = judge_key(scenario, nodes, is_dead, key, seen) {
            violations.push(format!("key {key}: {what}"));
        }
    }
    violations
}

fn judge_key(
    scenario: &Scenario,
    nodes: &mut [Node],
    is_dead: &[bool],
    key: u64,
    seen: &mut Seen,
) -> Result<(), String> {
    let mut rows = Vec::new();
    for (process, node) in nodes.iter_mut().enumerate().filter(|(process, _)| !is_dead[*process]) {
        let row = node.engine.with_row(key, |slot| (*slot.epoch, read(slot.value)));
        let (epoch, value) = row.map_err(|error| error.to_string())?;
        if epoch.is_some() {
            rows.push((process, epoch, value));
        }
    }
    let [(_, epoch, last)] = &rows[..] else {
        let holders: Vec<_> = rows.iter().map(|(process, ..)| *process).collect();
        return Err(format!("held by {holders:?}"));
    };
    let sessions: Vec<Vec<Event>> = (0..scenario.session_count())
        .map(|number| {
            let node = &nodes[number / scenario.sessions];
            node.sessions[number % scenario.sessions].events(key)
        })
        .collect();
    let dead = |session: usize| is_dead[session / scenario.sessions];
    for (session, events) in sessions.iter().enumerate() {
        let added = events.iter().filter(|event| **event == Event::Add).count();
        if last.adds[session] as usize > added {
            let there = last.adds[session];
            return Err(format!("session {session} added {added} times, {there} are in the row"));
        }
    }
    seen.judged += sessions.iter().flatten().filter(|e| matches!(e, Event::Pull(_))).count() as u64;
    // What was pushed since the copy or the checkpoint is lost with a dead process.
    if epoch.birth() > RowEpoch::born(1).birth() {
        return Ok(());
    }
    if scenario.in_flight > 1 {
        seen.overtaken += u64::from(judge(&sessions, dead, Some(last)).is_err());
        let timed = (0..scenario.session_count()).map(|number| {
            let node = &nodes[number / scenario.sessions];
            node.sessions[number % scenario.sessions].timed_events(key)
        });
        return lanes::judge(&timed.collect::<Vec<_>>(), last);
    }
    if !scenario.is_managed {
        return judge(&sessions, dead, Some(last));
    }
    let place = usize::try_from(key - FIRST_KEY).unwrap_or(0);
    for (number, events) in sessions.iter().enumerate() {
        let node = &nodes[number / scenario.sessions];
        let session = &node.sessions[number % scenario.sessions];
        let rows = node.rows_of_clocks.iter().map(|rows| &rows[place][..]).collect::<Vec<_>>();
        copies::judge(number, &session.events_of_clocks(key), &rows, scenario.staleness)?;
        let added = events.iter().filter(|event| **event == Event::Add).count();
        let there = last.adds[number] as usize;
        if !dead(number) && there != added {
            return Err(format!("session {number} added {added} times, {there} are in the row"));
        }
    }
    Ok(())
}
