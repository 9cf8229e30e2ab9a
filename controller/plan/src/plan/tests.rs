use crate::case::Case;
use crate::policy::{by_name, names};

/// The example of the documented format, with `div_max` and a replica.
const CASE: &str = r#"{"schema": 1, "now_ns": 0,
    "hosts": {"w0": {"up_bytes_per_sec": 10, "down_bytes_per_sec": 10},
              "w1": {"up_bytes_per_sec": 10, "down_bytes_per_sec": 10},
              "w2": {"up_bytes_per_sec": 10, "down_bytes_per_sec": 10},
              "w3": {"up_bytes_per_sec": 10, "down_bytes_per_sec": 10},
              "a0": {"up_bytes_per_sec": 10, "down_bytes_per_sec": 10},
              "r0": {"up_bytes_per_sec": 10, "down_bytes_per_sec": 10},
              "s0": {"up_bytes_per_sec": 10, "down_bytes_per_sec": 10}},
    "servers": [{"name": "s0", "host": "s0", "version": 5, "tau_max": 6, "momentum": 0.9,
                 "div_max": 40, "replica": "r0"}],
    "aggregators": ["a0"],
    "updates": [
        {"id": "a", "server": "s0", "host": "w0", "size_bytes": 10, "version": 5, "norm": 1.0},
        {"id": "b", "server": "s0", "host": "w1", "size_bytes": 10, "version": 5, "norm": 1.0},
        {"id": "c", "server": "s0", "host": "w2", "size_bytes": 10, "version": 5, "norm": 2.0},
        {"id": "d", "server": "s0", "host": "w3", "size_bytes": 10, "version": 5, "norm": 1.0}]}"#;

#[test]
fn the_document_has_the_promised_keys() {
    let case = Case::from_json(CASE).expect("a case");
    let default = names().next().expect("a default");
    assert_eq!(default, "mlfabric");
    let plan = by_name(default).expect("it is built in").plan(&case).expect("a plan");
    let json = serde_json::to_value(plan.document(&case)).expect("it is JSON");
    assert_eq!(json["policy"], "mlfabric");
    assert_eq!(json["order"], serde_json::json!(["a", "b", "c", "d"]));
    assert_eq!(json["dropped"], serde_json::json!([]));
    let a = serde_json::json!({
        "arrival_ns": 1_000_000_000, "commit_ns": 1_000_000_000, "via": null,
        "segments": [{"from_ns": 0, "to_ns": 1_000_000_000, "bytes_per_sec": 10}]});
    assert_eq!(json["updates"]["a"], a);
    // d d 2: the sum of c and d leaves the aggregator when both are there.
    assert_eq!(json["updates"]["c"]["via"], "a0");
    assert_eq!(json["updates"]["d"]["commit_ns"], 3_000_000_000_u64);
    assert_eq!(json["groups"][0]["members"], serde_json::json!(["a"]));
    assert_eq!(json["groups"][0]["via"], serde_json::Value::Null);
    assert_eq!(json["groups"][2]["members"], serde_json::json!(["c", "d"]));
    assert_eq!(json["groups"][2]["via"], "a0");
    assert_eq!(json["replica"]["s0"]["host"], "r0");
    assert_eq!(json["replica"]["s0"]["held"], true);
    assert_eq!(json["mean_commit_ns"], 2_250_000_000_u64);
    assert_eq!(json["makespan_ns"], 3_000_000_000_u64);
}

#[test]
fn nothing_to_plan_is_a_plan() {
    let case = Case::from_json(
        r#"{"now_ns": 7, "hosts": {"s": {"up_bytes_per_sec": 1, "down_bytes_per_sec": 1}},
            "servers": [{"name": "s", "host": "s", "version": 0}], "updates": []}"#,
    );
    let case = case.expect("a case");
    let plan = by_name("mlfabric").expect("it is built in").plan(&case).expect("a plan");
    let json = serde_json::to_value(plan.document(&case)).expect("it is JSON");
    assert_eq!(json["order"], serde_json::json!([]));
    assert_eq!(json["mean_commit_ns"], serde_json::Value::Null);
    assert_eq!(json["makespan_ns"], 0);
    assert_eq!(json["replica"], serde_json::Value::Null);
}
