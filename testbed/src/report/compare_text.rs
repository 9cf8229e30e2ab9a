//! Draws a comparison as tables of at most 80 columns: how long the policies took to the target
//! loss, and what their commits were like. No I/O.

use super::compare::CompareRow;
use super::fold::fold;
use super::render::duration;
use super::table::table;

/// The tables for people.
#[must_use]
pub fn compare_text(rows: &[CompareRow]) -> String {
    let laid = |head: &[&str], cells: &dyn Fn(&CompareRow) -> Vec<String>| {
        let head = head.iter().map(|word| (*word).to_owned()).collect();
        let lines: Vec<Vec<String>> = [head].into_iter().chain(rows.iter().map(cells)).collect();
        table(&lines)
    };
    let mut out = if let Some(target) = rows.iter().find_map(|row| row.target_loss) {
        let time = format!("to loss {target}, median");
        let head = ["policy", "runs", &time, "least .. most", "loss at the end"];
        let times = laid(&head, &time_to_loss);
        let head =
            ["policy", "commit, median", "p99", "commits/s", "delay", "max", "dropped", "limit"];
        format!("{times}\n{}", laid(&head, &commits))
    } else {
        let head = [
            "policy",
            "runs",
            "commit, median",
            "p99",
            "commits/s",
            "delay",
            "max",
            "dropped",
            "limit",
        ];
        laid(&head, &|row| {
            let mut cells = commits(row);
            cells.insert(1, runs(row));
            cells
        })
    };
    for row in rows {
        let mut note = |text: &str| out += &fold(&format!("{}: {text}\n", row.policy));
        if !row.bottleneck_evidence.is_empty() {
            note(&row.bottleneck_evidence);
        }
        if row.policy_failures > 0 {
            note(&format!("DEGRADED: the default policy made {} plans", row.policy_failures));
        }
        if !row.error.is_empty() {
            note(&format!("broken off: {}", row.error));
        }
    }
    out
}

fn runs(row: &CompareRow) -> String {
    format!("{}/{}", row.runs_ok, row.runs)
}

fn time_to_loss(row: &CompareRow) -> Vec<String> {
    let reached = row.runs.saturating_sub(row.runs_without_loss);
    let time = row.time_to_loss_s.map_or_else(
        || format!("{reached} of {} reached it", row.runs),
        |time| format!("{time:.2} s"),
    );
    let range = row.time_to_loss_min_s.zip(row.time_to_loss_max_s);
    vec![
        row.policy.clone(),
        runs(row),
        time,
        shown(range, |(least, most)| format!("{least:.2} .. {most:.2} s")),
        shown(row.final_loss, |loss| format!("{loss:.4}")),
    ]
}

fn commits(row: &CompareRow) -> Vec<String> {
    let number = |value: Option<f64>| shown(value, |value| format!("{value:.2}"));
    vec![
        row.policy.clone(),
        shown(row.mean_commit_ns, |value| duration(nanos(value))),
        shown(row.p99_ns, duration),
        number(row.commits_per_second),
        number(row.delay_mean),
        row.delay_max.to_string(),
        row.dropped.to_string(),
        row.bottleneck.replace('+', ", "),
    ]
}

fn shown<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time for people")]
fn nanos(value: f64) -> u64 {
    value.max(0.0) as u64
}
