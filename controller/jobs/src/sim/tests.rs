use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec;

use super::*;
use crate::job::NS_PER_S;
use crate::place::{self, Share};
use crate::policy::{AsAsked, BUILT_IN, Setting, Widths};
use crate::sim::setup::Setup;
use crate::sim::speed::{ByWidth, Costs};

fn job(name: &str, gpus: u32, submit_s: u64, duration_s: u64) -> Job {
    Job {
        name: name.into(),
        gpus,
        submit_ns: submit_s * NS_PER_S,
        duration_ns: duration_s * NS_PER_S,
        model: "".into(),
        iterations: 0,
        global_batch: 0,
    }
}

/// Lines of rows, and the most jobs that there were at once.
#[derive(Default)]
struct Seen {
    lines: Vec<String>,
    at_once_max: u32,
    gpu_s: Vec<u64>,
    overhead_s: Vec<u64>,
    resizes: u32,
}

impl Observer for Seen {
    fn ended(&mut self, row: Row<'_>) {
        self.lines.push(row.line(false));
        self.gpu_s.push(row.gpu_ns / NS_PER_S);
        self.overhead_s.push(row.overhead_ns / NS_PER_S);
        self.resizes += row.resizes;
    }

    fn usage(&mut self, _: u64, usage: Usage) {
        self.at_once_max = self.at_once_max.max(usage.running + usage.waiting);
    }
}

fn parts(policy: &str, cluster: Cluster) -> Parts {
    Setup::new(BUILT_IN.find(policy).unwrap(), Setting::new(cluster)).parts().unwrap()
}

/// Answers what was written down for a time.
#[derive(Debug, Default)]
struct Script(BTreeMap<u64, Vec<Change>>);

impl Scheduler for Script {
    fn handle(&mut self, _: u64, _: Delta<'_>) -> Result<(), PolicyError> {
        Ok(())
    }

    fn poll(&mut self, now_ns: u64, decision: &mut Decision) -> Result<(), PolicyError> {
        decision.changes = self.0.remove(&(now_ns / NS_PER_S)).unwrap_or_default();
        decision.again_at_ns = self.0.keys().next().map(|next_s| next_s * NS_PER_S);
        Ok(())
    }
}

/// `(second, job, GPUs)`.
fn scripted(
    script: &[(u64, u32, u32)],
    jobs: Vec<Job>,
    edit: fn(&mut Parts),
) -> Result<Seen, String> {
    let mut changes: BTreeMap<u64, Vec<Change>> = BTreeMap::new();
    for (second, id, gpus) in script {
        changes.entry(*second).or_default().push(Change { id: JobId(*id), gpus: *gpus });
    }
    let mut parts = parts("fifo", Cluster::of_nodes(1, 4));
    parts.scheduler = Box::new(Script(changes));
    edit(&mut parts);
    let mut seen = Seen::default();
    run(parts, jobs, &mut seen).map_err(|error| error.to_string())?;
    Ok(seen)
}

#[test]
fn a_stop_costs_what_going_on_takes() {
    let seen = scripted(&[(0, 0, 2), (3, 0, 0), (8, 0, 2)], vec![job("a", 2, 0, 10)], |parts| {
        parts.overheads = Box::new(Costs { preemption_ns: 4 * NS_PER_S, restart_ns: 0 });
    })
    .unwrap();
    // 3 s of work, 5 s of waiting, 4 s of going on, 7 s of work.
    assert_eq!(seen.lines, ["a,2,0,0,19,10,19,10,5,1,2,0"]);
    assert_eq!((seen.gpu_s, seen.overhead_s), (vec![20], vec![4]));
}

/// Twice as fast on 4 GPUs as on the 2 it asks for, and not at all on others.
#[derive(Debug)]
struct Twice;

impl Widths for Twice {
    fn speedup(&self, _: &Job, gpus: u32) -> f64 {
        match gpus {
            2 => 1.0,
            4 => 2.0,
            _ => 0.0,
        }
    }

    fn gpus_max(&self, _: &Job) -> u32 {
        4
    }
}

fn twice(parts: &mut Parts) {
    parts.speeds = Box::new(ByWidth(Arc::new(Twice)));
    parts.overheads = Box::new(Costs { preemption_ns: 0, restart_ns: NS_PER_S });
}

#[test]
fn a_wider_job_is_faster_and_pays_for_the_change() {
    let seen = scripted(&[(0, 0, 2), (4, 0, 4)], vec![job("a", 2, 0, 10)], twice).unwrap();
    // 4 s at 1, 1 s of restart, 3 s at 2.
    assert_eq!(seen.lines, ["a,2,0,0,8,7,8,10,0,0,1,0"]);
    assert_eq!((seen.gpu_s, seen.overhead_s, seen.resizes), (vec![8 + 12], vec![1], 1));
}

