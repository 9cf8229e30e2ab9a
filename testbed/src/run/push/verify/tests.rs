//! A run made up by hand is proved; every way of tampering with it is found.

use super::*;
use crate::run::push::log::{BoxEvent, LoggedDecision};
use crate::run::push::recording::UpdateRecording;
use crate::workload::push_reference::distance;

const EXPONENT: i8 = -20;
const SEED: u64 = 3;

fn scenario() -> Scenario {
    let text = include_str!("../../../../scenarios/async.toml")
        .replace("workers = 8", "workers = 3")
        .replace("hidden = [256, 320]", "hidden = [4]")
        .replace("tau_max = 16", "tau_max = 3")
        .replace("w4 = 20\nw5 = 20\nw6 = 10\nw7 = { up = 5, down = 20 }\n", "");
    Scenario::parse("made-up.toml", &text).unwrap()
}

/// What a run of three workers left: a group of ranks 2 and 0, then one of rank 1.
struct MadeUp {
    directory: tempfile::TempDir,
    scenario: Scenario,
    server: Vec<LogLine>,
    controller: Vec<LogLine>,
    updates: Vec<(u8, u32, UpdateMessage)>,
    model: Vec<f32>,
}

fn update(elements: usize, rank: u8) -> Vec<f32> {
    (0..elements).map(|i| (i % 7) as f32 * 0.01 - f32::from(rank) * 0.02).collect()
}

fn committed(number: u64, committed_version: u64) -> UpdateMessage {
    let outcome = UpdateOutcome::Committed;
    UpdateMessage { number, outcome, committed_version, ..UpdateMessage::default() }
}

/// By plain sums in double precision, which hold these numbers exactly enough to round alike.
fn made_up() -> MadeUp {
    let directory = tempfile::tempdir().unwrap();
    let scenario = scenario();
    let trainer = Trainer::new(0, 3, SEED, &scenario.job.trainer()).unwrap();
    let elements = trainer.parameter_count();
    for rank in 0..3 {
        let path = updates_path(directory.path(), rank, 0);
        let mut recording = UpdateRecording::create(&path).unwrap();
        recording.update(0, 0, &update(elements, rank)).unwrap();
    }
    let mut reference = PushReference::new(scenario.job.momentum, trainer.parameters());
    let mut norm = |ranks: &[u8], members: usize| {
        let updates: Vec<Vec<f32>> = ranks.iter().map(|rank| update(elements, *rank)).collect();
        let clamp_limit = clamp_limit(members);
        let group = ReferenceGroup { updates: &updates, exponent: EXPONENT, clamp_limit };
        reference.commit(&group).unwrap()
    };
    let norms = [norm(&[2, 0], 2), norm(&[1], 1)];
    let line = |t_ns, event| LogLine { t_ns, rx_bytes: 0, event };
    let installed = |group, order, members: &[(u8, u64)]| BoxEvent::Installed {
        group,
        order,
        members: members.to_vec(),
        exponent: EXPONENT,
        via: None,
        replicate: true,
        rate_bytes_per_sec: None,
    };
    let decided = |group, order, version, members, norm| BoxEvent::Decided {
        group,
        order,
        decision: LoggedDecision::Committed,
        version,
        members,
        exponent: EXPONENT,
        norm,
        momentum_norm: 1.0,
    };
    let server = vec![
        line(1, installed(10, 0, &[(2, 0), (0, 0)])),
        line(2, installed(11, 1, &[(1, 0)])),
        line(5, decided(10, 0, 2, 0b101, norms[0])),
        line(9, decided(11, 1, 3, 0b010, norms[1])),
    ];
    let updates = vec![(2, 0, committed(0, 2)), (0, 0, committed(0, 2)), (1, 0, committed(0, 3))];
    let model = reference.model().to_vec();
    let controller = server[..2].to_vec();
    MadeUp { directory, scenario, server, controller, updates, model }
}

impl MadeUp {
    fn prove(&self, replica: Option<&[LogLine]>) -> PushProof {
        for name in [SERVER, REPLICA] {
            let path = model_path(self.directory.path(), name);
            std::fs::write(&path, model_bytes(&self.model)).unwrap();
        }
        self.prove_what_is_there(replica)
    }

    fn prove_what_is_there(&self, replica: Option<&[LogLine]>) -> PushProof {
        let evidence = Evidence {
            reached: None,
            scenario: &self.scenario,
            seed: SEED,
            directory: self.directory.path(),
            server: &self.server,
            replica,
            controller: Some(&self.controller),
            updates: &self.updates,
        };
        verify_push(&evidence).unwrap()
    }

    /// The problems of the run after `tamper`.
    fn tampered(tamper: impl FnOnce(&mut Self)) -> String {
        let mut run = made_up();
        tamper(&mut run);
        run.prove(None).problems.join("\n")
    }

    fn decided(&mut self, order: u64) -> &mut BoxEvent {
        let is_it = |line: &&mut LogLine| matches!(line.event, BoxEvent::Decided { order: found, .. } if found == order);
        &mut self.server.iter_mut().find(is_it).expect("it was decided").event
    }
}

