//! Draws a push run's pictures as SVG, from the tables of its directory. No I/O: the caller writes
//! the files.

use std::collections::BTreeMap;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::svg::SvgError;
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
pub fn pictures(title: &str, files: &RunFiles) -> Result<Vec<Picture>, SvgError> {
    let mut all = Vec::new();
    if !files.updates.is_empty() {
        all.push(Picture { file: "delays.svg", svg: delays(title, &files.updates)? });
        all.push(Picture { file: "gantt.svg", svg: gantt(title, &files.transfers)? });
    }
    let curve: Vec<(f64, f64)> = loss_curve(files);
    if !curve.is_empty() {
        let lines = [Line { name: "held-out loss".to_owned(), points: curve }];
        all.push(Picture { file: "loss.svg", svg: losses(title, &lines)? });
    }
    if !files.replica.is_empty() {
        all.push(Picture { file: "divergence.svg", svg: divergence(title, &files.replica)? });
    }
    Ok(all)
}

/// Held-out loss against seconds.
#[must_use]
pub fn loss_curve(files: &RunFiles) -> Vec<(f64, f64)> {
    let point = |row: &super::CommitRow| row.loss.map(|loss| (seconds(row.t_ns), loss));
    files.commits.iter().filter_map(point).collect()
}

/// A named line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// What it is.
    pub name: String,
    /// Seconds and values.
    pub points: Vec<(f64, f64)>,
}

/// Loss against time; lines of one name have one colour.
///
/// # Errors
/// When the drawing library fails.
pub fn losses(title: &str, lines: &[Line]) -> Result<String, SvgError> {
    let end = bound(lines.iter().flat_map(|line| &line.points).map(|point| point.0));
    let top = bound(lines.iter().flat_map(|line| &line.points).map(|point| point.1));
    let mut names: Vec<&str> = Vec::new();
    for line in lines {
        if !names.contains(&line.name.as_str()) {
            names.push(&line.name);
        }
    }
    draw(|root| {
        let mut chart = ChartBuilder::on(root)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..end, 0.0..top)
            .map_err(SvgError::new)?;
        chart
            .configure_mesh()
            .x_desc("seconds")
            .y_desc("loss over the held-out images")
            .draw()
            .map_err(SvgError::new)?;
        for (index, name) in names.iter().enumerate() {
            let colour = Palette99::pick(index).stroke_width(2);
            for (position, line) in lines.iter().filter(|line| line.name == *name).enumerate() {
                let series = LineSeries::new(line.points.iter().copied(), colour);
                let drawn = chart.draw_series(series).map_err(SvgError::new)?;
                if position == 0 {
                    drawn
                        .label(*name)
                        .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour));
                }
            }
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()
            .map_err(SvgError::new)
    })
}

/// How many committed updates had each delay.
fn delays(title: &str, updates: &[UpdateRow]) -> Result<String, SvgError> {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for delay in updates.iter().filter_map(|update| update.delay) {
        *counts.entry(delay).or_default() += 1;
    }
    let end = counts.keys().max().map_or(1, |delay| delay + 1);
    let highest = counts.values().copied().max().unwrap_or(1);
    draw(|root| {
        let mut chart = ChartBuilder::on(root)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(56)
            .build_cartesian_2d(0..end, 0..highest + highest / 10 + 1)
            .map_err(SvgError::new)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_desc("delay: versions committed between an update's model and its own commit")
            .y_desc("updates")
            .draw()
            .map_err(SvgError::new)?;
        let bars = counts.iter().map(|(delay, count)| {
            Rectangle::new([(*delay, 0), (*delay + 1, *count)], BLUE.mix(0.6).filled())
        });
        chart.draw_series(bars).map(drop).map_err(SvgError::new)
    })
}

/// Transfers as bars, a row for each pair of source and target.
fn gantt(title: &str, transfers: &[TransferRow]) -> Result<String, SvgError> {
    let mut rows: Vec<String> = transfers.iter().map(path).collect();
    rows.sort_unstable();
    rows.dedup();
    // A minute of transfers would be a grey block; the beginning shows the pattern.
    let begin = transfers.iter().map(|row| row.start_ns).min().unwrap_or(0);
    let shown: Vec<&TransferRow> =
        transfers.iter().filter(|row| row.start_ns - begin < GANTT_NS).collect();
    let end = bound(shown.iter().map(|row| seconds(row.start_ns + row.duration_ns - begin)));
    let count = i32::try_from(rows.len()).unwrap_or(i32::MAX).max(1);
    draw(|root| {
        let mut chart = ChartBuilder::on(root)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(110)
            .build_cartesian_2d(0.0..end, (0..count).into_segmented())
            .map_err(SvgError::new)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(rows.len().max(1))
            .x_desc("seconds; colours tell order numbers apart")
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
        let bars = shown.iter().filter_map(|row| {
            let place = i32::try_from(rows.binary_search(&path(row)).ok()?).ok()?;
            let start = seconds(row.start_ns - begin);
            let stop = seconds(row.start_ns + row.duration_ns - begin);
            let colour = match row.order {
                Some(order) => Palette99::pick(usize::try_from(order).unwrap_or(0)).mix(0.7),
                None => BLACK.mix(0.3),
            };
            let corners =
                [(start, SegmentValue::Exact(place)), (stop, SegmentValue::Exact(place + 1))];
            let mut bar = Rectangle::new(corners, colour.filled());
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
fn divergence(title: &str, replica: &[ReplicaRow]) -> Result<String, SvgError> {
    let distance: Vec<_> = replica.iter().map(|row| (seconds(row.t_ns), row.distance)).collect();
    let limit: Vec<_> =
        replica.iter().filter_map(|row| Some((seconds(row.t_ns), row.bound?))).collect();
    let end = bound(distance.iter().map(|point| point.0));
    let top = bound(distance.iter().chain(&limit).map(|point| point.1));
    draw(|root| {
        let mut chart = ChartBuilder::on(root)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..end, 0.0..top)
            .map_err(SvgError::new)?;
        chart
            .configure_mesh()
            .x_desc("seconds")
            .y_desc("distance of the models")
            .draw()
            .map_err(SvgError::new)?;
        for (name, points, colour) in
            [("true distance", distance, BLUE), ("bound by what the server knew", limit, RED)]
        {
            chart
                .draw_series(LineSeries::new(points, colour))
                .map_err(SvgError::new)?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour));
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()
            .map_err(SvgError::new)
    })
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Lets `paint` draw on a white page.
fn draw(paint: impl FnOnce(&Area<'_>) -> Result<(), SvgError>) -> Result<String, SvgError> {
    let mut picture = String::new();
    {
        let root = SVGBackend::with_string(&mut picture, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(SvgError::new)?;
        paint(&root)?;
        root.present().map_err(SvgError::new)?;
    }
    Ok(picture)
}

/// A little above the largest finite value.
fn bound(values: impl Iterator<Item = f64>) -> f64 {
    let largest = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
    if largest > 0.0 { largest * 1.05 } else { 1.0 }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

const SIZE: (u32, u32) = (900, 480);
const GANTT_NS: u64 = 5_000_000_000;
