//! What a run came to: its factors against those of one process that works alone. Pure.

use weft_client::keys::Histogram;

use super::live::Seen;
use super::message::TableSummary;
use super::plan::FactorisationPlan;
use crate::lab::tc::Rate;
use crate::report::{FactorisationOutcome, LatencyRow, Verdict};
use crate::workload::factorisation::Matrix;

/// Judges a run.
#[must_use]
pub fn judge(plan: &FactorisationPlan, seen: &Seen) -> FactorisationOutcome {
    let section = &plan.scenario.factorisation;
    let matrix = Matrix::new(section, plan.seed);
    let reference = matrix.reference();
    let mut problems = seen.problems.clone();
    let factors = seen.factors.clone().unwrap_or_default();
    let wrong = if factors.len() == reference.len() {
        let pairs = factors.iter().zip(&reference);
        let is_wrong = |found: f32, expected: f32| match section.is_exact() {
            true => found.to_bits() != expected.to_bits(),
            false => !found.is_finite(),
        };
        pairs.filter(|(found, expected)| is_wrong(**found, **expected)).count()
    } else {
        problems.push(format!("{} factor values of {}", factors.len(), reference.len()));
        reference.len()
    };
    if wrong > 0 {
        let what =
            if section.is_exact() { "differ from the reference's" } else { "are no numbers" };
        problems.push(format!("{wrong} of {} values {what}", reference.len()));
    }
    let reference_loss = matrix.loss(&reference);
    let loss = (factors.len() == reference.len()).then(|| matrix.loss(&factors));
    // Copies are older than rows, sums of pushes round otherwise, and where workers share factors
    // in a step their order counts: the model is another one, and must be as good.
    let loss_max = section.model.loss_max(reference_loss);
    if reference_loss.is_nan() {
        let rate = section.learning_rate;
        problems.push(format!("one process alone comes to no loss: learning_rate is {rate}"));
    } else if let Some(loss) = loss.filter(|loss| loss.is_nan() || *loss > loss_max) {
        problems.push(format!("a loss of {loss} is worse than the reference's {reference_loss}"));
    }
    if seen.summaries.len() < usize::from(section.nodes) {
        let count = seen.summaries.len();
        problems.push(format!("{count} of {} processes came to their end", section.nodes));
    }
    if seen.kills.len() != plan.scenario.kill.len() {
        let planned = plan.scenario.kill.len();
        problems.push(format!("the home was killed {} times, not {planned}", seen.kills.len()));
    }
    let mut epochs_s: Vec<f64> =
        seen.epochs.iter().filter(|(node, ..)| *node == 0).map(|(.., ns)| seconds(*ns)).collect();
    let in_order = epochs_s.clone();
    epochs_s.sort_by(f64::total_cmp);
    let sum = |of: fn(&TableSummary) -> u64| -> u64 {
        seen.summaries.iter().map(|(_, summary)| of(summary)).sum()
    };
    let (local, remote) = (sum(|it| it.local), sum(|it| it.remote));
    let carried = seen.summaries.iter().map(|(_, it)| it.rx_bytes.max(it.tx_bytes)).max();
    let wire_bytes = carried.unwrap_or(0) / u64::from(section.epochs.max(1));
    let rate = plan.scenario.lab.rate_mbit.and_then(Rate::from_mbit).map(Rate::bytes_per_sec);
    let latencies = latencies(seen);
    let moves = latencies.iter().find(|row| row.operation == LOCALIZE);
    FactorisationOutcome {
        name: plan.scenario.name.clone(),
        verdict: if problems.is_empty() { Verdict::Ok } else { Verdict::Failed },
        mode: section.mode,
        nodes: section.nodes,
        threads: section.threads,
        wrong_values: wrong as u64,
        loss,
        reference_loss,
        local_share: if local + remote == 0 { 1.0 } else { local as f64 / (local + remote) as f64 },
        local_operations: local,
        remote_operations: remote,
        relocations: sum(|it| it.relocations),
        relocation_us_p50: moves.map_or(0.0, |row| row.p50_us),
        epoch_s: epochs_s.get(epochs_s.len() / 2).copied().unwrap_or(0.0),
        epochs_s: in_order,
        wire_bytes,
        wire_s: rate.map(|rate| wire_bytes as f64 / rate as f64),
        repeats: sum(|it| it.repeats),
        home: seen.home.clone(),
        home_kills: seen.kills.clone(),
        latencies,
        problems,
        virtual_time: None,
    }
}

