use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use weft_plan::sample::Numbers;

use super::*;
use crate::cluster::Cluster;
use crate::job::Job;
use crate::policy::{Change, Knobs};

/// A scheduler, and the jobs that it lets run. Times are in seconds.
struct Rig {
    queues: Queues,
    running: BTreeMap<JobId, u32>,
    decision: Decision,
    promoted: Vec<JobId>,
}

impl Rig {
    fn new(policy: &AttainedService, gpus: u32, knobs: Knobs) -> Self {
        let setting = Setting { knobs, ..Setting::new(Cluster::of_nodes(1, gpus)) };
        let queues = policy.queues(&setting);
        let (running, promoted) = (BTreeMap::new(), Vec::new());
        Self { queues, running, decision: Decision::default(), promoted }
    }

    fn arrive(&mut self, now_s: u64, id: u32, gpus: u32) {
        let job = Job {
            name: "".into(),
            gpus,
            submit_ns: now_s * NS_PER_S,
            duration_ns: 1,
            model: "".into(),
            iterations: 0,
            global_batch: 0,
        };
        let delta = Delta::Arrived { id: JobId(id), job: &job };
        self.queues.handle(now_s * NS_PER_S, delta).unwrap();
    }

    fn end(&mut self, now_s: u64, id: u32) {
        self.running.remove(&JobId(id));
        self.queues.handle(now_s * NS_PER_S, Delta::Ended { id: JobId(id) }).unwrap();
    }

    /// Until it wants no more at that time.
    fn poll(&mut self, now_s: u64) -> Vec<(u32, u32)> {
        let mut all = Vec::new();
        loop {
            self.decision.clear();
            self.queues.poll(now_s * NS_PER_S, &mut self.decision).unwrap();
            for Change { id, gpus } in &self.decision.changes {
                match gpus {
                    0 => drop(self.running.remove(id).expect("it ran")),
                    _ => assert_eq!(self.running.insert(*id, *gpus), None, "it did not run"),
                }
                all.push((id.0, *gpus));
            }
            self.promoted.extend(&self.decision.promoted);
            if self.decision.again_at_ns.is_none_or(|again_ns| again_ns > now_s * NS_PER_S) {
                return all;
            }
        }
    }

    fn again_s(&self) -> Option<u64> {
        self.decision.again_at_ns.map(|again_ns| again_ns.div_ceil(NS_PER_S))
    }
}

fn limits(limits_s: &[u64]) -> Knobs {
    let queue_limits_ns = limits_s.iter().map(|limit_s| limit_s * NS_PER_S).collect();
    Knobs { queue_limits_ns, ..Knobs::default() }
}

#[test]
fn a_job_goes_down_when_its_service_reaches_the_limit_and_then_gives_way() {
    let mut rig = Rig::new(&AttainedService::GPU_TIME, 4, limits(&[100]));
    rig.arrive(0, 0, 4);
    assert_eq!(rig.poll(0), [(0, 4)]);
    // 100 GPU-seconds on 4 GPUs are 25 s.
    assert_eq!(rig.again_s(), Some(25));
    rig.arrive(10, 1, 4);
    assert_eq!(rig.poll(10), [], "peers of one queue do not stop each other");
    assert_eq!(rig.poll(25), [(0, 0), (1, 4)]);
    rig.end(30, 1);
    assert_eq!(rig.poll(30), [(0, 4)]);
    assert_eq!(rig.again_s(), None, "the last queue has no limit");
}

#[test]
fn dlas_counts_time_and_not_gpus() {
    let mut rig = Rig::new(&AttainedService::TIME, 4, limits(&[100]));
    rig.arrive(0, 0, 4);
    rig.poll(0);
    assert_eq!(rig.again_s(), Some(100));
}

#[test]
fn inside_a_queue_the_order_is_that_of_first_starts() {
    let mut rig = Rig::new(&AttainedService::GPU_TIME, 2, limits(&[10]));
    // 0 starts first, then 1; both go down; 2 takes both GPUs.
    rig.arrive(0, 0, 2);
    rig.poll(0);
    rig.arrive(1, 1, 2);
    assert_eq!(rig.poll(5), [(0, 0), (1, 2)]);
    assert_eq!(rig.poll(10), [], "a running job of one queue stays");
    rig.arrive(11, 2, 2);
    assert_eq!(rig.poll(11), [(1, 0), (2, 2)]);
    rig.end(12, 2);
    assert_eq!(rig.poll(12), [(0, 2)], "0 started before 1");
    rig.arrive(13, 3, 2);
    assert_eq!(rig.poll(13), [(0, 0), (3, 2)]);
    rig.end(14, 3);
    assert_eq!(rig.poll(14), [(0, 2)], "its first start counts, and not its last");
}

/// A waits since 5 s after 5 s of running; with a knob of 3 it is back after 15 s more.
#[test]
fn a_job_that_waited_long_goes_back_to_the_first_queue_with_both_clocks_at_0() {
    let knobs = Knobs { promote_knob: Some(3.0), ..limits(&[10]) };
    let mut rig = Rig::new(&AttainedService::GPU_TIME, 2, knobs);
    rig.arrive(0, 0, 2);
    rig.poll(0);
    for second in 1..20 {
        // A stream of short jobs keeps it off.
        rig.arrive(5, second, 2);
    }
    assert_eq!(rig.poll(5), [(0, 0), (1, 2)]);
    let mut runs = 1;
    for now_s in 6..20 {
        rig.end(now_s, runs);
        runs += 1;
        assert_eq!(rig.poll(now_s), [(runs, 2)]);
        assert_eq!(rig.promoted, []);
    }
    rig.poll(20);
    assert_eq!(rig.promoted, [JobId(0)]);
    let entry = rig.queues.jobs[0];
    assert_eq!((entry.queue, entry.ran_ns(20 * NS_PER_S), entry.waited_ns), (0, 0, 0));
    // It is the last of the first queue, and once there waits for its turn without a limit.
    rig.end(21, runs);
    assert_eq!(rig.poll(21), [(runs + 1, 2)]);
}

