//! `weft run --switch bmv2`: workers that know nothing of a switch train over BMv2, to the model
//! that software gives; and what happens when the switch or its node dies.
//!
//! Needs `weft` and `weft-node` beside this test, namespaces, and simple_switch_grpc on PATH. With
//! `WEFT_REQUIRE_P4` (`make test-p4`) it fails where that is missing.

use std::path::Path;
use std::time::Duration;

use weft_tests::live::run::{Run, digits};
use weft_tests::live::{has_lab, has_switch};

/// Rounds of a training that is short: BMv2 takes about 4 s for each, and 2 s for a restart.
const ROUNDS: &str = "4";

/// BMv2 takes its time, and on a busy machine several times as much.
const SWITCH_PATIENCE: Duration = Duration::from_secs(240);

fn model(arguments: &[&str]) -> String {
    let mut all = vec!["--rounds", ROUNDS];
    all.extend(arguments);
    let (ended, _directory) = Run::start(&digits(), &all).end(SWITCH_PATIENCE);
    let json = ended.json.as_ref().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
    assert_eq!(json["verdict"], "ok", "{} {}", json["reasons"], ended.stderr);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    json["model_sha256"].as_str().expect("a string").to_owned()
}

fn can_run(test: &str) -> bool {
    has_switch(test) && has_lab(test)
}

#[test]
fn a_switch_gives_the_model_of_software() {
    if can_run("a_switch_gives_the_model_of_software") {
        assert_eq!(model(&["--switch=bmv2"]), model(&["--io=memory"]));
    }
}

#[test]
fn a_switch_that_is_killed_in_a_round_changes_no_bit() {
    if can_run("a_switch_that_is_killed_in_a_round_changes_no_bit") {
        let killed = model(&["--switch=bmv2", "--restart=s0@1", "--loss=0.01"]);
        assert_eq!(killed, model(&["--io=memory"]));
    }
}

#[test]
fn a_node_that_is_killed_before_its_switch_changes_no_bit() {
    if can_run("a_node_that_is_killed_before_its_switch_changes_no_bit") {
        assert_eq!(model(&["--switch=bmv2", "--restart=a0@1"]), model(&["--io=memory"]));
    }
}

/// Verdict `ok` holds the server's model against a recomputation of all that was committed.
fn push(arguments: &[&str]) {
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join(PUSH);
    let mut all = vec!["--switch=bmv2"];
    all.extend(arguments);
    let (ended, _directory) = Run::start(&scenario, &all).end(SWITCH_PATIENCE);
    let json = ended.json.as_ref().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
    assert_eq!(json["verdict"], "ok", "{} {}", json["reasons"], ended.stderr);
    assert_eq!((&json["io"], &json["replica_identical"]), (&"bmv2".into(), &true.into()), "{json}");
    assert!(json["chunks_aggregated"].as_u64().is_some_and(|count| count > 0), "{json}");
}

/// Four workers, an aggregator, a server and its replica.
const PUSH: &str = "../testbed/deploy/mininet/push.toml";

#[test]
fn an_ordered_push_over_a_switch_gives_server_and_replica_the_same_model() {
    if can_run("an_ordered_push_over_a_switch_gives_server_and_replica_the_same_model") {
        push(&[]);
    }
}

#[test]
fn a_switch_that_is_killed_under_a_push_leaves_server_and_replica_the_same() {
    if can_run("a_switch_that_is_killed_under_a_push_leaves_server_and_replica_the_same") {
        push(&["--restart=s0@4"]);
    }
}
