//! Elastic jobs as scripts see them: `weft cluster --throughputs`, `weft cluster
//! fit|optimum|table3|widths`, and the figures that docs/cluster.md gives for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const DATA: &str = "controller/jobs/tests/elastic";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn weft(arguments: &[&str]) -> Output {
    let command =
        Command::new(env!("CARGO_BIN_EXE_weft")).args(arguments).current_dir(root()).output();
    command.expect("weft starts")
}

fn json(arguments: &[&str]) -> Value {
    let output = weft(&[arguments, &["--format", "json"]].concat());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{message}");
    serde_json::from_slice(&output.stdout).expect("one JSON value")
}

fn rows(arguments: &[&str]) -> Vec<Value> {
    json(arguments).as_array().expect("rows").clone()
}

fn document() -> String {
    fs::read_to_string(root().join("docs/cluster.md")).expect("the document is there")
}

fn cluster(policy: &str, more: &[&str]) -> Value {
    let [trace, spec] = ["trace_100.csv", "n16g8.csv"].map(|file| format!("{DATA}/{file}"));
    let arguments = ["cluster", "--trace", &trace, "--cluster", &spec, "--policy", policy];
    json(&[&arguments, more].concat())
}

/// 22088 as `22,088`.
fn grouped(number: f64) -> String {
    let text = format!("{number:.0}");
    let (thousands, rest) = text.split_at(text.len().saturating_sub(3));
    format!("{thousands},{rest}")
}

#[test]
fn the_documents_completion_times_are_what_weft_cluster_says() {
    let speeds = format!("{DATA}/throughputs/a100.csv");
    for policy in ["doubling", "doubling-explore", "optimus"] {
        let summary = cluster(
            policy,
            &["--throughputs", &speeds, "--restart-cost", "10", "--preemption-cost", "10"],
        );
        let mean_s = summary["avg_jct_s"].as_f64().expect("a number");
        let row = format!("| `{policy}` | {} |", grouped(mean_s));
        assert!(document().contains(&row), "{row}: {summary}");
        assert!(summary["resizes"].as_u64() > Some(0) && summary["jobs"] == 100);
    }
    let summary = cluster("dlas-gpu", &["--mode", "compat-elasticflow"]);
    let mean_s = summary["avg_jct_s"].as_f64().expect("a number");
    assert!((mean_s - 51_045.6).abs() < 0.1, "{summary}");
}

/// Two jobs of a measured model, under the names of ElasticFlow's repository and of others.
#[test]
fn curves_are_found_by_any_spelling_and_jobs_without_one_are_counted() {
    let ground = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = ground.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let cluster = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n\
                   1,1,8,64,256\n";
    let cluster = file("n1g8.csv", cluster);
    let known = "job_id,submit_time,iterations,model_name,ddl,global_batch_size,num_gpu,duration\n\
                 0,0,800,net-a,2000,64,1,800\n1,100,400,net-a,2000,64,1,400\n";
    let published = known.replace("iterations", "iteration").replace("global_", "");
    let speeds = "model,global_batch_size,gpus,iterations_per_s\n\
                  net-a,64,1,1\nnet-a,64,2,1.8\nnet-a,64,4,3.2\nnet-a,64,8,5.6\n";
    let run = |trace: &str, speeds: &str, more: &[&str]| {
        let [trace, speeds] = [file("trace.csv", trace), file("speeds.csv", speeds)];
        let arguments =
            ["cluster", "--trace", &trace, "--cluster", &cluster, "--restart-cost", "0"];
        let policy = ["--policy", "doubling", "--throughputs", &speeds, "--format", "json"];
        weft(&[&arguments[..], &policy, more].concat())
    };
    let other = speeds.replace("net-a", "Net_A");
    for (trace, speeds) in [(known, speeds), (&published, speeds), (known, &other)] {
        let output = run(trace, speeds, &["--strict"]);
        let summary: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
        let mean_s = summary["avg_jct_s"].as_f64().expect("a number");
        assert!((mean_s - 139.286).abs() < 0.001, "{summary}");
        assert_eq!((&summary["resizes"], &summary["jobs_without_curve"]), (&2.into(), &0.into()));
    }
    let other = speeds.replace("net-a", "net-b");
    let output = run(known, &other, &[]);
    let summary: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    assert_eq!((&summary["resizes"], &summary["jobs_without_curve"]), (&0.into(), &2.into()));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("2 of 2 jobs have no curve in --throughputs, and run as wide"), "{said}");
    let refused = run(known, &other, &["--strict"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("2 of 2 jobs have no curve"));
}

