//! Draws the view as text, for `--once`. Pure.

use std::fmt::Write as _;

use weft_control::figures::DropReason;

use super::view::View;
use crate::report::table;

/// The view for people.
#[must_use]
pub fn text(view: &View) -> String {
    let mut out = format!("up {:.1} s, {} plans\n", view.uptime_s, view.plans);
    for (title, head, rows) in sections(view) {
        if rows.is_empty() {
            continue;
        }
        let head = head.iter().map(|word| (*word).to_owned()).collect();
        let rows: Vec<Vec<String>> = [head].into_iter().chain(rows).collect();
        // Writing to a string does not fail.
        let _ = write!(out, "\n{title}\n{}", table(&rows));
    }
    out
}

/// A section: its title, its head, its rows.
pub(super) type Section = (&'static str, &'static [&'static str], Vec<Vec<String>>);

/// Everything that is shown, in its order; the same on the screen and in text.
pub(super) fn sections(view: &View) -> Vec<Section> {
    vec![
        ("jobs", JOBS, view.jobs.iter().map(job).collect()),
        ("allreduces", REDUCES, view.reduces.iter().map(reduce).collect()),
        ("bands", BANDS, view.bands.iter().map(|line| band(line, view)).collect()),
        ("queues", QUEUES, view.queues.iter().map(queue).collect()),
        ("links", LINKS, view.links.iter().map(link).collect()),
        ("groups", GROUPS, view.groups.iter().map(group).collect()),
        ("stragglers", STRAGGLERS, view.stragglers.iter().map(straggler).collect()),
        ("drops", DROPS, view.drops.iter().map(dropped).collect()),
        ("remedies", REMEDIES, view.drops.iter().filter_map(remedy).collect()),
        ("boxes", BOXES, view.nodes.iter().map(node).collect()),
    ]
}

const JOBS: &[&str] =
    &["job", "state", "version", "commits/s", "asked", "flying", "commit", "boxes", "workers"];
const REDUCES: &[&str] = &["job", "state", "round", "rounds/s", "workers", "resizes", "pauses"];
const BANDS: &[&str] = &["band", "jobs"];
const QUEUES: &[&str] =
    &["box", "band", "sends", "frames", "lost", "aged", "waiting", "oldest", "longest"];
const LINKS: &[&str] = &["host", "sends", "of Mb/s", "receives", "of Mb/s", "known"];
const GROUPS: &[&str] = &["job", "order", "group", "ranks", "via", "state", "age"];
const STRAGGLERS: &[&str] = &["job", "rank", "host", "behind", "commits", "open", "asked ago"];
const DROPS: &[&str] = &["of", "what", "count"];
const REMEDIES: &[&str] = &["box", "drops"];
const BOXES: &[&str] = &["box", "stream", "events", "commands"];

fn job(line: &super::JobLine) -> Vec<String> {
    let server = if line.is_server_attached { "" } else { ", no server" };
    vec![
        line.job.clone(),
        format!("{}{server}", line.state),
        line.version.to_string(),
        shown(line.commits_per_s, 1),
        line.pending.to_string(),
        line.in_flight.to_string(),
        format!("{:.1} ms", line.commit_mean_ms),
        format!("{:.0} %", line.aggregated_share * 100.0),
        format!("{}/{}", line.workers_attached, line.workers),
    ]
}

fn reduce(line: &super::ReduceLine) -> Vec<String> {
    let refusing = if line.refusing.is_empty() { "" } else { ", no lease" };
    vec![
        line.job.clone(),
        format!("{}{refusing}", line.state),
        line.next_round.to_string(),
        shown(line.rounds_per_s, 1),
        format!("{}/{}", line.workers_attached, line.workers),
        line.resizes.to_string(),
        line.pauses.to_string(),
    ]
}

/// The jobs of a band, and what is not as it is to be.
fn band(line: &super::BandLine, view: &View) -> Vec<String> {
    let named = |name: &String| {
        let job = view.jobs.iter().find(|job| job.job == *name && job.band == Some(line.band));
        match job.map(|job| (job.band_boxes_awaited, job.band_refused.as_str())) {
            None | Some((0, "")) => name.clone(),
            Some((awaited, "")) => format!("{name} ({awaited} to answer)"),
            Some((_, refused)) => format!("{name} (refused by {refused})"),
        }
    };
    let jobs: Vec<String> = line.jobs.iter().map(named).collect();
    vec![line.band.to_string(), jobs.join(", ")]
}

fn queue(line: &super::QueueLine) -> Vec<String> {
    let kilobytes = line.waiting_bytes as f64 / 1e3;
    vec![
        line.node.clone(),
        line.band.clone(),
        line.sent_mbit.map_or_else(|| "-".to_owned(), |mbit| format!("{mbit:.1} Mb/s")),
        line.sent.to_string(),
        line.full.to_string(),
        line.aged.to_string(),
        format!("{} ({kilobytes:.1} kB)", line.waiting),
        format!("{:.1} ms", line.oldest_ms),
        format!("{:.1} ms", line.wait_max_ms),
    ]
}

fn link(line: &super::LinkLine) -> Vec<String> {
    vec![
        line.host.clone(),
        shown(line.sent_mbit, 1),
        format!("{:.1}", line.up_mbit),
        shown(line.received_mbit, 1),
        format!("{:.1}", line.down_mbit),
        format!("{:.0} %", line.confidence * 100.0),
    ]
}

fn group(line: &super::GroupLine) -> Vec<String> {
    let ranks: Vec<String> = line.ranks.iter().map(ToString::to_string).collect();
    let late = if line.is_late { ", late" } else { "" };
    vec![
        line.job.clone(),
        line.order.to_string(),
        line.group.to_string(),
        ranks.join(","),
        if line.via.is_empty() { "-".to_owned() } else { line.via.clone() },
        format!("{}{late}", line.state),
        format!("{:.0} ms", line.age_ms),
    ]
}

fn straggler(line: &super::StragglerLine) -> Vec<String> {
    let gone = if line.is_attached { "" } else { " (gone)" };
    vec![
        line.job.clone(),
        line.rank.to_string(),
        format!("{}{gone}", line.host),
        format!("{:.1} ms", line.lag_mean_ms),
        line.committed.to_string(),
        line.outstanding.to_string(),
        line.asked_ago_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0} ms")),
    ]
}

fn dropped(line: &super::DropLine) -> Vec<String> {
    let of = match (line.job.as_str(), line.node.as_str()) {
        ("", "") => "(controller)",
        ("", node) => node,
        (job, _) => job,
    };
    vec![of.to_owned(), line.what.clone(), line.count.to_string()]
}

/// Returns the remedy for frames that a box refuses, if there is one.
fn remedy(line: &super::DropLine) -> Option<Vec<String>> {
    let (reason, _) = DropReason::ALL.iter().find(|(_, name)| *name == line.what)?;
    let remedy = reason.remedy().filter(|_| !line.node.is_empty())?;
    Some(vec![line.node.clone(), remedy])
}

fn node(line: &super::NodeLine) -> Vec<String> {
    let stream = if line.is_attached { "yes" } else { "no" };
    vec![line.node.clone(), stream.to_owned(), line.events.to_string(), line.commands.to_string()]
}

fn shown(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}
