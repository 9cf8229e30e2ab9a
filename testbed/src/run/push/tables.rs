//! The rows of a push run's directory, from what was seen and what the proof found.

use std::collections::HashMap;

use super::downlink::ceilings;
use super::log::{BoxEvent, LogLine, LoggedDecision};
use super::verify::PushProof;
use crate::report::{
    CommitRow, EventRow, FilesError, ReplicaRow, RoundRow, RunWriter, TransferRow, UpdateRow,
};
use crate::run::finished::Finished;
use crate::run::{UpdateMessage, UpdateOutcome};
use crate::scenario::{REPLICA, SERVER};

/// Writes what is of a push beside the events of every run.
pub(in crate::run) fn write(
    run: &Finished<'_>,
    proof: Option<&PushProof>,
    writer: &mut RunWriter,
) -> Result<(), FilesError> {
    let empty = PushProof::default();
    let proof = proof.unwrap_or(&empty);
    for row in events(run) {
        writer.event(&row)?;
    }
    for row in rounds(run, proof) {
        writer.round(&row)?;
    }
    for (name, lines) in &run.observed.logs {
        for row in transfers(name, lines, run.begun_ns, proof) {
            writer.transfer(&row)?;
        }
    }
    writer.push_tables(&updates(run, proof), &commits(run, proof), &replica(run, proof))
}

/// As many updates at a time as one round has.
fn rounds(run: &Finished<'_>, proof: &PushProof) -> Vec<RoundRow> {
    let per_round = run.scenario.updates_per_round();
    let mut rows: Vec<RoundRow> = Vec::new();
    let mut begun_ns = proof.curve.first().map_or(run.begun_ns, |point| point.t_ns);
    let losses = |from: u64, to: u64| {
        let of = |update: &&(u8, u32, UpdateMessage)| {
            update.2.committed_version > from && update.2.committed_version <= to
        };
        let losses: Vec<f32> =
            run.observed.updates.iter().filter(of).map(|(.., update)| update.loss).collect();
        losses.iter().sum::<f32>() / (losses.len().max(1)) as f32
    };
    let mut next = per_round;
    let mut before = 0;
    for decided in &proof.decided {
        if decided.version < next {
            continue;
        }
        rows.push(RoundRow {
            round: rows.len() as u64,
            start_ns: run.since_begin(begun_ns),
            duration_ns: decided.t_ns.saturating_sub(begun_ns),
            loss: losses(before, decided.version),
            ..RoundRow::default()
        });
        begun_ns = decided.t_ns;
        before = decided.version;
        next = (decided.version / per_round + 1) * per_round;
    }
    rows
}

fn updates(run: &Finished<'_>, proof: &PushProof) -> Vec<UpdateRow> {
    let places: HashMap<(u8, u32, u64), (usize, usize)> = proof
        .places
        .iter()
        .enumerate()
        .map(|(position, (index, rank, life, number))| {
            ((*rank, *life, *number), (*index, position))
        })
        .collect();
    let row = |(rank, life, update): &(u8, u32, UpdateMessage)| {
        let place = places.get(&(*rank, *life, update.number));
        let decided = place.and_then(|(index, _)| proof.decided.get(*index));
        UpdateRow {
            rank: (*rank).into(),
            life: *life,
            update: update.number,
            version: update.version,
            outcome: outcome_name(update.outcome).to_owned(),
            committed_version: decided.map(|decided| decided.version),
            delay: place.and_then(|(_, position)| proof.delays.get(*position)).copied(),
            order: decided.map(|decided| decided.order),
            via: via_name(decided.and_then(|decided| decided.via)),
            pull_ns: run.since_begin(update.pull_ns),
            pull_duration_ns: update.pull_duration_ns,
            compute_ns: update.compute_ns,
            push_ns: run.since_begin(update.push_ns),
            duration_ns: update.outcome_ns.saturating_sub(update.push_ns),
            loss: update.loss,
        }
    };
    run.observed.updates.iter().map(row).collect()
}