#[test]
fn a_right_run_is_proved() {
    let run = made_up();
    let proof = run.prove(None);
    assert_eq!(proof.problems, Vec::<String>::new());
    assert_eq!(proof.delays, [0, 1, 2]);
    assert_eq!(proof.wrong_parameters, Some(0));
    let ranks: Vec<u8> = proof.places.iter().map(|(_, rank, ..)| *rank).collect();
    assert_eq!(ranks, [2, 0, 1]);
    assert_eq!(proof.curve.first().map(|point| point.version), Some(0));
    assert_eq!(proof.curve.last().map(|point| point.version), Some(3));
}

#[test]
fn tampering_is_found() {
    let wrong_bit = MadeUp::tampered(|run| run.model[5] = -run.model[5]);
    assert!(wrong_bit.contains("1 parameters differ from the reference"), "{wrong_bit}");
    // The group was two commits instead of one: momentum differs, and so does the model.
    let split = MadeUp::tampered(|run| {
        let BoxEvent::Decided { members, version, .. } = run.decided(0) else { unreachable!() };
        (*members, *version) = (0b100, 1);
    });
    assert!(split.contains("told that its update 0 is in version 2"), "{split}");
    let reordered = MadeUp::tampered(|run| {
        for line in &mut run.controller {
            let BoxEvent::Installed { order, .. } = &mut line.event else { unreachable!() };
            *order = 1 - *order;
        }
    });
    assert!(reordered.contains("the controller had installed 0xb there"), "{reordered}");
    let twice = MadeUp::tampered(|run| {
        let BoxEvent::Decided { members, .. } = run.decided(1) else { unreachable!() };
        *members = 0b101;
    });
    assert!(twice.contains("rank 1 was told"), "{twice}");
    let lied = MadeUp::tampered(|run| {
        let BoxEvent::Decided { norm, .. } = run.decided(1) else { unreachable!() };
        *norm *= 1.01;
    });
    assert!(lied.contains("the server says norm"), "{lied}");
    let late = MadeUp::tampered(|run| {
        let push = run.scenario.push.as_mut().expect("a push");
        push.tau_max = Some(1);
    });
    assert!(late.contains("order 1: delay 2 above tau_max 1"), "{late}");
    let dropped = MadeUp::tampered(|run| run.updates[2].2.outcome = UpdateOutcome::Dropped);
    assert!(dropped.contains("no recorded update of rank 1"), "{dropped}");
}

#[test]
fn what_a_killed_server_left_is_judged_and_what_is_missing_is_named() {
    let mut run = made_up();
    let replica = [2, 3].map(|at| run.server[at].clone());
    // Killed before its last line was written: worker and replica know of a commit more.
    run.server.pop();
    let model = model_path(run.directory.path(), REPLICA);
    std::fs::write(model, model_bytes(&run.model)).unwrap();
    let proof = run.prove_what_is_there(Some(&replica));
    let [problem] = &proof.problems[..] else { panic!("{:?}", proof.problems) };
    assert!(problem.contains("the server left no model"), "{problem}");
    assert_eq!((proof.wrong_parameters, proof.replica_identical), (None, None));
    assert_eq!(proof.delays, [0, 1], "what it wrote is judged");
    // The lines that it wrote are still held against it.
    run.updates[1].2.committed_version = 1;
    let problems = run.prove_what_is_there(None).problems.join("\n");
    assert!(problems.contains("rank 0 was told that its update 0 is in version 1"), "{problems}");
}

#[test]
fn a_worker_that_was_killed_before_it_heard_is_believed() {
    let mut run = made_up();
    run.updates.retain(|(rank, ..)| *rank != 2);
    assert_eq!(run.prove(None).problems, Vec::<String>::new());
}

#[test]
fn a_replica_is_held_to_the_servers_decisions() {
    let run = made_up();
    let applied = |order: usize, t_ns| LogLine { t_ns, ..run.server[2 + order].clone() };
    let proof = run.prove(Some(&[applied(0, 7), applied(1, 11)]));
    assert_eq!(proof.problems, Vec::<String>::new());
    assert_eq!(proof.replica_identical, Some(true));
    let trainer = Trainer::new(0, 3, SEED, &run.scenario.job.trainer()).unwrap();
    let last = proof.divergence.last().expect("moments");
    assert!(last.distance.abs() < 1e-12, "both hold the same model at the end");
    let apart = proof.divergence.iter().map(|point| point.distance).fold(0.0, f64::max);
    assert!(apart > 0.0 && apart <= distance(trainer.parameters(), &run.model) + 1.0);
    let swapped = run.prove(Some(&[applied(1, 7), applied(0, 11)]));
    assert_eq!(swapped.replica_identical, Some(false), "{:?}", swapped.problems);
    let mut other = applied(1, 11);
    if let BoxEvent::Decided { momentum_norm, .. } = &mut other.event {
        *momentum_norm = 1.000_000_1;
    }
    let differs = run.prove(Some(&[applied(0, 7), other]));
    assert!(differs.problems.contains(&"replica: order 1 differs from the server's".to_owned()));
}
