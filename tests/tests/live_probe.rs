//! `weft probe` against links that HTB shapes: alone, beside cross traffic, four at once, after a
//! step, and with a rack's uplink as the bottleneck.
//!
//! Needs `weft` beside this test (`.ci/test` builds it), and namespaces. Every measurement starts
//! from nothing and probes for one second (after a step: for one second more). The mark is 5 % of
//! the truth; available is the link's rate less the rate at which UDP is offered by others.
//!
//! A loaded machine may hold a shaper's timer up for longer than a train lasts, or iperf3 back, so
//! a measurement that misses is repeated, at most four times, each time after a longer pause; an
//! estimator that is wrong misses every time. `.ci/test` runs these tests one at a time.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use weft_tests::live::run::weft;
use weft_tests::live::{has_lab, skip};

const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);
const RATES: &str = "--rates=100,100,100,100";

/// Runs `weft probe` until every estimate is within the mark and what else the report says is as
/// `check` wants it.
///
/// # Panics
/// With what every run missed.
fn within_the_mark(test: &str, arguments: &[&str], check: impl Fn(&Value) -> Result<(), String>) {
    let mut missed = Vec::new();
    for attempt in 0..TRIES {
        std::thread::sleep(PAUSE * attempt);
        let mut all = vec!["probe", "--format=json", "--within=5"];
        all.extend(arguments);
        let ended = weft(&all, PATIENCE);
        let report = ended.json.unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
        assert_eq!(report["refused"], 0);
        // Null: a link without any estimate.
        let worst = report["worst_error_percent"].as_f64().unwrap_or(f64::INFINITY);
        if ended.code != Some(0) {
            assert_eq!(ended.code, Some(1), "{}", ended.stderr);
            assert!(ended.stderr.contains("is not within 5%"), "{}", ended.stderr);
            missed.push(format!("an error of {worst:.2}%"));
            continue;
        }
        assert!(worst <= 5.0, "exit 0 with an error of {worst}%");
        // The share is of what was found, so it says something where that is near the truth.
        let share = report["probe_share_max"].as_f64().expect("a number");
        assert!(share <= 0.0125, "probes took {share} of a link");
        match check(&report) {
            Ok(()) => {
                return eprintln!("{test}: worst error {worst:.2}%; missed before: {missed:?}");
            }
            Err(miss) => missed.push(miss),
        }
    }
    panic!("{test}: no run of {TRIES} was as it should be: {missed:#?}");
}

fn check(holds: bool, miss: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(miss()) }
}

