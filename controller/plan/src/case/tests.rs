use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::*;
use crate::spec::CaseSpec;

const GOOD: &str = r#"{
    "schema": 1,
    "now_ns": 0,
    "hosts": {
        "w0": {"up_bytes_per_sec": 1e9, "down_bytes_per_sec": 1000000000},
        "r0": {"up_bytes_per_sec": 10, "down_bytes_per_sec": 10, "rack": "x"},
        "S": {"up_bytes_per_sec": 10, "down_bytes_per_sec": 10}},
    "links": {"racks": {"x": {"up_bytes_per_sec": 5, "down_bytes_per_sec": 5, "hosts": ["S"]}}},
    "servers": [{"name": "s0", "host": "S", "version": 5, "tau_max": 6, "momentum": 0.9,
        "div_max": 40.0, "replica": "r0", "job": "j"}],
    "aggregators": ["w0"],
    "updates": [
        {"id": "a", "server": "s0", "host": "w0", "size_bytes": 10, "version": 5, "norm": 1.0},
        {"id": "b", "server": "s0", "host": "r0", "size_bytes": 10, "version": 4, "norm": 1.0}],
    "reservations": [
        {"from": "w0", "to": "S", "from_ns": 0, "to_ns": 10, "bytes_per_sec": 3}],
    "options": {"objective": "last"}}"#;

#[test]
fn names_become_indices() {
    let case = Case::from_json(GOOD).expect("a good case");
    assert_eq!(case.host(case.update(UpdateId(0)).host).name, "w0");
    assert_eq!(case.host(case.server(ServerId(0)).host).rack, Some(RackId(0)));
    assert_eq!(
        case.hosts.iter().map(|h| h.rack.is_some()).collect::<Vec<_>>(),
        [true, true, false]
    );
    assert_eq!(case.deadline(UpdateId(1)), 5);
    assert_eq!(case.options.objective, Objective::Last);
}

/// Scripts compute rates; those that a fraction hardly changes are taken.
#[test]
fn the_fraction_of_a_high_rate_is_left_out() {
    for (written, taken) in [("1000000.9", 1_000_000), ("118273645.31", 118_273_645)] {
        assert_eq!(GOOD.matches("1e9").count(), 1);
        let case = Case::from_json(&GOOD.replace("1e9", written)).expect(written);
        assert_eq!(case.host(case.update(UpdateId(0)).host).up_bytes_per_sec, taken);
    }
    assert!(refused("1e9", "999999.5").contains("is not a whole number"));
}

/// Replaces one piece of the good case and returns the message.
fn refused(from: &str, to: &str) -> String {
    assert_eq!(GOOD.matches(from).count(), 1, "{from}");
    let text = GOOD.replacen(from, to, 1);
    let case = Case::from_json(&text);
    case.and_then(|case| case.check_reservations()).expect_err(to).to_string()
}

