use proptest::prelude::*;
use weft_plan::sample::Numbers;

use super::*;
use crate::cluster::Cluster;
use crate::model::speed::{Curve, Speed};
use crate::policy::{AsAsked, BUILT_IN};

const S: u64 = NS_PER_S;

fn job(gpus: u32, duration_s: u64) -> Job {
    Job {
        name: "0".into(),
        gpus,
        submit_ns: 0,
        duration_ns: duration_s * S,
        model: "".into(),
        iterations: 0,
        global_batch: 0,
    }
}

/// As fast as they are wide, up to a width.
#[derive(Debug)]
struct Linear(u32);

impl Widths for Linear {
    fn speedup(&self, job: &Job, gpus: u32) -> f64 {
        if gpus <= self.0 { f64::from(gpus) / f64::from(job.gpus) } else { 0.0 }
    }

    fn gpus_max(&self, _: &Job) -> u32 {
        self.0
    }
}

fn at_work(name: &str, gpus: u32, widths: Arc<dyn Widths>) -> Box<dyn Scheduler> {
    let mut setting = Setting::new(Cluster::of_nodes(1, gpus));
    setting.widths = widths;
    setting.knobs.restart_ns = 10 * S;
    BUILT_IN.find(name).expect("a policy").plan(&setting).expect("a scheduler")
}

fn arrive(scheduler: &mut dyn Scheduler, now_s: u64, id: u32, job: &Job) {
    scheduler.handle(now_s * S, Delta::Arrived { id: JobId(id), job }).expect("taken in");
}

fn end(scheduler: &mut dyn Scheduler, now_s: u64, id: u32) {
    scheduler.handle(now_s * S, Delta::Ended { id: JobId(id) }).expect("taken in");
}

/// What changes, as (job, width), and when it wants to be asked again, in seconds.
fn poll(scheduler: &mut dyn Scheduler, now_s: u64) -> (Vec<(u32, u32)>, Option<u64>) {
    let mut decision = Decision::default();
    scheduler.poll(now_s * S, &mut decision).expect("a decision");
    let changes = decision.changes.iter().map(|change| (change.id.0, change.gpus)).collect();
    (changes, decision.again_at_ns.map(|again_ns| again_ns / S))
}

#[test]
fn widths_follow_those_who_come_and_go() {
    let mut doubling = at_work("doubling", 8, Arc::new(Linear(8)));
    arrive(&mut *doubling, 0, 0, &job(1, 800));
    assert_eq!(poll(&mut *doubling, 0), (vec![(0, 8)], None));
    arrive(&mut *doubling, 1, 1, &job(1, 800));
    assert_eq!(poll(&mut *doubling, 1).0, [(0, 4), (1, 4)]);
    assert_eq!(poll(&mut *doubling, 2).0, [], "nothing happened");
    end(&mut *doubling, 3, 1);
    assert_eq!(poll(&mut *doubling, 3).0, [(0, 8)]);
}

/// 100 s of work at width 1. After 60 s it has 40 left; the other has 45.
#[test]
fn what_is_left_counts_and_not_what_there_was() {
    let mut doubling = at_work("doubling", 3, Arc::new(Linear(2)));
    arrive(&mut *doubling, 0, 0, &job(1, 100));
    arrive(&mut *doubling, 0, 1, &job(1, 1_000));
    arrive(&mut *doubling, 0, 2, &job(1, 1_000));
    assert_eq!(poll(&mut *doubling, 0).0, [(0, 1), (1, 1), (2, 1)]);
    end(&mut *doubling, 60, 1);
    end(&mut *doubling, 60, 2);
    arrive(&mut *doubling, 60, 3, &job(1, 45));
    assert_eq!(poll(&mut *doubling, 60).0, [(3, 2)]);
}

#[test]
fn a_job_does_not_work_while_it_starts_again() {
    let known = |restart_s: u64| {
        let mut setting = Setting::new(Cluster::of_nodes(1, 8));
        setting.widths = Arc::new(Linear(8));
        setting.knobs.restart_ns = restart_s * S;
        let mut elastic = Elastic::new(&setting, Rule::Grow(Growth::Doubling));
        arrive(&mut elastic, 0, 0, &job(1, 1_000));
        poll(&mut elastic, 0);
        arrive(&mut elastic, 10, 1, &job(1, 1_000));
        poll(&mut elastic, 10);
        // 80 s of work at 8 GPUs, then 4 GPUs from the restart's end on.
        elastic.known(JobId(0)).remaining_at(50 * S) / S as f64
    };
    assert!((known(0) - (1_000.0 - 80.0 - 160.0)).abs() < 1e-6);
    assert!((known(10) - (1_000.0 - 80.0 - 120.0)).abs() < 1e-6);
}

/// Words of the driver replace what was reckoned.
#[test]
fn what_the_driver_says_is_left_counts() {
    let setting = Setting { widths: Arc::new(Linear(8)), ..Setting::new(Cluster::of_nodes(1, 8)) };
    let mut elastic = Elastic::new(&setting, Rule::Grow(Growth::Doubling));
    arrive(&mut elastic, 0, 0, &job(1, 1_000));
    poll(&mut elastic, 0);
    let served = Delta::Served { id: JobId(0), executed_ns: 0, gpu_ns: 0, remaining_ns: 900 * S };
    elastic.handle(20 * S, served).expect("taken in");
    assert!((elastic.known(JobId(0)).remaining_at(30 * S) / S as f64 - 820.0).abs() < 1e-6);
}