/// It waits from 5 to 8 s and from 9 s on, so that 8 s of waiting are over at 14 s.
#[test]
fn waiting_before_a_promotion_counts_for_no_other() {
    let knobs = Knobs { starvation_limit_ns: Some(8 * NS_PER_S), ..limits(&[10]) };
    let mut rig = Rig::new(&AttainedService::GPU_TIME, 2, knobs);
    rig.arrive(0, 0, 2);
    rig.poll(0);
    rig.arrive(5, 1, 2);
    assert_eq!(rig.poll(5), [(0, 0), (1, 2)]);
    rig.end(8, 1);
    assert_eq!(rig.poll(8), [(0, 2)]);
    rig.arrive(9, 2, 2);
    assert_eq!(rig.poll(9), [(0, 0), (2, 2)]);
    rig.poll(13);
    assert_eq!(rig.promoted, []);
    rig.poll(14);
    assert_eq!(rig.promoted, [JobId(0)]);
    assert_eq!(rig.queues.jobs[0].waited_ns, 0);
}

#[test]
fn the_starvation_limit_holds_without_a_knob() {
    let knobs = Knobs { starvation_limit_ns: Some(8 * NS_PER_S), ..limits(&[10]) };
    let mut rig = Rig::new(&AttainedService::GPU_TIME, 2, knobs);
    rig.arrive(0, 0, 2);
    rig.poll(0);
    rig.arrive(5, 1, 2);
    assert_eq!(rig.poll(5), [(0, 0), (1, 2)]);
    assert_eq!(rig.poll(9), []);
    // 1 went down at 10; 0 is promoted at 13 and stops it.
    rig.poll(10);
    assert_eq!(rig.again_s(), Some(13));
    assert_eq!(rig.poll(13), [(1, 0), (0, 2)]);
}

/// By hand, with D = 10, in 1 / GPU-seconds: 4 / 59 at 0, 4 / 51 at 2, 3 / 44 at 4, and 0 at 6.
#[test]
fn inside_a_queue_the_higher_gittins_index_goes_first() {
    let history_gpu_ns: Arc<[u64]> =
        [3, 5, 5, 6, 40, 40, 40, 40].map(|size_s| size_s * NS_PER_S).into();
    let knobs = Knobs { history_gpu_ns, quantum_ns: NS_PER_S, ..limits(&[10, 50]) };
    let mut rig = Rig::new(&AttainedService::GITTINS, 2, knobs);
    rig.arrive(0, 0, 2);
    rig.arrive(0, 1, 2);
    assert_eq!(rig.poll(0), [(0, 2)]);
    // Its index grows as it is served; the one that waits stays behind.
    assert_eq!(rig.poll(1), []);
    assert_eq!(rig.poll(2), []);
    assert_eq!(rig.poll(3), [(0, 0), (1, 2)]);
}

/// Random arrivals and ends: no job waits while GPUs that it could use serve a later queue, and no
/// job that ran waits longer than the knob says outside the first queue.
#[test]
fn an_earlier_queue_never_waits_for_a_later_one_and_the_knob_bounds_waiting() {
    const GPUS: u32 = 16;
    const KNOB: f64 = 4.0;
    for seed in 0..30 {
        let knobs = Knobs { promote_knob: Some(KNOB), ..limits(&[60, 300, 900]) };
        let mut rig = Rig::new(&AttainedService::GPU_TIME, GPUS, knobs);
        let mut numbers = Numbers::new(seed);
        let mut widths: BTreeMap<u32, u32> = BTreeMap::new();
        for now_s in 0..1_500 {
            let now_ns = now_s * NS_PER_S;
            if numbers.within(0, 12) == 0 {
                let id = (0..).find(|id| !widths.contains_key(id)).unwrap();
                let gpus = [1, 2, 4, 8, 16][numbers.index(5)];
                widths.insert(id, gpus);
                rig.arrive(now_s, id, gpus);
            }
            if numbers.within(0, 40) == 0
                && let Some(id) = rig.running.keys().next().copied()
            {
                widths.remove(&id.0);
                rig.end(now_s, id.0);
            }
            rig.poll(now_s);
            let queue = |id: u32| rig.queues.jobs[id as usize].queue;
            for (id, gpus) in &widths {
                if rig.running.contains_key(&JobId(*id)) {
                    continue;
                }
                let ahead = rig.running.iter().filter(|(other, _)| queue(other.0) <= queue(*id));
                let taken: u32 = ahead.map(|(_, gpus)| gpus).sum();
                assert!(taken + gpus > GPUS, "seed {seed}, {now_s} s: {id} could run");
                let entry = &rig.queues.jobs[*id as usize];
                let (ran_ns, waits_ns) = (entry.ran_ns(now_ns), now_ns - entry.waits_from_ns);
                if entry.queue > 0 {
                    let waited_ns = (entry.waited_ns + waits_ns) as f64;
                    let most_ns = ran_ns as f64 * KNOB;
                    assert!(waited_ns <= most_ns, "seed {seed}, {now_s} s: {id} waited");
                }
            }
        }
        assert!(!rig.promoted.is_empty(), "seed {seed} tries promotions");
    }
}
