use alloc::boxed::Box;

use weft_plan::sample::Numbers;

use super::*;
use crate::place::{Options, Placer, by_name};

fn job(model: &str, gpus: u32) -> Job {
    Job {
        name: "j".into(),
        gpus,
        submit_ns: 0,
        duration_ns: 100 * NS_PER_S,
        model: model.into(),
        iterations: 100,
        global_batch: 0,
    }
}

/// Two racks of four nodes with two GPUs each; 1 GB/s, and 1 GB/s between racks.
fn cluster() -> Cluster {
    Cluster { switches: 2, nodes_per_switch: 4, gpus_per_node: 2, ..Cluster::of_nodes(0, 0) }
}

fn network() -> Network {
    Network {
        node_bytes_per_sec: 1_000_000_000,
        rack_bytes_per_sec: 1_000_000_000,
        slots: 512,
        slots_per_job: 512,
    }
}

fn on(nodes: &[u32]) -> Vec<Share> {
    nodes.iter().map(|node| Share { node: *node, gpus: 1 }).collect()
}

fn near(speed: f64, step_s: f64) {
    assert!((1.0 / speed - step_s).abs() < 1e-6, "a step takes {} s, not {step_s}", 1.0 / speed);
}

#[test]
fn a_step_takes_its_transfers_at_the_rate_that_all_at_once_leave() {
    let mut traffic = Traffic::new(network(), &cluster());
    let [a, b, c, d] = [0, 1, 2, 3].map(JobId);
    traffic.enter(a, &job("", 1), 1, &on(&[0]));
    assert_eq!(traffic.speeds()[&a], 1.0, "one node needs no network");
    // With slots: 100 MB at 1 GB/s.
    traffic.enter(b, &job("", 3), 3, &on(&[0, 1, 2]));
    near(traffic.speeds()[&b], 1.1);
    assert_eq!(traffic.slots_left(0), 0);
    // Without: two thirds twice, and nodes 1 and 2 have two jobs each.
    traffic.enter(c, &job("", 3), 3, &on(&[1, 2, 3]));
    near(traffic.speeds()[&b], 1.2);
    near(traffic.speeds()[&c], 1.0 + 2.0 * 0.4 / 3.0);
    traffic.leave(b);
    near(traffic.speeds()[&c], 1.0 + 0.4 / 3.0);
    assert_eq!(traffic.slots_left(0), 512);
    // Two nodes in each rack: each sends 100 MB once, and so does each rack's sum.
    traffic.enter(d, &job("", 4), 4, &on(&[0, 3, 4, 5]));
    near(traffic.speeds()[&d], 1.2);
    assert_eq!((traffic.slots_left(0), traffic.slots_left(1)), (0, 0));
    assert!((traffic.done() - (1.0 + 3.0 / (1.0 + 0.8 / 3.0) + 4.0 / 1.2)).abs() < 1e-6);
}

#[test]
fn speeds_are_told_when_they_change_and_only_then() {
    let mut speeds = ByNetwork::new(Arc::new(crate::policy::AsAsked), network(), &cluster());
    let mut told = Vec::new();
    speeds.started(JobId(0), &job("", 2), 2, &on(&[0, 1]), &mut |id, _| told.push(id.0));
    speeds.started(JobId(1), &job("", 2), 2, &on(&[2, 3]), &mut |id, _| told.push(id.0));
    speeds.started(JobId(2), &job("", 2), 2, &on(&[3, 4]), &mut |id, _| told.push(id.0));
    assert_eq!(told, [0, 1, 1, 2], "the third shares node 3 with the second");
    told.clear();
    speeds.stopped(JobId(2), &mut |id, _| told.push(id.0));
    assert_eq!(told, [1]);
}

fn placer(name: &str) -> Box<dyn Placer> {
    let options = Options { network: Some(network()), ..Options::default() };
    (by_name(name).unwrap().placer)(&cluster(), &options)
}

#[test]
fn a_job_stays_under_the_switch_that_has_slots() {
    for name in ["slot-aware", "network"] {
        let mut placer = placer(name);
        let of_rack = |shares: &[Share]| {
            let racks: Vec<u32> = shares.iter().map(|share| share.node / 4).collect();
            racks
        };
        let first = placer.place(JobId(0), &job("", 3), 3).unwrap();
        let second = placer.place(JobId(1), &job("", 3), 3).unwrap();
        let [first, second] = [of_rack(&first), of_rack(&second)];
        assert!(first.iter().all(|rack| *rack == first[0]), "{name}: {first:?}");
        assert!(second.iter().all(|rack| *rack == second[0]), "{name}: {second:?}");
        // Beside each other the jobs would be equally fast, but one rack has slots for one only.
        if name == "slot-aware" {
            assert_ne!(first[0], second[0], "the first has all slots of its switch");
        }
    }
}

#[test]
fn sight_gets_more_done_than_packing() {
    let mut better = 0;
    for seed in 0..20 {
        let done = ["consolidate", "network"].map(|name| churn(name, seed));
        better += i32::from(done[1] > done[0]) - i32::from(done[1] < done[0]);
    }
    assert!(better > 12, "in 20 cases more often better than worse, by {better}");
}

/// What jobs that come and go get done, the same ones wherever they are put.
fn churn(name: &str, seed: u64) -> f64 {
    let mut numbers = Numbers::new(seed);
    let mut placer = placer(name);
    let mut traffic = Traffic::new(network(), &cluster());
    let mut placed: Vec<(JobId, Job, Vec<Share>)> = Vec::new();
    let mut done = 0.0;
    for id in (0..200).map(JobId) {
        let width = u32::try_from(numbers.within(1, 5)).unwrap();
        let job = job(["vgg16", "resnet50", ""][numbers.index(3)], width);
        let in_use: u32 = placed.iter().map(|(_, job, _)| job.gpus).sum();
        if in_use + width > 16 {
            let (id, job, shares) = placed.swap_remove(numbers.index(placed.len()));
            placer.release(id, &job, job.gpus, &shares);
            traffic.leave(id);
        } else {
            let shares = placer.place(id, &job, width).expect("there is room");
            traffic.enter(id, &job, width, &shares);
            placed.push((id, job, shares));
        }
        done += traffic.done();
    }
    done
}

#[test]
fn whatever_is_taken_is_given_back() {
    for name in ["slot-aware", "network"] {
        let mut numbers = Numbers::new(3);
        let mut placer = placer(name);
        let mut placed: Vec<(JobId, Job, Vec<Share>)> = Vec::new();
        for step in 0..400 {
            if numbers.within(0, 2) == 0 && !placed.is_empty() {
                let (id, job, shares) = placed.swap_remove(numbers.index(placed.len()));
                placer.release(id, &job, job.gpus, &shares);
                continue;
            }
            let width = u32::try_from(numbers.within(1, 9)).unwrap();
            let job = job("vgg16", width);
            if let Some(shares) = placer.place(JobId(step), &job, width) {
                assert_eq!(shares.iter().map(|share| share.gpus).sum::<u32>(), width);
                placed.push((JobId(step), job, shares));
            }
            let mut in_use = [0; 8];
            for share in placed.iter().flat_map(|(_, _, shares)| shares) {
                in_use[share.node as usize] += share.gpus;
            }
            assert!(in_use.iter().all(|gpus| *gpus <= 2), "{in_use:?}");
        }
        for (id, job, shares) in placed {
            placer.release(id, &job, job.gpus, &shares);
        }
        let all = placer.place(JobId(999), &job("", 16), 16).unwrap();
        assert_eq!(all.iter().map(|share| share.gpus).sum::<u32>(), 16);
    }
}