#[test]
fn fixed_widths_queue_in_order_of_arrival() {
    let mut fixed = at_work("fixed-4", 8, Arc::new(Linear(8)));
    for id in 0..3 {
        arrive(&mut *fixed, 0, id, &job(1, 100));
    }
    assert_eq!(poll(&mut *fixed, 0).0, [(0, 4), (1, 4)]);
    end(&mut *fixed, 5, 0);
    assert_eq!(poll(&mut *fixed, 5).0, [(2, 4)]);
    for (name, known) in
        [("fixed-0", false), ("fixed-", false), ("fixed-x", false), ("fixed-3", true)]
    {
        assert_eq!(BUILT_IN.find(name).is_ok(), known, "{name}");
    }
}

/// 6 of 8 GPUs are taken; the second needs 4, and the third, which would fit, came later.
#[test]
fn nobody_overtakes_under_a_fixed_width() {
    let mut fixed = at_work("fixed-8", 8, Arc::new(AsAsked));
    for (id, gpus) in [(0, 6), (1, 4), (2, 2)] {
        arrive(&mut *fixed, 0, id, &job(gpus, 100));
    }
    assert_eq!(poll(&mut *fixed, 0).0, [(0, 6)]);
}

#[test]
fn a_job_that_cannot_run_so_wide_gets_what_it_can_use() {
    let mut fixed = at_work("fixed-8", 8, Arc::new(Linear(2)));
    arrive(&mut *fixed, 0, 0, &job(1, 100));
    assert_eq!(poll(&mut *fixed, 0).0, [(0, 2)]);
}

/// Jobs that run as they asked and no other way, under every elastic policy.
#[test]
fn a_rigid_job_gets_what_it_asked_for_or_nothing() {
    for name in ["doubling", "doubling-explore", "optimus", "fixed-2"] {
        let mut scheduler = at_work(name, 8, Arc::new(AsAsked));
        arrive(&mut *scheduler, 0, 0, &job(6, 100));
        arrive(&mut *scheduler, 0, 1, &job(4, 100));
        assert_eq!(poll(&mut *scheduler, 0).0, [(0, 6)], "{name}");
        end(&mut *scheduler, 9, 0);
        assert_eq!(poll(&mut *scheduler, 9).0, [(1, 4)], "{name}");
    }
}

/// Twice as wide is twice as fast at 1, 2 and 4; 8 are as fast as 4, and so is all beyond.
#[test]
fn an_exploring_job_tries_four_widths_and_keeps_eight_gpus() {
    #[derive(Debug)]
    struct UpToFour;
    impl Widths for UpToFour {
        fn speedup(&self, _: &Job, gpus: u32) -> f64 {
            Curve::new([(1, 1.0), (2, 2.0), (4, 4.0), (16, 4.0)]).iterations_per_s(gpus)
        }

        fn gpus_max(&self, _: &Job) -> u32 {
            4
        }
    }
    let mut explore = at_work("doubling-explore", 16, Arc::new(UpToFour));
    for id in 0..3 {
        arrive(&mut *explore, 0, id, &job(1, 100_000));
    }
    assert_eq!(poll(&mut *explore, 0), (vec![(0, 1), (1, 1)], Some(150)), "16 GPUs keep two");
    assert_eq!(poll(&mut *explore, 150), (vec![(0, 2), (1, 2)], Some(300)));
    assert_eq!(poll(&mut *explore, 300), (vec![(0, 4), (1, 4)], Some(450)));
    assert_eq!(poll(&mut *explore, 450), (vec![(0, 8), (1, 8)], Some(600)));
    // The third begins, the first two share what it leaves; 8 GPUs were no faster than 4.
    assert_eq!(poll(&mut *explore, 600), (vec![(0, 4), (1, 4), (2, 1)], Some(750)));
}

#[test]
fn a_job_without_a_place_waits_until_another_ends() {
    let mut doubling = at_work("doubling", 8, Arc::new(Linear(4)));
    arrive(&mut *doubling, 0, 0, &job(1, 100));
    arrive(&mut *doubling, 0, 1, &job(1, 100));
    assert_eq!(poll(&mut *doubling, 0).0, [(0, 4), (1, 4)]);
    doubling.handle(0, Delta::Unplaced { id: JobId(1) }).expect("taken in");
    assert_eq!(poll(&mut *doubling, 0).0, []);
    end(&mut *doubling, 5, 0);
    assert_eq!(poll(&mut *doubling, 5).0, [(1, 4)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whoever comes and goes, no more GPUs are given than there are, and no job is named that is
    /// gone; GPUs that an exploring job keeps are not another's.
    #[test]
    fn no_gpu_is_given_twice(seed in any::<u64>(), policy in 0..4_usize) {
        let name = ["doubling", "doubling-explore", "optimus", "fixed-3"][policy];
        let mut numbers = Numbers::new(seed);
        let mut scheduler = at_work(name, 16, Arc::new(Linear(12)));
        let mut widths = [None; 12];
        let mut now_s = 0;
        for _ in 0..60 {
            now_s += numbers.within(0, 200);
            let id = numbers.index(widths.len());
            let number = u32::try_from(id).expect("small");
            if widths[id].take().is_some() {
                end(&mut *scheduler, now_s, number);
            } else {
                widths[id] = Some(0);
                arrive(&mut *scheduler, now_s, number, &job(1, numbers.within(1, 10_000)));
            }
            let (changes, again_s) = poll(&mut *scheduler, now_s);
            for (id, gpus) in changes {
                let width = widths[id as usize].as_mut().expect("a job that is there");
                prop_assert_ne!(*width, gpus, "a change changes");
                *width = gpus;
            }
            prop_assert!(widths.iter().flatten().sum::<u32>() <= 16);
            prop_assert!(again_s.is_none_or(|again_s| again_s > now_s));
        }
    }
}
