use alloc::vec::Vec;

use super::*;
use crate::cluster::Cluster;
use crate::job::Job;
use crate::policy::{Change, Knobs};

/// Who runs after each poll, one a second; all came at 0 with these widths.
fn runs(policy: &Sliced, quantum_s: u64, widths: &[u32], seconds: u64) -> Vec<Vec<u32>> {
    let knobs = Knobs { quantum_ns: quantum_s * NS_PER_S, ..Knobs::default() };
    let setting = Setting { knobs, ..Setting::new(Cluster::of_nodes(1, 2)) };
    let mut scheduler = policy.plan(&setting).unwrap();
    for (id, gpus) in (0..).zip(widths) {
        let job = Job {
            name: "".into(),
            gpus: *gpus,
            submit_ns: 0,
            duration_ns: 1,
            model: "".into(),
            iterations: 0,
            global_batch: 0,
        };
        scheduler.handle(0, Delta::Arrived { id: JobId(id), job: &job }).unwrap();
    }
    let mut running: Vec<u32> = Vec::new();
    let mut history = Vec::new();
    for now_s in 0..seconds {
        let mut decision = Decision::default();
        scheduler.poll(now_s * NS_PER_S, &mut decision).unwrap();
        for Change { id, gpus } in decision.changes {
            match gpus {
                0 => running.retain(|other| *other != id.0),
                _ => running.push(id.0),
            }
        }
        running.sort_unstable();
        history.push(running.clone());
    }
    history
}

#[test]
fn least_served_first_goes_by_arrival_where_services_are_equal() {
    let first = |runs: Vec<Vec<u32>>| runs.iter().map(|ids| ids[0]).collect::<Vec<_>>();
    assert_eq!(first(runs(&Sliced::LEAST_SERVED, 1, &[2, 2], 6)), [0, 1, 0, 1, 0, 1]);
    // A choice holds for its quantum.
    assert_eq!(first(runs(&Sliced::LEAST_SERVED, 2, &[2, 2], 6)), [0, 0, 1, 1, 0, 0]);
    // One GPU is served half as fast, so it has twice the time.
    assert_eq!(first(runs(&Sliced::LEAST_SERVED, 1, &[2, 1], 6)), [0, 1, 1, 0, 1, 1]);
}

#[test]
fn turns_give_everyone_the_same_time_whatever_the_width() {
    let runs = runs(&Sliced::TURNS, 1, &[2, 1, 1, 2], 9);
    assert_eq!(runs[..3], [vec![0], vec![1, 2], vec![3]]);
    for id in 0..4 {
        assert_eq!(runs.iter().filter(|ids| ids.contains(&id)).count(), 3, "{id}");
    }
}
