//! The result of a measurement: each link's estimate beside its truth.

use std::fmt::Write as _;

use serde::Serialize;
use weft_plan::net::estimate::{Bound, Estimator};
use weft_plan::net::topology::LinkId;

use super::network::Network;

/// All that a measurement found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Version of these fields.
    pub schema: u32,
    /// How long it probed.
    pub seconds: f64,
    /// A row for each direction of each link.
    pub links: Vec<Row>,
    /// The largest error of a row that has one.
    pub worst_error_percent: Option<f64>,
    /// Estimates that moved by more than a fifth.
    pub changes: Vec<Change>,
    /// Trains sent.
    pub trains: u64,
    /// The largest share of a link that they took, over 10 s or longer.
    pub probe_share_max: f64,
    /// Inputs that the estimator refused as senseless.
    pub refused: u64,
    /// Trains that were too short, or came in bursts.
    pub unused: u64,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The host, or the switch of a rack.
    pub host: String,
    /// `up` or `down`.
    pub direction: &'static str,
    /// What is estimated to be available.
    pub estimate_mbit: Option<f64>,
    /// What a path can have of it by the lab's shaping, less cross traffic.
    pub truth_mbit: Option<f64>,
    /// The difference in per cent of the truth. A lower bound above that is right as long as the
    /// link itself has that much free.
    pub error_percent: Option<f64>,
    /// `measured`, or `at_least` where nothing faster was there to try it with.
    pub bound: Option<&'static str>,
    /// What the link carries when saturated.
    pub capacity_mbit: Option<f64>,
    /// What others put on it.
    pub background_mbit: Option<f64>,
    /// 0 to 1.
    pub confidence: f64,
}

/// An estimate that moved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Since the first train.
    pub at_ms: u64,
    /// The host or rack.
    pub link: String,
    /// `up` or `down`.
    pub direction: &'static str,
    /// Available before.
    pub before_mbit: f64,
    /// Available now.
    pub after_mbit: f64,
}

impl Report {
    pub(super) fn new(network: &Network, estimator: &Estimator, now_ns: u64, seconds: f64) -> Self {
        let links = u32::try_from(estimator.topology().link_count()).unwrap_or(0);
        let rows: Vec<Row> =
            (0..links).map(|link| row(network, estimator, now_ns, LinkId(link))).collect();
        let worst = rows.iter().filter_map(|row| row.error_percent).map(f64::abs);
        let refused = estimator.refused();
        Self {
            schema: 1,
            seconds,
            worst_error_percent: worst.reduce(f64::max),
            links: rows,
            changes: Vec::new(),
            trains: 0,
            probe_share_max: 0.0,
            refused: refused.absurd + refused.backwards + refused.no_path,
            unused: refused.short + refused.uneven,
        }
    }

    pub(super) fn with(mut self, changes: Vec<Change>, trains: u64, probe_share_max: f64) -> Self {
        self.changes = changes;
        self.trains = trains;
        self.probe_share_max = probe_share_max;
        self
    }

    /// Rows whose error is beyond `percent`, or that have a truth and no estimate.
    pub fn beyond(&self, percent: f64) -> impl Iterator<Item = &Row> {
        self.links.iter().filter(move |row| {
            let judged = row.truth_mbit.is_some() && !row.is_unlimiting();
            judged && row.error_percent.is_none_or(|error| error.abs() > percent)
        })
    }

    /// The table.
    #[must_use]
    pub fn text(&self) -> String {
        let number =
            |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.1}"));
        let mut text = format!(
            "{:<8} {:<4} {:>8} {:>8} {:>7}  {:<8} {:>8} {:>10} {:>10}\n",
            "host",
            "dir",
            "estimate",
            "truth",
            "error",
            "bound",
            "capacity",
            "background",
            "confidence"
        );
        for row in &self.links {
            let error =
                row.error_percent.map_or_else(|| "-".to_owned(), |error| format!("{error:+.1}%"));
            let _ = writeln!(
                text,
                "{:<8} {:<4} {:>8} {:>8} {:>7}  {:<8} {:>8} {:>10} {:>10.2}",
                row.host,
                row.direction,
                number(row.estimate_mbit),
                number(row.truth_mbit),
                error,
                row.bound.unwrap_or("-"),
                number(row.capacity_mbit),
                number(row.background_mbit),
                row.confidence,
            );
        }
        for change in &self.changes {
            let Change { at_ms, link, direction, before_mbit, after_mbit } = change;
            let _ = writeln!(
                text,
                "at {at_ms} ms: {link} {direction} from {before_mbit:.1} to {after_mbit:.1}"
            );
        }
        let _ = writeln!(
            text,
            "Mbit/s, Ethernet headers included; {} trains in {:.1} s took at most {:.2}% of a link",
            self.trains,
            self.seconds,
            self.probe_share_max * 100.0
        );
        text
    }
}

impl Row {
    /// A rack's link that no path was limited by: a lower bound that nobody plans with.
    fn is_unlimiting(&self) -> bool {
        self.error_percent.is_none() && self.estimate_mbit.is_some()
    }
}

fn row(network: &Network, estimator: &Estimator, now_ns: u64, link: LinkId) -> Row {
    let (host, _, up) = network.link(link);
    let estimate = estimator.estimate(now_ns, link);
    let mbit = |bytes_per_sec: f64| bytes_per_sec / 125e3;
    let estimate_mbit = estimate.map(|estimate| mbit(estimate.available_bytes_per_sec));
    let truth_mbit = network.truth_bits_per_sec(link).map(|bits| bits / 1e6);
    let at_rack = link.index() >= network.hosts.len() * 2;
    let bound = estimate.map(|estimate| estimate.bound);
    let judged = !(at_rack && bound == Some(Bound::AtLeast));
    let free_mbit = network.free_bits_per_sec(link).map_or(0.0, |bits| bits / 1e6);
    let error_percent = |(estimate, truth): (f64, f64)| {
        let most = if bound == Some(Bound::AtLeast) { free_mbit.max(truth) } else { truth };
        (estimate / estimate.clamp(truth, most) - 1.0) * 100.0
    };
    let error = estimate_mbit.zip(truth_mbit).filter(|_| judged);
    Row {
        host: host.to_owned(),
        direction: if up { "up" } else { "down" },
        estimate_mbit,
        truth_mbit,
        error_percent: error.map(error_percent),
        bound: bound.map(|bound| match bound {
            Bound::Measured => "measured",
            Bound::AtLeast => "at_least",
            Bound::Fallen => "fallen",
        }),
        capacity_mbit: estimate.map(|estimate| mbit(estimate.capacity_bytes_per_sec)),
        background_mbit: estimate.map(|estimate| mbit(estimate.background_bytes_per_sec)),
        confidence: estimate.map_or(0.0, |estimate| estimate.confidence),
    }
}
