//! `weft cluster bands|lights|trace` and `weft cluster --compare` as scripts see them.

use std::fs;
use std::process::{Command, Output};

use serde_json::{Value, json};

fn weft(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weft")).args(arguments).output().expect("weft runs")
}

fn json(arguments: &[&str]) -> Value {
    let output = weft(&[arguments, &["--format", "json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON value on standard output")
}

#[test]
fn bands_come_in_the_order_of_the_jobs() {
    let of = |arguments: &[&str]| json(&[&["cluster", "bands"], arguments].concat());
    assert_eq!(
        of(&["--policy", "round-robin", "--models", "vgg16,resnet32,resnet32", "--rotate", "1"]),
        json!({"policy": "round-robin", "rotate": 1, "bands": [4, 1, 0]})
    );
    let compat = of(&["--models", "resnet32,vgg16,resnet32", "--rotate", "1", "--compat"]);
    assert_eq!(compat["bands"], json!([0, 4, 0]), "nobody beside it: the agent moves nobody");
    let fifo = of(&["--policy", "fifo", "--models", "a,b"]);
    assert_eq!(fifo, json!({"policy": "fifo", "rotate": 0, "bands": [null, null]}));
    let empty = weft(&["cluster", "bands", "--models", "a,,b"]);
    assert_eq!(empty.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&empty.stderr).lines().count(), 1);
}

#[test]
fn the_placements_are_simulated_with_one_parameter() {
    let answer = json(&["cluster", "lights", "--rounds", "30"]);
    assert!(answer["step_s"].as_f64().is_some_and(|step_s| (0.1..0.3).contains(&step_s)));
    let rows = answer["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 24);
    assert_eq!(rows.iter().filter(|row| row["fitted"] == true).count(), 1);
    assert_eq!(rows.iter().filter(|row| row["error"].is_number()).count(), 16);
}

/// A made-up trace, and the folder that it and a cluster of 2 x 4 nodes of 4 GPUs are in.
fn folder() -> (tempfile::TempDir, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let made = weft(&[
        "cluster", "trace", "--sizes", "mixed", "--jobs", "60", "--gap", "60", "--seed", "7",
    ]);
    let [trace, cluster] = ["syn60.csv", "cluster.csv"].map(|name| folder.path().join(name));
    fs::write(&trace, &made.stdout).expect("writing the trace");
    let rows = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n2,4,4,1,1\n";
    fs::write(&cluster, rows).expect("writing the cluster");
    let text = |path: std::path::PathBuf| path.to_str().expect("plain").to_owned();
    (folder, text(trace), text(cluster))
}

#[test]
fn policies_are_compared_case_by_case_and_drawn() {
    let (folder, trace, cluster) = folder();
    let made = fs::read_to_string(&trace).expect("the trace");
    assert!(made.contains("\n0,4,0,736,vgg11,736\n1,2,78,338,inception4,338\n"), "{made}");
    let out = folder.path().join("out");
    let answer = json(&[
        "cluster",
        "--trace",
        &trace,
        "--trace",
        "heavy-tailed:40",
        "--cluster",
        &cluster,
        "--compare",
        "fifo@consolidate,dlas-gpu@skew,dlas-gpu@network",
        "--loads",
        "0.8,1.2",
        "--seeds",
        "1..3",
        "--small-cases",
        "20",
        "--network",
        "--out",
        out.to_str().expect("plain"),
    ]);
    let rows = answer["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), (2 * 2 + 1) * 3);
    for row in rows {
        let is_all = row["trace"] == "all";
        assert_eq!(row["cases"], if is_all { 12 } else { 3 }, "{row}");
        assert!(row["avg_jct_half_interval_95_s"].is_number(), "{row}");
        assert_eq!(row["load"].is_null(), is_all);
        assert!(row["policy"] != "fifo@consolidate" || row["difference_mean"] == 0.0);
    }
    let small = answer["small_cases"].as_array().expect("small cases");
    assert_eq!(small.len(), 3);
    assert!(small.iter().all(|row| row["ratio_mean"].as_f64().is_some_and(|r| r >= 0.99)));
    for name in ["completions.svg", "utilisation.svg"] {
        let picture = fs::read_to_string(out.join(name)).expect(name);
        assert!(picture.contains("\ndlas-gpu@network\n"), "{picture}");
    }
    let table = fs::read_to_string(out.join("compare.csv")).expect("rows");
    assert_eq!(table.lines().count(), 1 + rows.len());
}

#[test]
fn a_case_that_fails_is_named() {
    let (_folder, trace, cluster) = folder();
    let options = ["--compare", "fifo,exec:true", "--loads", "0.8", "--seeds", "4"];
    let output =
        weft(&[&["cluster", "--trace", &trace, "--cluster", &cluster][..], &options].concat());
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let case = "weft: syn60.csv, load 0.8, seed 4, policy exec:true: ";
    assert!(said.starts_with(case) && said.lines().count() == 1, "{said}");
}

#[test]
fn numbers_below_zero_are_refused_by_value() {
    for arguments in [
        &["cluster", "trace", "--jobs", "5", "--load", "-1"][..],
        &["cluster", "trace", "--jobs", "-1"],
        &["cluster", "lights", "--cores-per-step", "-1"],
        &["cluster", "widths", "--rate-gbit", "-1"],
        &["cluster", "optimum", "--cases", "-1"],
        &["cluster", "bands", "--models", "a", "--rotate", "-1"],
    ] {
        let output = weft(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("-1") && !said.contains("unexpected"), "{arguments:?}: {said}");
    }
}

#[test]
fn what_cannot_be_compared_is_refused_in_a_line() {
    let (_folder, trace, cluster) = folder();
    let base = ["cluster", "--trace", &trace, "--cluster", &cluster];
    for (more, words) in [
        (vec!["--compare", "fifo,nobody"], "--compare: there is no policy `nobody`"),
        (vec!["--compare", "fifo@nowhere"], "--compare: there is no placement `nowhere`"),
        (vec!["--compare", "fifo", "--loads", "-1"], "--loads: -1 is not above 0"),
        (vec!["--compare", "fifo", "--seeds", "-1"], "--seeds -1"),
        (vec!["--network"], "--network: dlas-gpu has placement count"),
        (vec!["--network", "--placement", "count"], "--network: dlas-gpu has placement count"),
        (vec!["--network", "--compare", "fjf@skew,fifo"], "--network: fifo has placement count"),
        (vec!["--compare", "fifo", "--loads", "0"], "--loads: 0 is not above 0"),
        (vec!["--compare", "fifo", "--seeds", "x"], "--seeds x"),
        (vec!["--compare", "fifo", "--trace", "mixed:no"], "--trace: mixed:no"),
        (vec!["--trace", "mixed:9"], "--trace: only a comparison takes several"),
        (
            vec!["--network", "--node-gbps", "-1"],
            "--node-gbps: expected Gb/s between 0.001 and 100,000, not -1",
        ),
    ] {
        let output = weft(&[&base, &*more].concat());
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(words) && said.lines().count() == 1, "{more:?}: {said}");
    }
}
