//! Draws a push run's pictures as SVG, from the tables of its directory. No I/O: the caller writes
//! the files.

use std::collections::BTreeMap;

use plotters::prelude::*;

use super::losses::{LossCurves, loss_curve, losses_svg};
use super::page::{
    GREY, LETTERS, SIZE, SvgError, bound, colour, legend, line, page, room_for, seconds,
};
use super::{ReplicaRow, RunFiles, TransferRow, UpdateRow};

/// One picture: the name of its file, and what is in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Name of the file.
    pub file: &'static str,
    /// The SVG.
    pub svg: String,
}

/// All pictures that the tables hold something for.
///
/// # Errors
/// When the drawing library fails.
pub fn pictures(files: &RunFiles) -> Result<Vec<Picture>, SvgError> {
    let run = files.record.title();
    let mut all = Vec::new();
    if !files.updates.is_empty() {
        all.push(Picture { file: "delays.svg", svg: delays(&run, &files.updates)? });
        all.push(Picture { file: "gantt.svg", svg: gantt(&run, &files.transfers)? });
    }
    let curve: Vec<(f64, f64)> = loss_curve(files);
    if !curve.is_empty() {
        let push = files.record.outcome.as_ref().and_then(|outcome| outcome.push.as_ref());
        let kind = LossCurves {
            name: push.map_or_else(String::new, |push| push.policy.clone()),
            runs: vec![curve],
            reached_s: push.and_then(|push| push.time_to_loss_s),
        };
        let target = push.and_then(|push| push.target_loss);
        let svg = losses_svg(&format!("Loss of the model over time: {run}"), target, &[kind])?;
        all.push(Picture { file: "loss.svg", svg });
    }
    if !files.replica.is_empty() {
        all.push(Picture { file: "divergence.svg", svg: divergence(&run, &files.replica)? });
    }
    Ok(all)
}

/// How many committed updates had each delay.
fn delays(run: &str, updates: &[UpdateRow]) -> Result<String, SvgError> {
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    for delay in updates.iter().filter_map(|update| update.delay) {
        *counts.entry(u32::try_from(delay).unwrap_or(u32::MAX)).or_default() += 1;
    }
    let end = counts.keys().max().map_or(1, |delay| delay.saturating_add(1));
    let highest = counts.values().copied().max().unwrap_or(1);
    let title = format!("How late committed updates were: {run}");
    let note = format!("{} committed updates", counts.values().sum::<u64>());
    page(SIZE, &title, &note, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(48)
            .y_label_area_size(64)
            .build_cartesian_2d((0..end).into_segmented(), 0..highest + highest / 10 + 1)
            .map_err(SvgError::new)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .label_style(("sans-serif", LETTERS))
            .x_desc("delay: versions between the model of an update and its own commit")
            .y_desc("updates")
            .x_label_formatter(&|delay| match delay {
                SegmentValue::CenterOf(delay) | SegmentValue::Exact(delay) => delay.to_string(),
                SegmentValue::Last => String::new(),
            })
            .draw()
            .map_err(SvgError::new)?;
        let bars = counts.iter().map(|(delay, count)| {
            let corners =
                [(SegmentValue::Exact(*delay), 0), (SegmentValue::Exact(*delay + 1), *count)];
            let mut bar = Rectangle::new(corners, colour(0).filled());
            bar.set_margin(0, 0, 2, 2);
            bar
        });
        chart.draw_series(bars).map(drop).map_err(SvgError::new)
    })
}

/// Transfers as bars, a row for each pair of source and target.
fn gantt(run: &str, transfers: &[TransferRow]) -> Result<String, SvgError> {
    let mut rows: Vec<String> = transfers.iter().map(path).collect();
    rows.sort_unstable();
    rows.dedup();
    let begin = transfers.iter().map(|row| row.start_ns).min().unwrap_or(0);
    let end = bound(transfers.iter().map(|row| seconds(row.start_ns + row.duration_ns - begin)));
    let count = i32::try_from(rows.len()).unwrap_or(i32::MAX).max(1);
    let names = room_for(rows.iter().map(String::as_str));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few thousand")]
    let width = (f64::from(names) + SECOND_WIDTH * end)
        .clamp(*GANTT_WIDTH.start(), *GANTT_WIDTH.end()) as u32;
    let height = 150 + ROW_HEIGHT * u32::try_from(rows.len()).unwrap_or(100).clamp(4, 400);
    let title = format!("Who sent to whom, and when: {run}");
    let note = "a bar is a transfer, from its first frame to its last; neighbours in the order of \
                commits differ in colour; grey: never decided";
    page((width, height), &title, note, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(24)
            .x_label_area_size(48)
            .y_label_area_size(names)
            .build_cartesian_2d(0.0..end, (0..count).into_segmented())
            .map_err(SvgError::new)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(rows.len().max(1))
            .label_style(("sans-serif", LETTERS))
            .x_desc("seconds since the first transfer")
            .y_desc("sender > receiver")
            .y_label_formatter(&|row| match row {
                SegmentValue::CenterOf(row) | SegmentValue::Exact(row) => usize::try_from(*row)
                    .ok()
                    .and_then(|row| rows.get(row))
                    .cloned()
                    .unwrap_or_default(),
                SegmentValue::Last => String::new(),
            })
            .draw()
            .map_err(SvgError::new)?;
        let bars = transfers.iter().filter_map(|row| {
            let place = i32::try_from(rows.binary_search(&path(row)).ok()?).ok()?;
            let start = seconds(row.start_ns - begin);
            let stop = seconds(row.start_ns + row.duration_ns - begin);
            let colour = match row.order {
                Some(order) => colour(usize::try_from(order).unwrap_or(0)),
                None => GREY,
            };
            let corners =
                [(start, SegmentValue::Exact(place)), (stop, SegmentValue::Exact(place + 1))];
            let mut bar = Rectangle::new(corners, colour.mix(0.8).filled());
            bar.set_margin(2, 2, 0, 0);
            Some(bar)
        });
        chart.draw_series(bars).map(drop).map_err(SvgError::new)
    })
}

fn path(row: &TransferRow) -> String {
    format!("{} > {}", row.source, row.target)
}

/// The true distance of server and replica, and the bound that the server gave.
fn divergence(run: &str, replica: &[ReplicaRow]) -> Result<String, SvgError> {
    let distance: Vec<_> = replica.iter().map(|row| (seconds(row.t_ns), row.distance)).collect();
    let limit: Vec<_> =
        replica.iter().filter_map(|row| Some((seconds(row.t_ns), row.bound?))).collect();
    let end = bound(distance.iter().map(|point| point.0));
    let top = bound(distance.iter().chain(&limit).map(|point| point.1));
    let title = format!("How far the replica was behind the server: {run}");
    page(SIZE, &title, "a point each time one of the two models changed", |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(24)
            .x_label_area_size(48)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..end, 0.0..top)
            .map_err(SvgError::new)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .label_style(("sans-serif", LETTERS))
            .x_desc("seconds since the start of the run")
            .y_desc("distance of the models (Euclidean norm)")
            .draw()
            .map_err(SvgError::new)?;
        let lines = [("true distance", distance), ("bound by what the server knew", limit)];
        for (index, (name, points)) in lines.into_iter().enumerate() {
            line(&mut chart, index, name, points)?;
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    })
}

/// Widths of a Gantt chart, and of a second in it: short transfers stay apart.
const GANTT_WIDTH: std::ops::RangeInclusive<f64> = 900.0..=6000.0;
const SECOND_WIDTH: f64 = 60.0;
const ROW_HEIGHT: u32 = 24;
