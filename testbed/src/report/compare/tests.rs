use super::super::tests::{finished, outcome};
use super::super::{PushOutcome, RunOutcome, compare_text};
use super::*;

#[test]
fn a_spread_by_hand() {
    let spread = Spread::of(&[1.0, 2.0, 6.0]);
    assert_eq!((spread.count, spread.median, spread.mean), (3, 2.0, 3.0));
    // Deviation sqrt(7), over sqrt(3), times 4.303.
    let half = spread.half_interval_95.unwrap();
    assert!((half - 4.303 * (7.0_f64 / 3.0).sqrt()).abs() < 1e-9, "{half}");
    assert_eq!(spread.range, Some([1.0, 6.0]));
    assert_eq!(Spread::of(&[5.0]).half_interval_95, None);
    assert_eq!(Spread::of(&[1.0, 4.0]).median, 2.5);
    assert_eq!(Spread::of(&[]).count, 0);
}

#[test]
fn a_policy_that_was_broken_off_has_a_row_without_figures() {
    let runs = [
        ("exec:./crash".to_owned(), Err("the run ended with status 1".to_owned())),
        ("exec:./crash".to_owned(), Err("the run ended by a signal".to_owned())),
    ];
    let rows: Vec<CompareRow> = compare(&runs).iter().map(CompareRow::from).collect();
    let json = serde_json::to_value(&rows).unwrap();
    assert_eq!((&json[0]["policy"], &json[0]["runs"]), (&"exec:./crash".into(), &2.into()));
    for key in ["mean_commit_ns", "p99_ns", "time_to_loss_s"] {
        assert_eq!(json[0][key], serde_json::Value::Null, "{key}");
    }
    assert_eq!(json[0]["policy_failures"], 0);
    let text = compare_text(&rows);
    assert!(text.contains("broken off: the run ended with status 1; the run ended by"), "{text}");
    let back: Vec<CompareRow> = serde_json::from_value(json).unwrap();
    assert_eq!(back, rows);
}

/// One run per time; `None` did not reach the loss.
fn reached(policy: &str, times: &[Option<f64>]) -> Vec<(String, Ended)> {
    let run = |time_to_loss_s: &Option<f64>| {
        let mut files = finished();
        let push = PushOutcome {
            mean_commit_ns: Some(342_700_000.0),
            target_loss: Some(0.5),
            time_to_loss_s: *time_to_loss_s,
            final_loss: Some(0.4875),
            ..PushOutcome::default()
        };
        files.record.outcome = Some(RunOutcome { push: Some(push), ..outcome() });
        (policy.to_owned(), Ok(files))
    };
    times.iter().map(run).collect()
}

fn rows(runs: &[(String, Ended)]) -> Vec<CompareRow> {
    compare(runs).iter().map(CompareRow::from).collect()
}

#[test]
fn the_time_to_a_loss_is_a_median_of_all_runs_or_null() {
    let all = rows(&reached("fifo", &[Some(14.0), Some(12.5), Some(13.0)]));
    let [least, median, most] = [12.5, 13.0, 14.0].map(Some);
    assert_eq!((all[0].time_to_loss_s, all[0].runs_without_loss), (median, 0));
    assert_eq!((all[0].time_to_loss_min_s, all[0].time_to_loss_max_s), (least, most));
    let two = rows(&reached("fifo", &[Some(14.0), None, Some(13.0)]));
    assert_eq!((two[0].time_to_loss_s, two[0].runs_without_loss), (None, 1));
    assert_eq!((two[0].time_to_loss_mean_s, two[0].time_to_loss_min_s), (None, None));
    let mut broken = reached("fifo", &[Some(14.0)]);
    broken.push(("fifo".to_owned(), Err("the run was refused".to_owned())));
    let broken = rows(&broken);
    assert_eq!((broken[0].time_to_loss_s, broken[0].runs_without_loss), (None, 1));
}

#[test]
fn the_table_begins_with_the_time_to_the_loss_and_fits_80_columns() {
    let policy = "exec:python3 docs/policies/oldest_first.py --and-a-long-option";
    let runs = [
        reached("mlfabric", &[Some(12.0), Some(12.5), Some(13.0)]),
        reached(policy, &[Some(12.0), None]),
    ];
    let text = compare_text(&rows(&runs.concat()));
    let expected = format!(
        "\
policy    runs  to loss 0.5, median  least .. most     loss at the end
mlfabric  3/3   12.50 s              12.00 .. 13.00 s  0.4875
{policy}
          2/2   1 of 2 reached it    -                 0.4875

policy    commit, median  p99  commits/s  delay  max  dropped  limit
"
    );
    assert!(text.starts_with(&expected), "{text}");
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{text}");
}
