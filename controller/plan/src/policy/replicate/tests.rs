use alloc::vec::Vec;

use proptest::prelude::*;
use weft_control::divergence_bound;

use super::divergence::{Lag, Model, Step, walk};
use crate::case::Case;
use crate::plan::check::check;
use crate::plan::{Group, Plan};
use crate::policy::Policy;
use crate::policy::mlfabric::Mlfabric;
use crate::sample::{Numbers, Shape};

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 5e-4
}

#[test]
fn bounds_a_lag_like_the_golden_table() {
    for (momentum, bounds) in [(0.9, [3.0, 6.7, 12.03, 20.827]), (0.0, [3.0, 4.0, 6.0, 10.0])] {
        let mut lag = Lag::new(momentum, 0.0);
        for (norm, bound) in [3.0, 1.0, 2.0, 4.0].into_iter().zip(bounds) {
            lag.push(norm);
            assert!(close(lag.bound(), bound), "momentum {momentum}: {} {bound}", lag.bound());
        }
    }
}

#[test]
fn walks_like_the_golden_table() {
    type Row = (f64, f64, [usize; 6], [f64; 6]);
    let rows: [Row; 3] = [
        (0.0, 4.0, [0, 0, 0, 1, 1, 1], [1.0, 2.0, 4.0, 4.0, 4.0, 4.0]),
        (0.5, 8.0, [0, 0, 0, 0, 2, 1], [1.0, 2.5, 5.25, 7.625, 7.3125, 7.65625]),
        (0.9, 40.0, [0; 6], [1.0, 2.9, 6.61, 10.949, 15.8541, 22.26869]),
    ];
    for (momentum, div_max, forced, bounds) in rows {
        let steps = walk(&[1.0, 1.0, 2.0, 1.0, 1.0, 2.0], momentum, 0.0, div_max);
        for (i, Step { forced: f, joint, divergence }) in steps.into_iter().enumerate() {
            assert_eq!((f, joint), (forced[i], false), "momentum {momentum}, commit {}", i + 1);
            assert!(close(divergence, bounds[i]), "momentum {momentum}: {divergence}");
        }
    }
}

/// Server u1, u2; replica u2, u1: they differ by momentum * (u1 - u2).
#[test]
fn order_matters_by_momentum_times_the_difference() {
    for momentum in [0.0, 0.5, 0.9] {
        let (u1, u2) = ([3.0, -1.0], [0.5, 2.0]);
        let (mut server, mut replica) = (Model::zeros(2), Model::zeros(2));
        for model in [&mut server, &mut replica] {
            model.apply(momentum, &[1.0, 1.0]);
        }
        server.apply(momentum, &u1);
        server.apply(momentum, &u2);
        replica.apply(momentum, &u2);
        replica.apply(momentum, &u1);
        let expected = momentum * f64::hypot(u1[0] - u2[0], u1[1] - u2[1]);
        assert!((server.distance(&replica) - expected).abs() < 1e-12);
    }
}

