use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::*;
use crate::policy::order::order;
use crate::spec::{CaseSpec, HostSpec, ServerSpec, UpdateSpec};

const SECOND_NS: u64 = 1_000_000_000;

/// `n` fresh updates of one unit from `n` workers over unit links, and `k` aggregators.
fn unit_case(n: usize, k: usize, objective: Objective) -> Case {
    let mut spec = CaseSpec { schema: 1, ..CaseSpec::default() };
    let host = HostSpec { up_bytes_per_sec: 10, down_bytes_per_sec: 10, rack: None };
    spec.hosts.insert("s".to_owned(), host.clone());
    for i in 0..k {
        spec.hosts.insert(format!("a{i}"), host.clone());
        spec.aggregators.push(format!("a{i}"));
    }
    let (name, host_name) = ("s".to_owned(), "s".to_owned());
    let tau_max = Some(1_000);
    spec.servers.push(ServerSpec { name, host: host_name, tau_max, ..ServerSpec::default() });
    for i in 0..n {
        spec.hosts.insert(format!("w{i:02}"), host.clone());
        spec.updates.push(UpdateSpec {
            id: format!("u{i:02}"),
            server: "s".to_owned(),
            host: format!("w{i:02}"),
            size_bytes: 10,
            ..UpdateSpec::default()
        });
    }
    spec.options.objective = objective;
    Case::new(&spec).expect("a unit case")
}

fn planned(case: &Case) -> (Ordered, Aggregated) {
    let mut ledger = Ledger::new(case);
    let ordered = order(case, &mut ledger);
    let aggregated = aggregate(case, &mut ledger, &ordered);
    (ordered, aggregated)
}

/// "d d 2 3": d for direct, a number for a group.
fn cut_of(aggregated: &Aggregated) -> String {
    let groups = aggregated.groups[0].iter();
    let words = groups.map(|g| match g.via {
        None => "d".to_owned(),
        Some(_) => g.members.len().to_string(),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn mean_s(aggregated: &Aggregated) -> f64 {
    let commits: Vec<u64> = aggregated.transfers.iter().flatten().map(|t| t.commit_ns).collect();
    commits.iter().sum::<u64>() as f64 / commits.len() as f64 / SECOND_NS as f64
}

fn last_s(aggregated: &Aggregated) -> f64 {
    let commits = aggregated.transfers.iter().flatten().map(|t| t.commit_ns);
    commits.max().unwrap_or(0) as f64 / SECOND_NS as f64
}

#[test]
fn cuts_like_the_golden_table() {
    /// N, K; direct: mean, last; for the mean: cut, mean; for the last commit: cut, last.
    type Row = (usize, usize, f64, f64, &'static str, f64, &'static str, f64);
    let rows: [Row; 6] = [
        (4, 1, 2.5, 4.0, "d d 2", 2.25, "d d 2", 3.0),
        (6, 1, 3.5, 6.0, "d d 2 d d", 3.0, "d d d 3", 4.0),
        (7, 2, 4.0, 7.0, "d d 2 3", 3.0, "d d 2 3", 4.0),
        (12, 2, 6.5, 12.0, "d d 2 3 2 2 d", 4.167, "d d d 3 4 2", 6.0),
        (16, 3, 8.5, 16.0, "d d 2 3 4 3 2", 4.562, "d d 2 3 4 3 2", 7.0),
        (30, 3, 15.5, 30.0, "d d d 3 4 5 3 3 3 3 3", 6.767, "d d d d d d 6 7 8 3", 10.0),
    ];
    for (n, k, direct_mean, direct_last, mean_cut, mean, last_cut, last) in rows {
        let (ordered, by_mean) = planned(&unit_case(n, k, Objective::Mean));
        let commits: Vec<u64> = ordered.transfers.iter().flatten().map(|t| t.commit_ns).collect();
        let sum: u64 = commits.iter().sum();
        assert_eq!(sum as f64 / n as f64 / SECOND_NS as f64, direct_mean, "N {n}, K {k}");
        assert_eq!(*commits.iter().max().unwrap() as f64 / SECOND_NS as f64, direct_last);
        assert_eq!(cut_of(&by_mean), mean_cut, "N {n}, K {k}");
        assert!((mean_s(&by_mean) - mean).abs() < 6e-4, "N {n}: {}", mean_s(&by_mean));
        let (_, by_last) = planned(&unit_case(n, k, Objective::Last));
        assert_eq!(cut_of(&by_last), last_cut, "N {n}, K {k}");
        assert_eq!(last_s(&by_last), last, "N {n}, K {k}");
    }
}

/// x direct updates plus K aggregators used once each move x(K+1) + K(K-1)/2 updates in x + K.
#[test]
fn meets_the_closed_form_for_the_last_commit() {
    for k in 1..=4 {
        for x in 2..=6 {
            let n = x * (k + 1) + k * (k - 1) / 2;
            let (_, aggregated) = planned(&unit_case(n, k, Objective::Last));
            assert!(last_s(&aggregated) <= (x + k) as f64, "x {x}, K {k}, N {n}");
            let once = aggregated.groups[0].iter().filter(|g| g.via.is_some()).count() == k;
            if once && aggregated.groups[0].len() == x + k {
                let sizes: Vec<usize> =
                    aggregated.groups[0][x..].iter().map(|g| g.members.len()).collect();
                let expected: Vec<usize> = (1..=k).map(|i| x + i - 1).collect();
                assert_eq!(sizes, expected, "x {x}, K {k}");
            }
        }
    }
}

#[test]
fn never_waits_for_an_aggregator() {
    for (n, k) in [(12, 2), (30, 3), (50, 5)] {
        for objective in [Objective::Mean, Objective::Last] {
            let (_, aggregated) = planned(&unit_case(n, k, objective));
            let mut done_ns = 0;
            for group in &aggregated.groups[0] {
                if let Some(forward) = &group.forward {
                    assert!(forward.ready_ns <= done_ns, "N {n}, K {k}");
                }
                done_ns = group.commit_ns;
            }
        }
    }
}

#[test]
fn a_long_sequence_is_cut_about_as_well_by_the_coarse_search() {
    for (n, k) in [(80, 3), (150, 8)] {
        for objective in [Objective::Mean, Objective::Last] {
            let mut case = unit_case(n, k, objective);
            let cost = |case: &Case| match objective {
                Objective::Mean => mean_s(&planned(case).1),
                Objective::Last => last_s(&planned(case).1),
            };
            case.options.direct_search = 1_000;
            let fine = cost(&case);
            case.options.direct_search = 1;
            let coarse = cost(&case);
            assert!(coarse <= fine * 1.05, "N {n}, K {k}: {coarse} against {fine}");
        }
    }
}
