//! The crates depend on each other as ARCHITECTURE says, and in one direction.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Names of crates without `weft-`, with what each depends on in a build without tests.
type Graph = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn built() -> Graph {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs the tests, so it can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata failed: {errors}");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let ours = |value: &Value| {
        value.as_str().and_then(|name| name.strip_prefix("weft-").map(str::to_owned))
    };
    let packages = metadata["packages"].as_array().expect("packages");
    let edges = |package: &Value| {
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        let built = dependencies.iter().filter(|dependency| dependency["kind"].is_null());
        built.filter_map(|dependency| ours(&dependency["name"])).collect()
    };
    packages
        .iter()
        .filter_map(|package| Some((ours(&package["name"])?, edges(package))))
        .filter(|(name, _)| name != "tests")
        .collect()
}

/// Names of our crates that a build of `name` with its default features leaves out.
fn optional(name: &str) -> BTreeSet<String> {
    let file = root().join("dataplane").join(name).join("Cargo.toml");
    let text = std::fs::read_to_string(file).expect("it is there");
    let lines = text.lines().filter(|line| line.contains("optional = true"));
    let names = lines.filter_map(|line| line.split_once(' ').map(|(name, _)| name));
    names.filter_map(|name| name.strip_prefix("weft-").map(str::to_owned)).collect()
}

/// The rows of the table "crate | sees", names in backquotes.
fn documented() -> Graph {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it is there");
    let names = |cell: &str| -> Vec<String> {
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let lines = text.lines().skip_while(|line| *line != "| crate | sees |").skip(2);
    lines
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let (name, sees) = line[1..].split_once('|').expect("two cells");
            (names(name).remove(0), names(sees).into_iter().collect())
        })
        .collect()
}

#[test]
fn the_crates_are_as_architecture_says() {
    assert_eq!(built(), documented(), "cargo metadata, and the table of ARCHITECTURE.md");
}

/// What decides does not see what carries, and what is shared sees none that shares it.
#[test]
fn nothing_that_decides_sees_io() {
    let graph = built();
    let pure =
        ["wire", "kernel", "control", "config", "engine", "plan", "jobs", "controller-engine"];
    for name in pure {
        let strangers: Vec<_> =
            graph[name].iter().filter(|seen| !pure.contains(&seen.as_str())).collect();
        assert_eq!(strangers, [&""; 0], "weft-{name} decides and does no I/O");
    }
    for name in ["io", "plan", "controller-engine", "rpc"] {
        assert!(!graph[name].contains("engine"), "weft-{name} must not see the engines");
    }
    for (name, sees) in &graph {
        let may = name == "node" || name == "client";
        assert!(!sees.contains("dpdk") || may, "weft-{name} must not link DPDK");
    }
}

/// A training program, and a node, build where there is no libdpdk.
#[test]
fn dpdk_is_linked_by_a_feature_alone() {
    for name in ["client", "node"] {
        assert!(optional(name).contains("dpdk"), "weft-{name} must not need DPDK");
        let file = root().join("dataplane").join(name).join("Cargo.toml");
        let text = std::fs::read_to_string(file).expect("it is there");
        assert!(!text.contains("default = ["), "weft-{name} has no feature by default");
    }
}