/// How long operations took at all processes, by kind.
fn latencies(seen: &Seen) -> Vec<LatencyRow> {
    type Classes = fn(&TableSummary) -> &[(u64, u64)];
    let kinds: [(&str, Classes); 5] = [
        ("pull local", |it| &it.pull_local),
        ("push local", |it| &it.push_local),
        ("pull remote", |it| &it.pull_remote),
        ("push remote", |it| &it.push_remote),
        (LOCALIZE, |it| &it.localize),
    ];
    let row = |(operation, classes): (&str, Classes)| {
        let mut all = Histogram::default();
        for (_, summary) in &seen.summaries {
            classes(summary).iter().for_each(|(longest_ns, count)| all.add(*longest_ns, *count));
        }
        let us = |share| all.per_mille(share).map_or(0.0, |ns| ns as f64 / 1e3);
        LatencyRow {
            operation: operation.to_owned(),
            count: all.count(),
            p50_us: us(500),
            p90_us: us(900),
            p99_us: us(990),
            most_us: us(1000),
        }
    };
    kinds.into_iter().map(row).collect()
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

const LOCALIZE: &str = "localize";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Place;
    use crate::scenario::FactorisationScenario;

    fn plan() -> FactorisationPlan {
        let text = include_str!("../../../scenarios/factorisation.toml");
        let mut scenario = FactorisationScenario::parse("factorisation.toml", text).unwrap();
        scenario.factorisation.epochs = 1;
        FactorisationPlan::new(&scenario, &Place::Lab, std::net::Ipv4Addr::LOCALHOST, 1).unwrap()
    }

    fn seen(plan: &FactorisationPlan) -> Seen {
        let summary = TableSummary {
            local: 30,
            remote: 10,
            relocations: 4,
            localize: vec![(99_999, 4)],
            ..TableSummary::default()
        };
        let nodes = 0..plan.scenario.factorisation.nodes;
        Seen {
            epochs: nodes.clone().map(|node| (node, 0, 2_000_000_000)).collect(),
            summaries: nodes.map(|node| (node, summary.clone())).collect(),
            factors: Some(Matrix::new(&plan.scenario.factorisation, plan.seed).reference()),
            ..Seen::default()
        }
    }

    #[test]
    fn a_good_run_has_the_references_bits() {
        let plan = plan();
        let outcome = judge(&plan, &seen(&plan));
        assert_eq!((outcome.verdict, outcome.wrong_values), (Verdict::Ok, 0), "{outcome:?}");
        assert_eq!(outcome.loss, Some(outcome.reference_loss));
        assert_eq!((outcome.local_share, outcome.epoch_s), (0.75, 2.0));
        let nodes = u64::from(plan.scenario.factorisation.nodes);
        assert_eq!(outcome.relocations, 4 * nodes);
        assert!((99.0..113.0).contains(&outcome.relocation_us_p50), "{outcome:?}");
    }

    #[test]
    fn one_wrong_bit_a_silent_process_and_a_failure_each_fail_the_run() {
        let plan = plan();
        let failed = |change: &dyn Fn(&mut Seen), expected: &str| {
            let mut seen = seen(&plan);
            change(&mut seen);
            let outcome = judge(&plan, &seen);
            assert_eq!(outcome.verdict, Verdict::Failed);
            assert!(outcome.problems.iter().any(|it| it.contains(expected)), "{outcome:?}");
        };
        let spoil = |seen: &mut Seen| {
            let factors = seen.factors.as_mut().unwrap();
            factors[3] = f32::from_bits(factors[3].to_bits() ^ 1);
        };
        failed(&spoil, "1 of ");
        failed(&|seen| seen.factors = None, "factor values");
        failed(&|seen| drop(seen.summaries.pop()), "came to their end");
        failed(&|seen| seen.problems.push("process 1: it broke".into()), "it broke");
        failed(&|seen| seen.kills.push(0), "killed 1 times");
    }
}