fn row<'r>(report: &'r Value, host: &str, direction: &str) -> &'r Value {
    let rows = report["links"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["host"] == host && row["direction"] == direction);
    row.unwrap_or_else(|| panic!("no row {host} {direction}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn quiet_links_are_known_after_a_second() {
    let test = "quiet_links_are_known_after_a_second";
    if !has_lab(test) {
        return;
    }
    within_the_mark(test, &[RATES, "--seconds=1"], |report| {
        assert_eq!(report["links"].as_array().map(Vec::len), Some(8));
        let confidence = number(&row(report, "w2", "up")["confidence"]);
        check(confidence > 0.3, || format!("a confidence of {confidence}"))
    });
}

#[test]
fn unequal_links_are_told_apart() {
    let test = "unequal_links_are_told_apart";
    if !has_lab(test) {
        return;
    }
    within_the_mark(test, &["--rates=20:40,50:100,100:50,200", "--seconds=1"], |report| {
        let (slow, fast) = (row(report, "w0", "up"), row(report, "w3", "up"));
        assert_eq!(number(&slow["truth_mbit"]), 20.0);
        // Nobody takes in as much as w3 can send.
        assert_eq!(number(&fast["truth_mbit"]), 100.0);
        check(slow["bound"] == "measured" && fast["bound"] == "at_least", || {
            format!("w0 up is {}, w3 up {}", slow["bound"], fast["bound"])
        })
    });
}

/// w0 sends 30 Mbit/s of UDP to w2: that much is taken on w0's uplink and w2's downlink.
fn check_cross(report: &Value) -> Result<(), String> {
    assert_eq!(number(&row(report, "w1", "up")["truth_mbit"]), 100.0);
    for (host, direction) in [("w0", "up"), ("w2", "down")] {
        let row = row(report, host, direction);
        assert_eq!(number(&row["truth_mbit"]), 70.0);
        let background = number(&row["background_mbit"]);
        check((background - 30.0).abs() < 3.0, || {
            format!("{host} {direction}: {background} Mbit/s of others")
        })?;
    }
    Ok(())
}

#[test]
fn what_others_send_is_not_available() {
    let test = "what_others_send_is_not_available";
    if !has_lab(test) {
        return;
    }
    within_the_mark(test, &[RATES, "--seconds=1", "--cross=w0/w2:30"], check_cross);
}

#[test]
fn what_iperf3_sends_is_not_available() {
    let test = "what_iperf3_sends_is_not_available";
    if !has_lab(test) {
        return;
    }
    if !Command::new("iperf3").arg("--version").output().is_ok_and(|o| o.status.success()) {
        skip(test, "iperf3 is not installed");
        return;
    }
    let arguments = [RATES, "--seconds=1", "--cross=w0/w2:30", "--cross-tool=iperf3"];
    within_the_mark(test, &arguments, check_cross);
}

/// The link that nobody can fill carries what others send beside what its partners can take.
#[test]
fn what_iperf3_sends_over_a_faster_link_is_not_taken_twice() {
    let test = "what_iperf3_sends_over_a_faster_link_is_not_taken_twice";
    if !has_lab(test) {
        return;
    }
    if !Command::new("iperf3").arg("--version").output().is_ok_and(|o| o.status.success()) {
        skip(test, "iperf3 is not installed");
        return;
    }
    let rates = "--rates=40,80,160,320";
    let arguments = [rates, "--seconds=1", "--cross=w3/w1:50", "--cross-tool=iperf3"];
    within_the_mark(test, &arguments, |report| {
        let fast = row(report, "w3", "up");
        assert_eq!(number(&fast["truth_mbit"]), 160.0);
        check(fast["bound"] == "at_least", || format!("w3 up is {}", fast["bound"]))
    });
}

#[test]
fn four_hosts_may_probe_at_once() {
    let test = "four_hosts_may_probe_at_once";
    if !has_lab(test) {
        return;
    }
    within_the_mark(test, &[RATES, "--seconds=1", "--together"], |_| Ok(()));
}

#[test]
fn half_a_link_is_missed_within_a_second() {
    let test = "half_a_link_is_missed_within_a_second";
    if !has_lab(test) {
        return;
    }
    within_the_mark(test, &[RATES, "--seconds=4", "--step=w1:50@3"], |report| {
        for direction in ["up", "down"] {
            let row = row(report, "w1", direction);
            assert_eq!(number(&row["truth_mbit"]), 50.0);
            let told = report["changes"].as_array().expect("changes").iter().any(|change| {
                change["link"] == "w1"
                    && change["direction"] == direction
                    && number(&change["at_ms"]) > 3000.0
            });
            check(told && row["bound"] == "measured", || {
                format!("w1 {direction}: {}, changes {}", row["bound"], report["changes"])
            })?;
        }
        Ok(())
    });
}

const RACKS: &str = r#"{
    "hosts": {"w0": {"ip": "10.0.0.1/24"}, "w1": {"ip": "10.0.0.2/24"},
              "w2": {"ip": "10.0.0.3/24"}, "w3": {"ip": "10.0.0.4/24"}},
    "switches": {"r0": {}, "r1": {}, "s0": {}},
    "links": [["w0", "r0", {"bw": 100}], ["w1", "r0", {"bw": 100}],
              ["w2", "r1", {"bw": 100}], ["w3", "r1", {"bw": 100}],
              ["r0", "s0", {"bw": 60, "bw_reverse": 400}], ["r1", "s0", {"bw": 400}]]
}"#;

#[test]
fn a_racks_uplink_is_not_put_down_to_its_hosts() {
    let test = "a_racks_uplink_is_not_put_down_to_its_hosts";
    if !has_lab(test) {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("racks.json");
    std::fs::write(&file, RACKS).expect("a topology");
    let scenario = format!("--scenario={}", file.display());
    within_the_mark(test, &[&scenario, "--seconds=1"], |report| {
        for host in ["w0", "w1"] {
            assert_eq!(number(&row(report, host, "up")["truth_mbit"]), 100.0);
        }
        let (uplink, down) = (row(report, "r0", "up"), row(report, "r0", "down"));
        assert_eq!(number(&uplink["truth_mbit"]), 60.0);
        check(uplink["bound"] == "measured" && down["bound"] == "at_least", || {
            format!("r0 up is {}, r0 down {}", uplink["bound"], down["bound"])
        })
    });
}

#[test]
fn wrong_arguments_and_wrong_labs_are_told_apart() {
    let code = |arguments: &[&str]| {
        let ended = weft(arguments, PATIENCE);
        (ended.code, ended.stderr)
    };
    let (usage, message) = code(&["probe", "--rates=fast"]);
    assert!(usage == Some(2) && message.contains("Mbit/s"), "{message}");
    assert_eq!(code(&["probe"]).0, Some(2));
    assert_eq!(code(&["probe", RATES, "--seconds=nan"]).0, Some(2));
    assert_eq!(code(&["probe", RATES, "--step=w0:50"]).0, Some(2));
    if has_lab("wrong_arguments_and_wrong_labs_are_told_apart") {
        let (no_host, message) = code(&["probe", "--rates=100,100", "--cross=w9:1"]);
        assert!(no_host == Some(2) && message.contains("no host `w9`"), "{message}");
        // A mark that nothing can meet fails.
        let (missed, message) =
            code(&["probe", "--rates=50,50", "--seconds=0.5", "--within=0.000001"]);
        assert!(missed == Some(1) && message.contains("is not within"), "{message}");
    }
}