#[test]
fn the_documents_distances_are_what_weft_says() {
    for pair in rows(&["cluster", "optimum"]).chunks(2) {
        let ratios = |row: &Value| {
            let ratio = |key: &str| format!("{:.3}", row[key].as_f64().expect("a number"));
            ["mean_ratio", "p95_ratio", "max_ratio"].map(ratio).join(", ")
        };
        assert_eq!([&pair[0]["rule"], &pair[1]["rule"]], ["doubling", "optimus"]);
        let cells = format!("| {} | {} |", ratios(&pair[0]), ratios(&pair[1]));
        assert!(document().contains(&cells), "{cells}");
    }
}

#[test]
fn the_documents_table_is_what_weft_says() {
    for row in rows(&["cluster", "table3"]) {
        let number = |key: &str| format!("{:.2}", row[key].as_f64().expect("a number"));
        let cell = format!("{}, {}", number("published_h"), number("mean_h"));
        let policy = row["policy"].as_str().expect("a name");
        let document = document();
        let line = document.lines().find(|line| line.contains(&format!("(`{policy}`) |")));
        assert!(line.expect("a row").contains(&cell), "{policy}: {cell}");
    }
}

#[test]
fn the_documents_widths_are_what_weft_says() {
    let arguments =
        ["cluster", "widths", "--rate-gbit", "10", "--model-mb", "100", "--lcores", "8"];
    for row in rows(&arguments) {
        let chosen = |rule: &str| {
            let widths = row[format!("{rule}_widths")].as_str().expect("widths").replace('+', ", ");
            let total_s = row[format!("{rule}_total_s")].as_f64().expect("a number");
            let total = if total_s < 1_000.0 { format!("{total_s:.0}") } else { grouped(total_s) };
            format!("{widths}: {total} s")
        };
        let cells = format!("| {} | {} |", chosen("one"), chosen("doubling"));
        assert!(document().contains(&cells), "{cells}");
    }
}

#[test]
fn what_cannot_be_used_is_one_line_that_says_where() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("bad.csv");
    let name = path.to_str().expect("a name");
    let refused = |text: &str, arguments: &[&str]| {
        fs::write(&path, text).expect("written");
        let output = weft(&[arguments, &[name]].concat());
        assert_ne!(output.status.code(), Some(0), "{arguments:?}");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(message.lines().count(), 1, "{message}");
        message
    };
    let said = refused("model,gpus\n", &["cluster", "fit", "--throughputs"]);
    assert!(said.contains("bad.csv:1: global_batch_size: there is no such column"), "{said}");
    let said = refused("step,loss\n1,NaN\n", &["cluster", "fit", "--losses"]);
    assert!(said.contains("bad.csv:2: loss: "), "{said}");
    let said = refused("step,loss\n1,1\n2,1\n3,1\n", &["cluster", "fit", "--losses"]);
    assert!(said.contains("does not fall"), "{said}");
    let said = refused("bytes\n", &["cluster", "widths", "--bench"]);
    assert!(said.contains("bad.csv:1: failure: "), "{said}");
}

#[test]
fn a_loss_is_fitted_from_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("loss.csv");
    let line = |k: u32| format!("{k},{}\n", 1.0 / (0.05 * f64::from(k) + 0.4) + 0.2);
    fs::write(&path, "step,loss\n".to_owned() + &(1..40).map(line).collect::<String>())
        .expect("written");
    let rows = rows(&["cluster", "fit", "--losses", path.to_str().expect("a name")]);
    let b0 = rows[0]["b0"].as_f64().expect("a number");
    assert!((b0 - 0.05).abs() < 1e-3 && rows[0]["residual_rms"].as_f64() < Some(1e-3), "{rows:?}");
}
