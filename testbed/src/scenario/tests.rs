//! The shipped scenarios, and the mistakes that a scenario may have.

use super::*;
use crate::workload::digits::TrainerConfig;

const DIGITS: &str = include_str!("../../scenarios/digits.toml");

#[test]
fn the_shipped_scenario_is_read() {
    let scenario = Scenario::parse("digits.toml", DIGITS).unwrap();
    assert_eq!((scenario.job.workers, scenario.job.rounds), (4, 150));
    assert_eq!(scenario.job.scale_exponent, ScaleExponent::Fixed(-20));
    assert_eq!(scenario.job.trainer(), TrainerConfig::default());
    let topology = scenario.topology(1).unwrap();
    assert_eq!(topology.hosts.len(), 5);
    assert_eq!(topology.links[0].shapes[0].unwrap().rate.bits_per_sec(), 1_000_000_000);
    let auto = DIGITS.replace("scale_exponent = -20", "scale_exponent = \"auto\"");
    let scenario = Scenario::parse("x", &auto).unwrap();
    assert_eq!(scenario.job.scale_exponent, ScaleExponent::Auto);
}

#[test]
fn mistakes_name_file_line_and_field() {
    let line = |needle: &str| {
        1 + DIGITS.lines().position(|line| line.starts_with(needle)).expect("a line")
    };
    let table = [
        ("workers = 4", "workers = 65", "job.workers", "1 to 64"),
        ("workers = 4", "workers = \"four\"", "job.workers", "invalid type"),
        ("workers = 4", "worker = 4", "job.worker", "unknown field `worker`"),
        ("rounds = 150", "rounds = 0", "job.rounds", "at least 1"),
        ("rounds = 150", "member_timeout_s = 0\nrounds = 150", "job.member_timeout_s", "1 to 3600"),
        ("batch = 32", "batch = 3200", "job.batch", "359 training images"),
        ("hidden = [256, 320]", "hidden = []", "job.hidden", "at least one layer"),
        ("momentum = 0.9", "momentum = 1.5", "job.momentum", "below 1"),
        ("element_type = \"i32\"", "element_type = \"i8\"", "job.element_type", "unknown variant"),
        ("scale_exponent = -20", "scale_exponent = 200", "job.scale_exponent", "\"auto\""),
        ("rate_mbit = 1000", "rate_mbit = 0", "lab.rate_mbit", "0.01"),
        ("mtu = 1500", "mtu = 64", "lab.mtu", "1280"),
        ("loss = 0.0", "loss = 1.0", "faults.loss", "below 1"),
        ("corrupt = 0.0", "corrupt = nan", "faults.corrupt", "probability"),
        ("corrupt = 0.0", "corrupted = 0.0", "faults.corrupted", "unknown field"),
    ];
    for (from, to, field, reason) in table {
        let error = Scenario::parse("d.toml", &DIGITS.replace(from, to)).unwrap_err();
        assert_eq!(error.line, line(from), "{error}");
        assert_eq!(error.field.as_deref(), Some(field), "{error}");
        let text = error.to_string();
        assert!(text.starts_with(&format!("d.toml:{}: {field}: ", error.line)), "{text}");
        assert!(text.contains(reason), "{text:?} lacks {reason:?}");
    }
}

#[test]
fn lanes_and_restarts_fit_their_run() {
    let parse = |more: &str| Scenario::parse("d.toml", &format!("{DIGITS}{more}"));
    let scenario = parse("[aggregation]\nlanes = 4\nleaves = 2\n").unwrap();
    assert_eq!(scenario.aggregation.lanes, 4);
    for (more, words) in [
        ("[aggregation]\nlanes = 3\n", "aggregation.lanes: is 3; expected a power of two"),
        ("[aggregation]\nlanes = 32\n", "at most 16"),
        ("[aggregation]\nlanes = 4\nwindow = 2\n", "and the window"),
        ("[[restart]]\nbox = \"a0\"\nafter_round = 150\n", "the last round is 149"),
        ("[[restart]]\nbox = \"a1\"\nafter_round = 1\n", "names no box: a1"),
    ] {
        let text = parse(more).unwrap_err().to_string();
        assert!(text.contains(words), "{text:?} lacks {words:?}");
    }
}

#[test]
fn a_missing_field_points_at_its_section() {
    let text = DIGITS.replace("batch = 32 ", "# ");
    let error = Scenario::parse("d.toml", &text).unwrap_err();
    assert!(error.reason.contains("`batch`"), "{error}");
    assert_eq!(error.field.as_deref(), Some("job"), "{error}");
    let error = Scenario::parse("d.toml", "name = \"x\"\n[job\n").unwrap_err();
    assert_eq!(error.line, 2, "{error}");
}