#[test]
fn a_restart_that_was_cut_short_costs_what_it_took() {
    let script = [(0, 0, 2), (4, 0, 4), (5, 0, 0), (7, 0, 2)];
    let seen = scripted(&script, vec![job("a", 2, 0, 10)], |parts| {
        twice(parts);
        parts.overheads = Box::new(Costs { preemption_ns: 0, restart_ns: 3 * NS_PER_S });
    })
    .unwrap();
    // 4 s of work, 1 s of a restart of 3, 2 s of waiting, 6 s of work.
    assert_eq!(seen.lines, ["a,2,0,0,13,10,13,10,2,1,2,0"]);
    assert_eq!(seen.overhead_s, [1]);
}

#[test]
fn what_a_policy_must_not_answer_ends_the_run() {
    let jobs = || vec![job("a", 2, 0, 10), job("b", 3, 0, 10)];
    for (script, word) in [
        (&[(0, 0, 2), (0, 1, 3)][..], "5 GPUs would be in use"),
        (&[(0, 7, 1)], "there is no job with id 7"),
        (&[(0, 0, 0)], "job a does not run"),
        (&[(0, 0, 1)], "job a cannot run on 1 GPUs"),
        (
            &[(0, 0, 2)],
            "lets 1 jobs wait for ever, first b; it starts none of them though all GPUs are free",
        ),
    ] {
        let error = scripted(script, jobs(), |_| {}).map(|_| ()).unwrap_err();
        assert!(error.contains(word), "{script:?}: {error}");
    }
}

#[test]
fn a_policy_that_asks_again_without_end_is_ended() {
    #[derive(Debug)]
    struct Restless;
    impl Scheduler for Restless {
        fn handle(&mut self, _: u64, _: Delta<'_>) -> Result<(), PolicyError> {
            Ok(())
        }
        fn poll(&mut self, now_ns: u64, decision: &mut Decision) -> Result<(), PolicyError> {
            decision.again_at_ns = Some(now_ns);
            Ok(())
        }
    }
    let mut parts = parts("fifo", Cluster::of_nodes(1, 4));
    parts.scheduler = Box::new(Restless);
    let error = run(parts, vec![job("a", 1, 0, 1)], &mut Seen::default()).unwrap_err();
    assert!(error.to_string().contains("again and again"), "{error}");
}

#[test]
fn an_unsorted_trace_is_refused() {
    let jobs = vec![job("a", 1, 5, 1), job("b", 1, 3, 1)];
    let error = run(parts("fifo", Cluster::of_nodes(1, 4)), jobs, &mut Seen::default());
    assert!(error.unwrap_err().to_string().starts_with("job b is submitted before"));
}

/// Ids are given again, so tables are as long as the most jobs that there were at once.
#[test]
fn memory_is_that_of_the_jobs_that_wait_or_run() {
    let jobs = (0..10_000).map(|index| job(&index.to_string(), 1, index, 3));
    let parts = parts("dlas-gpu", Cluster::of_nodes(1, 4));
    let live = Jobs::new(parts.manner.end_order);
    let mut sim = Sim {
        parts,
        live,
        now_ns: 0,
        decision: Decision::default(),
        unplaced: Vec::new(),
        polls_idle: 0,
    };
    let mut seen = Seen::default();
    drive(&mut sim, jobs, &mut seen).unwrap();
    assert_eq!((seen.lines.len(), seen.at_once_max), (10_000, 3));
    assert_eq!(sim.live.ids(), 3, "the first has left when the fourth comes");
}

/// Strict order also holds where a place is lacking, and who lacks it is tried again.
#[test]
fn fifo_waits_for_the_place_of_its_first() {
    let cluster = Cluster::of_nodes(2, 4);
    let mut parts = parts("fifo", cluster);
    parts.placer = (place::by_name("yarn").unwrap().placer)(&cluster, &place::Options::default());
    // c's four GPUs are there at 0, but not on one node; d would fit.
    let jobs = vec![job("a", 2, 0, 10), job("b", 3, 0, 20), job("c", 3, 0, 5), job("d", 1, 0, 5)];
    let mut seen = Seen::default();
    run(parts, jobs, &mut seen).unwrap();
    let starts = seen.lines.iter().map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        (fields[0].to_owned(), fields[3].to_owned())
    });
    let starts: BTreeMap<String, String> = starts.collect();
    let expected = [("a", "0"), ("b", "0"), ("c", "10"), ("d", "10")];
    assert_eq!(starts, expected.map(|(a, b)| (a.to_owned(), b.to_owned())).into());
}

/// Jobs beside each other slow each other down.
#[derive(Debug, Default)]
struct Crowd(Vec<JobId>);

impl Speeds for Crowd {
    fn started(
        &mut self,
        id: JobId,
        _: &Job,
        _: u32,
        _: &[Share],
        changed: &mut dyn FnMut(JobId, f64),
    ) {
        self.0.push(id);
        self.0.iter().for_each(|id| changed(*id, 1.0 / self.0.len() as f64));
    }

    fn stopped(&mut self, id: JobId, changed: &mut dyn FnMut(JobId, f64)) {
        self.0.retain(|other| *other != id);
        self.0.iter().for_each(|id| changed(*id, 1.0 / self.0.len() as f64));
    }
}

