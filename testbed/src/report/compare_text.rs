//! Draws a comparison as tables of at most 80 columns: how long the policies took to the target
//! loss, and what their commits were like. No I/O.

use std::fmt::Write as _;

use super::compare::CompareRow;
use super::render::duration;

/// The tables for people.
#[must_use]
pub fn compare_text(rows: &[CompareRow]) -> String {
    let mut out = String::new();
    if let Some(target) = rows.iter().find_map(|row| row.target_loss) {
        let time = format!("to loss {target}, median");
        let head = ["policy", "runs", &time, "least .. most", "loss at the end"];
        table(&mut out, &head, rows.iter().map(time_to_loss));
        out.push('\n');
        let head =
            ["policy", "commit, median", "p99", "commits/s", "delay", "max", "dropped", "limit"];
        table(&mut out, &head, rows.iter().map(commits));
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
        let with_runs = |row: &CompareRow| {
            let mut cells = commits(row);
            cells.insert(1, runs(row));
            cells
        };
        table(&mut out, &head, rows.iter().map(with_runs));
    }
    for row in rows {
        let mut note = |text: &str| folded(&mut out, &format!("{}: {text}", row.policy));
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

/// Columns as wide as their widest cell; a long name in the first has a line of its own.
fn table(out: &mut String, head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let mut lines: Vec<Vec<String>> = vec![head.iter().map(|word| (*word).to_owned()).collect()];
    for mut cells in rows {
        if cells[0].chars().count() > NAME_MAX {
            lines.push(vec![std::mem::take(&mut cells[0])]);
        }
        lines.push(cells);
    }
    let width = |column: usize| {
        let cells = lines.iter().filter(|line| line.len() > 1).filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    for line in &lines {
        let mut text = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(text, "{cell:<width$}  ");
        }
        let _ = writeln!(out, "{}", text.trim_end());
    }
}

/// Writes a sentence in lines of at most 80 columns.
fn folded(out: &mut String, text: &str) {
    let mut width = 0;
    for word in text.split(' ') {
        let len = word.chars().count();
        if width > 0 && width + 1 + len > WIDTH {
            out.push_str("\n   ");
            width = 3;
        }
        if width > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += len;
    }
    out.push('\n');
}

fn shown<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time for people")]
fn nanos(value: f64) -> u64 {
    value.max(0.0) as u64
}

/// Columns of a terminal.
const WIDTH: usize = 80;
/// Letters of a policy's name that fit into its column.
const NAME_MAX: usize = 16;
