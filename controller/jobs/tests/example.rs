//! The example of Tiresias' slides: 2 GPUs; J1: 2 GPUs x 2, J2: 1 GPU x 8, J3: 2 GPUs x 6, all at 0.

use weft_jobs::cluster::Cluster;
use weft_jobs::job::{Job, NS_PER_S};
use weft_jobs::policy::{BUILT_IN, Knobs, Setting};
use weft_jobs::sim::setup::Setup;
use weft_jobs::sim::{self, Observer, Row};

#[derive(Default)]
struct Times(Vec<(String, u64)>);

impl Observer for Times {
    fn ended(&mut self, row: Row<'_>) {
        self.0.push((row.job.name.to_string(), row.jct_ns() / NS_PER_S));
    }
}

/// Completion times of J1, J2 and J3 in seconds.
fn times(policy: &str, knobs: Knobs) -> Vec<u64> {
    let job = |name: &str, gpus: u32, duration_s: u64| Job {
        name: name.into(),
        gpus,
        submit_ns: 0,
        duration_ns: duration_s * NS_PER_S,
        model: "".into(),
        iterations: 0,
        global_batch: 0,
    };
    let jobs = [job("J1", 2, 2), job("J2", 1, 8), job("J3", 2, 6)];
    let cluster = Cluster::of_nodes(1, 2);
    let setting = Setting { knobs, ..Setting::new(cluster) };
    let parts = Setup::new(BUILT_IN.find(policy).unwrap(), setting).parts().unwrap();
    let mut times = Times::default();
    sim::run(parts, jobs, &mut times).unwrap();
    times.0.sort();
    times.0.into_iter().map(|(_, time_s)| time_s).collect()
}

fn quantum(knobs: Knobs) -> Knobs {
    Knobs { quantum_ns: NS_PER_S, ..knobs }
}

#[test]
fn srsf_takes_9_33() {
    assert_eq!(times("shortest-gpu", Knobs::default()), [2, 10, 16]);
}

#[test]
fn continuous_2d_las_takes_11_67() {
    assert_eq!(times("2d-las", quantum(Knobs::default())), [5, 14, 16]);
}

/// The formula never switches here, for its index grows with service: 9.33.
#[test]
fn continuous_2d_gittins_by_the_formula_takes_9_33() {
    let history_gpu_ns = [4, 8, 12].map(|size_s| size_s * NS_PER_S).into();
    assert_eq!(
        times("2d-gittins", quantum(Knobs { history_gpu_ns, ..Knobs::default() })),
        [2, 10, 16]
    );
}

/// The slide's own indices, which are not the formula's: 10.0.
#[test]
fn continuous_2d_gittins_by_the_slides_table_takes_10() {
    let gittins_table = [(0, 0.25), (4 * NS_PER_S, 0.2)].into();
    assert_eq!(
        times("2d-gittins", quantum(Knobs { gittins_table, ..Knobs::default() })),
        [2, 16, 12]
    );
}

/// Limits every 2, 4 and 8 GPU-seconds.
#[test]
fn queues_come_closer_to_srsf_as_they_grow() {
    for (every_s, expected) in [(2, [6, 14, 16]), (4, [2, 14, 16]), (8, [2, 10, 16])] {
        let queue_limits_ns = (1..=6).map(|queue| queue * every_s * NS_PER_S).collect();
        let knobs = Knobs { queue_limits_ns, ..Knobs::default() };
        assert_eq!(times("dlas-gpu", knobs), expected, "every {every_s}");
    }
}