#[test]
fn a_bad_field_is_named() {
    let rows = [
        (r#""schema": 1"#, r#""schema": 2"#, "schema: is 2"),
        (r#""now_ns": 0,"#, "", "missing field `now_ns`"),
        (r#""now_ns": 0,"#, r#""now_ns": -1,"#, "now_ns: is negative"),
        (r#""schema": 1,"#, r#""schema": 1, "colour": 3,"#, "unknown field `colour`"),
        ("1e9", "0", "hosts.w0.up_bytes_per_sec: is 0"),
        ("1e9", "1e15", "hosts.w0.up_bytes_per_sec: is 1000000000000000"),
        ("1e9", "1.5", "hosts.w0.up_bytes_per_sec: is not a whole number"),
        ("1e9", "1e999", "hosts.w0.up_bytes_per_sec: number out of range"),
        ("1e9", "NaN", "hosts.w0.up_bytes_per_sec"),
        (r#""S": {"up"#, r#""w0": {"up"#, "hosts: `w0` is given twice"),
        (r#""rack": "x""#, r#""rack": "y""#, "hosts.r0.rack: there is no rack `y`"),
        (r#"["S"]"#, r#"["T"]"#, "links.racks.x.hosts[0]: there is no host `T`"),
        (r#""host": "S""#, r#""host": "T""#, "servers[0].host: there is no host `T`"),
        (r#""replica": "r0""#, r#""replica": "S""#, "servers[0].replica: is S"),
        (r#""replica": "r0""#, r#""replica": "q""#, "servers[0].replica: there is no host `q`"),
        (r#""tau_max": 6"#, r#""tau_max": 0"#, "servers[0].tau_max: is 0"),
        (r#""tau_max": 6"#, r#""tau_max": -6"#, "servers[0].tau_max: is negative"),
        (r#""tau_max": 6"#, r#""tau_max": 6, "workers": 8"#, "servers[0].tau_max: is 6"),
        ("0.9", "1.0", "servers[0].momentum: is 1"),
        ("40.0", "0.0", "servers[0].div_max: is 0"),
        ("40.0", "-1.0", "servers[0].div_max: is -1"),
        (r#"["w0"]"#, r#"["w0", "w0"]"#, "aggregators[1]: aggregator `w0` is given twice"),
        (r#"["w0"]"#, r#"["w9"]"#, "aggregators[0]: there is no host `w9`"),
        (r#""id": "b""#, r#""id": "a""#, "updates[1].id: update `a` is given twice"),
        (
            r#""a", "server": "s0""#,
            r#""a", "server": "s1""#,
            "updates[0].server: there is no server",
        ),
        (r#""host": "w0""#, r#""host": "w7""#, "updates[0].host: there is no host `w7`"),
        (
            r#"10, "version": 5, "norm": 1.0"#,
            r#"-10, "version": 5"#,
            "updates[0].size_bytes: is neg",
        ),
        (r#"10, "version": 5, "norm": 1.0"#, r#"0, "version": 5"#, "updates[0].size_bytes: is 0"),
        (r#""version": 5, "norm": 1.0"#, r#""version": 5"#, "updates[0].norm: is missing"),
        (r#""version": 5, "norm": 1.0"#, r#""version": 5, "norm": -1"#, "updates[0].norm: is -1"),
        (r#""version": 5, "norm": 1.0"#, r#""version": 5, "norm": 1e999"#, "updates[0].norm"),
        (r#""version": 5, "norm": 1.0"#, r#""version": 6, "norm": 1"#, "updates[0].version: is 6"),
        (r#""id": "b""#, r#""id": "b", "job": "k""#, "updates[1].job: is k"),
        (r#""from": "w0", "to": "S", "#, "", "reservations[0].from: is missing"),
        (r#""to_ns": 10"#, r#""to_ns": 0"#, "reservations[0].from_ns: is 0"),
        (r#""bytes_per_sec": 3"#, r#""bytes_per_sec": 0"#, "reservations[0].bytes_per_sec: is 0"),
        (
            r#""bytes_per_sec": 3"#,
            r#""bytes_per_sec": 6"#,
            "reservations[0].bytes_per_sec: is 6; the narrowest link of its path has 5",
        ),
        (r#""last""#, r#""first""#, "options.objective: unknown variant"),
        (r#""objective": "last""#, r#""theta": -1"#, "options.theta: is -1"),
    ];
    for (from, to, message) in rows {
        let got = refused(from, to);
        assert!(got.contains(message), "{to}: {got}");
    }
}

#[test]
fn numbers_that_json_cannot_hold_are_refused_from_programs_too() {
    let good = CaseSpec::from_json(GOOD).expect("a good case");
    let mut bad = good.clone();
    bad.updates[1].norm = Some(f64::NAN);
    assert!(Case::new(&bad).unwrap_err().to_string().starts_with("updates[1].norm: is NaN;"));
    let mut bad = good.clone();
    bad.servers[0].h_norm = f64::INFINITY;
    assert!(Case::new(&bad).unwrap_err().to_string().starts_with("servers[0].h_norm: is inf;"));
    let mut bad = good;
    bad.servers[0].momentum = f64::NAN;
    assert!(Case::new(&bad).unwrap_err().to_string().starts_with("servers[0].momentum: is NaN;"));
}

#[test]
fn text_behind_the_case_is_refused() {
    let error = Case::from_json(&format!("{GOOD} {{}}")).unwrap_err();
    assert!(error.to_string().starts_with("after the case"), "{error}");
}