#[test]
fn a_bound_below_one_commit_makes_it_joint() {
    let steps = walk(&[1.0, 5.0, 1.0], 0.0, 0.0, 2.0);
    assert_eq!(steps.iter().map(|s| s.joint).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(steps[1].forced, 1);
    assert_eq!(steps[1].divergence, 0.0);
}

/// 10,000 random sequences of groups, played at a server and at a replica that applies what the
/// walk forces: the true distance stays under the bound, and the bound under `div_max`.
#[test]
fn ten_thousand_sequences_never_leave_the_bound() {
    let mut numbers = Numbers::new(7);
    let (mut joint, mut forced, mut deep) = (0, 0, 0);
    for _ in 0..10_000 {
        let momentum = [0.0, 0.5, 0.9, 0.99][numbers.index(4)];
        let len = 1 + numbers.index(4);
        let number = |numbers: &mut Numbers| numbers.within(0, 2_000_001) as f64 / 1e6 - 1.0;
        let groups: Vec<(Vec<f64>, f64)> = (0..1 + numbers.within(0, 20))
            .map(|_| {
                let mut sum = vec![0.0; len];
                let mut norms = 0.0;
                for _ in 0..1 + numbers.within(0, 4) {
                    let u: Vec<f64> = (0..len).map(|_| number(&mut numbers)).collect();
                    norms += u.iter().map(|x| x * x).sum::<f64>().sqrt();
                    sum.iter_mut().zip(&u).for_each(|(s, u)| *s += u);
                }
                (sum, norms)
            })
            .collect();
        let (mut server, mut replica) = (Model::zeros(len), Model::zeros(len));
        let start: Vec<f64> = (0..len).map(|_| number(&mut numbers)).collect();
        server.apply(momentum, &start);
        replica.apply(momentum, &start);
        let h_norm = start.iter().map(|x| x * x).sum::<f64>().sqrt();
        let norms: Vec<f64> = groups.iter().map(|g| g.1).collect();
        let div_max = 1.0 + numbers.within(0, 60) as f64;
        let mut behind = 0;
        for (i, step) in walk(&norms, momentum, h_norm, div_max).into_iter().enumerate() {
            for _ in 0..step.forced {
                replica.apply(momentum, &groups[behind].0);
                behind += 1;
            }
            server.apply(momentum, &groups[i].0);
            if step.joint {
                replica.apply(momentum, &groups[behind].0);
                behind += 1;
                assert_eq!(behind, i + 1);
            }
            let distance = server.distance(&replica);
            assert!(distance <= step.divergence + 1e-9, "{distance} > {}", step.divergence);
            assert!(step.divergence <= div_max);
            joint += usize::from(step.joint);
            forced += step.forced;
            deep = deep.max(i + 1 - behind);
        }
    }
    assert!(joint > 1_000 && forced > 10_000 && deep > 10, "{joint} {forced} {deep}");
}

fn planned(shape: Shape, seed: u64, div_max: f64) -> (Case, Plan) {
    let mut spec = shape.spec(seed);
    for server in &mut spec.servers {
        server.div_max = Some(div_max);
    }
    let case = Case::new(&spec).expect("a sample case");
    let plan = Mlfabric.plan(&case).expect("a plan");
    (case, plan)
}

/// The server's own check ([`divergence_bound`]) at the commits of a plan, each at `instant`: how
/// many of them it would hold until a copy is there. Copies arrive as planned; a joint commit
/// counts its own.
fn held_up(case: &Case, plan: &Plan, instant: impl Fn(&Group) -> u64) -> usize {
    let mut held = 0;
    for replica in &plan.replicas {
        let server = case.server(replica.server);
        let groups = plan.groups.iter().filter(|g| g.server == replica.server);
        let groups: Vec<_> = groups.zip(&replica.copies).collect();
        let norm = |group: &Group| group.members.iter().map(|id| case.update(*id).norm).sum();
        let mut last_ns = 0;
        for (at, (group, copy)) in groups.iter().enumerate() {
            last_ns = instant(group).max(last_ns);
            let applied = groups[..at].iter().take_while(|(_, copy)| {
                copy.hop.as_ref().is_some_and(|hop| hop.arrival_ns <= last_ns)
            });
            let applied = applied.count();
            if copy.joint {
                let own = copy.hop.as_ref().is_some_and(|hop| hop.arrival_ns <= last_ns);
                held += usize::from(applied < at || !own);
                continue;
            }
            let before = groups[..applied].iter().fold(server.h_norm, |h_norm, (group, _)| {
                let norm: f64 = norm(group);
                server.momentum * h_norm + norm
            });
            let missing = groups[applied..=at].iter().map(|(group, _)| norm(group));
            let bound = divergence_bound(server.momentum, before, missing);
            held += usize::from(bound > server.div_max.unwrap_or(f64::MAX) * (1.0 + 1e-9));
        }
    }
    held
}

/// What has arrived at the server, whatever the copies do.
fn arrival_ns(plan: &Plan, group: &Group) -> u64 {
    let forward = group.forward.as_ref().map(|hop| hop.arrival_ns);
    let direct = plan.transfers[group.members[0].index()].as_ref().map(|t| t.arrival_ns);
    forward.or(direct).unwrap_or(0)
}

/// A server that commits at the planned instants never waits for its replica; one that commits each
/// group as it arrives would, so the planned waits are what it takes.
#[test]
#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
fn a_server_that_follows_the_plan_never_waits_for_its_replica() {
    let mut numbers = Numbers::new(5);
    let (mut unplanned, mut forced) = (0, 0);
    for seed in 0..400 {
        let (workers, aggregators) = (1 + numbers.index(7) as u32, numbers.index(4) as u32);
        let shape = Shape {
            updates: 1 + numbers.index(60) as u32,
            hosts: workers + aggregators + 4,
            servers: 2,
            aggregators,
            reservations: 5,
            ..crate::sample::THOUSAND
        };
        let div_max = 2.0 + numbers.within(0, 60) as f64;
        let (case, plan) = planned(shape, seed, div_max);
        assert_eq!(held_up(&case, &plan, |group| group.commit_ns), 0, "seed {seed}");
        unplanned += held_up(&case, &plan, |group| arrival_ns(&plan, group));
        let copies = plan.replicas.iter().flat_map(|replica| &replica.copies);
        forced += copies.filter(|copy| copy.forced_before.is_some()).count();
    }
    assert!(unplanned > 500 && forced > 500, "{unplanned} {forced}");
}

/// What the replica must have applied at a commit: the bound, from the plan's instants alone.
fn replayed(case: &Case, plan: &Plan) -> Result<(), TestCaseError> {
    for replica in &plan.replicas {
        let server = case.server(replica.server);
        prop_assert!(replica.held);
        let groups: Vec<_> = plan.groups.iter().filter(|g| g.server == replica.server).collect();
        prop_assert_eq!(groups.len(), replica.copies.len());
        let (mut lag, mut applied) = (Lag::new(server.momentum, server.h_norm), 0);
        for (group, copy) in groups.iter().zip(&replica.copies) {
            prop_assert_eq!(&plan.groups[copy.group as usize], *group);
            let arrived = |copy: &crate::plan::Copy| {
                copy.hop.as_ref().is_some_and(|hop| hop.arrival_ns <= group.commit_ns)
            };
            while !lag.is_empty() && arrived(&replica.copies[applied]) {
                lag.pop();
                applied += 1;
            }
            lag.push(group.members.iter().map(|id| case.update(*id).norm).sum());
            if copy.joint {
                prop_assert!(arrived(copy) && lag.len() == 1);
                lag.pop();
                applied += 1;
            }
            prop_assert!(lag.bound() <= server.div_max.unwrap_or(f64::MAX) * (1.0 + 1e-9));
            prop_assert!(lag.bound() <= copy.divergence * (1.0 + 1e-9));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_planned_copies_hold_the_bound(
        updates in 1..60u32,
        workers in 1..8u32,
        aggregators in 0..4u32,
        div_max in 0.5..60.0f64,
        seed in any::<u64>(),
    ) {
        let shape = Shape {
            updates,
            hosts: workers + aggregators + 4,
            servers: 2,
            replicas: true,
            aggregators,
            reservations: 5,
            racks: 0,
            equal: false,
            deadlines: true,
        };
        let (case, plan) = planned(shape, seed, div_max);
        prop_assert_eq!(check(&case, &plan), Ok(()));
        replayed(&case, &plan)?;
    }
}
