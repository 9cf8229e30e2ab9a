//! The public simulator's results, job by job: what `tests/tiresias/README.md` describes.

use std::fs;
use std::path::Path;

use weft_jobs::cluster::Cluster;
use weft_jobs::job::{Job, NS_PER_S};
use weft_jobs::place;
use weft_jobs::policy::{Setting, tiresias_compat};
use weft_jobs::sim::setup::Setup;
use weft_jobs::sim::{self, Observer, Row, rows};
use weft_jobs::trace;

/// Collects lines.
#[derive(Default)]
struct Lines {
    lines: Vec<String>,
    jct_ns: u64,
    end_ns: u64,
}

impl Observer for Lines {
    fn ended(&mut self, row: Row<'_>) {
        self.lines.push(row.line(true));
        self.jct_ns += row.jct_ns();
        self.end_ns = row.end_ns;
    }
}

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiresias").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn simulate(jobs: Vec<Job>, cluster: Cluster, policy: &str, placement: &str) -> Lines {
    let policy = tiresias_compat::REGISTRY.find(policy).unwrap();
    let mut setup = Setup::new(policy, Setting::new(cluster));
    setup.placement = place::by_name(placement).unwrap();
    let parts = setup.parts().unwrap();
    let mut lines = Lines::default();
    sim::run(parts, jobs, &mut lines).unwrap();
    lines
}

fn inputs(trace: &str, cluster: &str) -> (Vec<Job>, Cluster) {
    let cluster_file = format!("traces/{cluster}.csv");
    let cluster = trace::cluster(&cluster_file, &file(&cluster_file)).unwrap();
    let trace_file = format!("traces/{trace}_job.csv");
    let jobs = trace::tiresias::read(&trace_file, &file(&trace_file), Some(&cluster)).unwrap().jobs;
    (jobs, cluster)
}

#[test]
fn compat_mode_equals_every_file_in_all_columns_and_in_the_order_of_rows() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiresias/expected");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files.len(), 30);
    let mut wrong = Vec::new();
    for name in files {
        let name = name.to_str().unwrap();
        let parts: Vec<&str> = name.trim_end_matches(".csv").split("__").collect();
        let (jobs, cluster) = inputs(parts[0], parts[1]);
        let got = simulate(jobs, cluster, parts[2], "count").lines;
        let expected = file(&format!("expected/{name}"));
        let mut expected = expected.lines();
        assert_eq!(expected.next(), Some(rows::HEADER));
        let expected: Vec<&str> = expected.collect();
        assert_eq!(got.len(), expected.len(), "{name}");
        if let Some(at) = (0..got.len()).find(|at| got[*at] != expected[*at]) {
            wrong.push(format!("{name}:{}: {} is not {}", at + 2, got[at], expected[at]));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The means are those of the public simulator with scheme `yarn`.
#[test]
fn yarn_placement_has_the_public_simulators_means() {
    for (trace, cluster, policy, switches, mean_s, makespan_s) in [
        ("60", "n4g4", "fifo", 1, 219.183, 3_341),
        ("60", "n4g4", "fjf", 1, 219.183, 3_271),
        ("syn60", "n15g4", "fifo", 1, 2_848.417, 14_644),
        ("syn480_a", "n15g4", "fifo", 1, 8_589.169, 71_405),
        ("syn480_a", "n15g4", "fjf", 1, 2_016.510, 59_476),
        ("syn480_a", "n15g4", "fifo", 2, 19_298.658, 93_730),
        ("syn480_a", "n15g4", "fjf", 2, 1_814.885, 61_640),
    ] {
        let (jobs, mut cluster) = inputs(trace, cluster);
        if switches == 2 {
            cluster = Cluster { switches, nodes_per_switch: 8, ..cluster };
        }
        let count = jobs.len() as f64;
        let lines = simulate(jobs, cluster, policy, "yarn");
        let got_s = lines.jct_ns as f64 / NS_PER_S as f64 / count;
        assert!((got_s - mean_s).abs() < 0.0006, "{trace} {policy} {switches}: {got_s}");
        assert_eq!(lines.end_ns, makespan_s * NS_PER_S, "{trace} {policy} {switches}");
    }
}

/// As the public simulator: the knob is read from the name, and the index is not.
#[test]
fn a_knob_after_gittins_leaves_the_index_out() {
    let (jobs, cluster) = inputs("syn60", "n15g4");
    let with = simulate(jobs.clone(), cluster, "dlas-gpu-gittins-8", "count");
    let without = simulate(jobs, cluster, "dlas-gpu-8", "count");
    assert_eq!(with.lines, without.lines);
}