fn commits(run: &Finished<'_>, proof: &PushProof) -> Vec<CommitRow> {
    let mut delays: HashMap<usize, u64> = HashMap::new();
    for ((index, ..), delay) in proof.places.iter().zip(&proof.delays) {
        let highest = delays.entry(*index).or_default();
        *highest = (*highest).max(*delay);
    }
    let points: HashMap<u64, (f64, f64)> =
        proof.curve.iter().map(|point| (point.version, (point.loss, point.accuracy))).collect();
    let row = |(index, decided): (usize, &super::sequence::Decided)| {
        let is_committed = decided.decision == LoggedDecision::Committed;
        let point = points.get(&decided.version).filter(|_| is_committed);
        CommitRow {
            t_ns: run.since_begin(decided.t_ns),
            order: decided.order,
            group: decided.group,
            decision: match decided.decision {
                LoggedDecision::Committed => "committed",
                LoggedDecision::Void => "void",
                LoggedDecision::Dropped => "dropped",
            }
            .to_owned(),
            members: if is_committed {
                u32::try_from(decided.members.len()).unwrap_or(u32::MAX)
            } else {
                0
            },
            version: decided.version,
            via: via_name(decided.via),
            delay_max: delays.get(&index).copied(),
            norm: decided.norm,
            loss: point.map(|(loss, _)| *loss),
            accuracy: point.map(|(_, accuracy)| *accuracy),
        }
    };
    proof.decided.iter().enumerate().map(row).collect()
}

fn replica(run: &Finished<'_>, proof: &PushProof) -> Vec<ReplicaRow> {
    let row = |point: &super::replica::DivergencePoint| ReplicaRow {
        t_ns: run.since_begin(point.t_ns),
        server_order: point.server_order,
        replica_order: point.replica_order,
        distance: point.distance,
        bound: point.bound.is_finite().then_some(point.bound),
        is_held: point.is_held,
    };
    proof.divergence.iter().map(row).collect()
}

/// What server and replica said.
fn events(run: &Finished<'_>) -> Vec<EventRow> {
    let mut rows = Vec::new();
    for line in run.observed.log(REPLICA).unwrap_or_default() {
        if let BoxEvent::Promoted { epoch, applied, order, version, .. } = line.event {
            let fields: [(&str, serde_json::Value); 4] = [
                ("epoch", epoch.into()),
                ("applied", applied.into()),
                ("order", order.into()),
                ("version", version.into()),
            ];
            rows.push(run.event(line.t_ns, "promoted", &fields));
            rows.push(run.event(line.t_ns, "replication_not_held", &[]));
        }
    }
    let mut held = true;
    for line in run.observed.log(SERVER).unwrap_or_default() {
        match &line.event {
            BoxEvent::MemberLost { rank } => {
                rows.push(run.event(line.t_ns, "member_lost", &[("rank", (*rank).into())]));
            }
            BoxEvent::ReplicaAt { order, is_held, .. } if *is_held != held => {
                held = *is_held;
                let name = if held { "bound_held" } else { "bound_not_held" };
                rows.push(run.event(line.t_ns, name, &[("order", (*order).into())]));
            }
            _ => {}
        }
    }
    rows
}

/// The transfers that a box saw arrive.
fn transfers(name: &str, lines: &[LogLine], begun_ns: u64, proof: &PushProof) -> Vec<TransferRow> {
    let orders: HashMap<u32, (u64, Option<u8>, u32)> = proof
        .decided
        .iter()
        .map(|decided| {
            let first = decided.members.first().map_or(0, |member| member.rank);
            (decided.group, (decided.order, decided.via, first.into()))
        })
        .collect();
    let ceilings: HashMap<u32, Option<u64>> = ceilings(lines).collect();
    let of_server = |value: u64| (name == SERVER).then_some(value);
    let row = |line: &LogLine| {
        let BoxEvent::Transferred { group, rank, bytes, duration_ns, wait_ns, idle_ns } =
            line.event
        else {
            return None;
        };
        let known = orders.get(&group);
        let source = match rank {
            Some(rank) => format!("w{rank}"),
            None => via_name(known.and_then(|(_, via, _)| *via)),
        };
        Some(TransferRow {
            round: known.map_or(0, |(order, ..)| *order),
            rank: rank.map_or_else(|| known.map_or(0, |(.., first)| *first), u32::from),
            start_ns: line.t_ns.saturating_sub(duration_ns).saturating_sub(begun_ns),
            duration_ns,
            bytes,
            source,
            target: name.to_owned(),
            group: Some(group),
            order: known.map(|(order, ..)| *order),
            wait_ns: of_server(wait_ns),
            idle_ns: of_server(idle_ns),
            ceiling_bytes_per_sec: ceilings.get(&group).copied().flatten(),
            ..TransferRow::default()
        })
    };
    lines.iter().filter_map(row).collect()
}

fn via_name(via: Option<u8>) -> String {
    via.map(|index| format!("a{index}")).unwrap_or_default()
}

fn outcome_name(outcome: UpdateOutcome) -> &'static str {
    match outcome {
        UpdateOutcome::Committed => "committed",
        UpdateOutcome::Dropped => "dropped",
        UpdateOutcome::Void => "void",
        UpdateOutcome::Unknown => "unknown",
    }
}