#[test]
fn speeds_of_others_change_with_who_runs() {
    let jobs = vec![job("a", 1, 0, 10), job("b", 1, 4, 2)];
    let seen = scripted(&[(0, 0, 1), (4, 1, 1)], jobs, |parts| {
        parts.speeds = Box::new(Crowd::default());
    })
    .unwrap();
    // From 4 to 8 both run at half speed; then a has 4 s left.
    assert_eq!(seen.lines, ["b,1,4,4,8,4,4,2,0,0,1,0", "a,1,0,0,12,12,12,10,0,0,1,0"]);
}

#[test]
fn as_asked_is_the_width_of_the_trace_and_no_other() {
    let job = job("a", 2, 0, 1);
    assert_eq!([1, 2, 4].map(|gpus| AsAsked.speedup(&job, gpus)), [0.0, 1.0, 0.0]);
}

#[test]
fn a_summary_has_the_figures_of_its_rows() {
    let mut figures = summary::Figures::default();
    let jobs = [job("a", 2, 0, 10), job("b", 1, 0, 30), job("c", 1, 5, 5), job("d", 4, 5, 1)];
    for (job, end_s) in jobs.iter().zip([10, 30, 45, 50]) {
        figures.add(&Row {
            job,
            start_ns: job.submit_ns,
            end_ns: end_s * NS_PER_S,
            executed_ns: 0,
            gpu_ns: 0,
            pending_ns: 0,
            overhead_ns: NS_PER_S / 2,
            preemptions: 2,
            resumes: 3,
            promotes: 0,
            resizes: 1,
        });
    }
    let summary = figures.summary(&Cluster::of_nodes(1, 4));
    // Completion times 10, 30, 40, 45.
    assert_eq!(summary.avg_jct_s, 31.25);
    assert_eq!((summary.median_jct_s, summary.p95_jct_s), (35.0, 45.0));
    assert_eq!((summary.makespan_s, summary.utilisation), (50.0, 59.0 / 200.0));
    assert_eq!((summary.preemptions, summary.resizes, summary.restart_s), (8, 4, 2.0));
}

#[test]
fn seconds_are_written_exactly() {
    for (time_ns, text) in [(0, "0"), (NS_PER_S, "1"), (1_500_000_000, "1.5"), (1, "0.000000001")] {
        assert_eq!(rows::seconds(time_ns), text);
    }
}

#[test]
fn the_cluster_is_called_too_small_where_there_was_no_place() {
    let mut parts = parts("fifo", Cluster { switches: 2, ..Cluster::of_nodes(1, 4) });
    let yarn = place::by_name("yarn").unwrap();
    parts.placer = (yarn.placer)(&parts.cluster, &place::Options::default());
    let error = run(parts, [job("a", 8, 0, 10), job("b", 1, 0, 10)], &mut Seen::default());
    let error = error.unwrap_err().to_string();
    let said = "policy fifo lets 2 jobs wait for ever, first a; the cluster is too small";
    assert!(error.starts_with(said), "{error}");
}

/// Wants to be asked again every second, and stops what it started at every second time.
#[derive(Debug)]
struct Restless {
    starts: bool,
    runs: bool,
}

impl Scheduler for Restless {
    fn handle(&mut self, _: u64, delta: Delta<'_>) -> Result<(), PolicyError> {
        self.starts &= !matches!(delta, Delta::Ended { .. });
        Ok(())
    }

    fn poll(&mut self, now_ns: u64, decision: &mut Decision) -> Result<(), PolicyError> {
        if self.starts {
            self.runs = !self.runs;
            decision.changes.push(Change { id: JobId(0), gpus: u32::from(self.runs) });
        }
        decision.again_at_ns = Some(now_ns + NS_PER_S);
        Ok(())
    }
}

#[test]
fn a_policy_under_which_nobody_gets_any_further_ends_the_run() {
    for starts in [false, true] {
        let mut parts = parts("fifo", Cluster::of_nodes(1, 4));
        parts.scheduler = Box::new(Restless { starts, runs: false });
        parts.overheads = Box::new(Costs { preemption_ns: 2 * NS_PER_S, restart_ns: 0 });
        let jobs = [job("a", 1, 0, 100), job("b", 1, 50_000, 10)];
        let error = run(parts, jobs, &mut Seen::default()).unwrap_err().to_string();
        let said = "policy fifo was asked 100000 times until 1";
        assert!(error.starts_with(said) && error.ends_with("first a"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn a_policy_that_asks_while_a_job_works_is_asked_on() {
    let mut parts = parts("fifo", Cluster::of_nodes(1, 4));
    parts.scheduler = Box::new(Restless { starts: true, runs: false });
    let mut seen = Seen::default();
    // Without a cost a start works: one second of two.
    run(parts, [job("a", 1, 0, 150_000)], &mut seen).unwrap();
    assert_eq!(seen.lines.len(), 1);
}
