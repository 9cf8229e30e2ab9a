use super::*;
use crate::cluster::Cluster;
use crate::job::{Job, JobId};
use crate::policy::Change;

fn arrive(scheduler: &mut dyn Scheduler, now_ns: u64, id: u32, gpus: u32, duration_ns: u64) {
    let job = Job {
        name: "".into(),
        gpus,
        submit_ns: now_ns,
        duration_ns,
        model: "".into(),
        iterations: 0,
        global_batch: 0,
    };
    scheduler.handle(now_ns, Delta::Arrived { id: JobId(id), job: &job }).unwrap();
}

fn changes(scheduler: &mut dyn Scheduler, now_ns: u64) -> Vec<(u32, u32)> {
    let mut decision = Decision::default();
    scheduler.poll(now_ns, &mut decision).unwrap();
    decision.changes.iter().map(|Change { id, gpus }| (id.0, *gpus)).collect()
}

fn scheduler(policy: &BySize) -> Box<dyn Scheduler> {
    policy.plan(&Setting::new(Cluster::of_nodes(1, 4))).unwrap()
}

/// A job of 4 GPUs x 100 ran 80: 80 GPU-ns are left, so one of 90 has to wait and one of 70 not.
#[test]
fn what_is_left_of_a_running_job_falls() {
    let mut srsf = scheduler(&BySize::SERVICE);
    arrive(&mut *srsf, 0, 0, 4, 100);
    assert_eq!(changes(&mut *srsf, 0), [(0, 4)]);
    arrive(&mut *srsf, 80, 1, 1, 90);
    assert_eq!(changes(&mut *srsf, 80), []);
    arrive(&mut *srsf, 80, 2, 1, 70);
    assert_eq!(changes(&mut *srsf, 80), [(0, 0), (2, 1), (1, 1)]);
}

#[test]
fn time_alone_counts_for_srtf_and_gpus_alone_for_sjf() {
    for (policy, expected) in [
        // 30 ns of 4 GPUs are shorter than 40 ns of one.
        (BySize::TIME, &[(0, 4)][..]),
        (BySize::NARROWEST, &[(1, 1)]),
        (BySize::SERVICE, &[(1, 1)]),
    ] {
        let mut scheduler = scheduler(&policy);
        arrive(&mut *scheduler, 0, 0, 4, 30);
        arrive(&mut *scheduler, 0, 1, 1, 40);
        assert_eq!(changes(&mut *scheduler, 0), expected, "{}", policy.name);
    }
}
