//! Draws the histogram of round times as SVG. No I/O: the caller writes the file.

use plotters::prelude::*;

use super::histogram::bins;
use super::page::{LETTERS, SIZE, SvgError, colour, page};
use super::render::duration;

/// The histogram of `round_times_ns` as a picture; `None` without any rounds.
///
/// # Errors
/// When the drawing library fails.
pub fn round_times_svg(run: &str, round_times_ns: &[u64]) -> Result<Option<String>, SvgError> {
    let bins = bins(round_times_ns);
    let (Some(first), Some(last)) = (bins.first(), bins.last()) else { return Ok(None) };
    let width = first.high.map_or(1, |high| high - first.low);
    let end = last.high.unwrap_or(last.low + width);
    let highest = bins.iter().map(|bin| bin.count).max().unwrap_or(1);
    let title = format!("How long rounds took: {run}");
    let note = match last.high {
        Some(_) => format!("{} rounds", round_times_ns.len()),
        None => format!(
            "{} rounds; the last bar is every one from {} up",
            round_times_ns.len(),
            duration(last.low)
        ),
    };
    let picture = page(SIZE, &title, &note, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(40)
            .x_label_area_size(48)
            .y_label_area_size(64)
            .build_cartesian_2d(first.low..end, 0..highest + highest / 10 + 1)
            .map_err(SvgError::new)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .label_style(("sans-serif", LETTERS))
            .x_desc("time of a round")
            .y_desc("rounds")
            .x_label_formatter(&|ns| duration(*ns))
            .draw()
            .map_err(SvgError::new)?;
        let bars = bins.iter().map(|bin| {
            let right = bin.high.unwrap_or(end);
            let mut bar = Rectangle::new([(bin.low, 0), (right, bin.count)], colour(0).filled());
            bar.set_margin(0, 0, 1, 1);
            bar
        });
        chart.draw_series(bars).map(drop).map_err(SvgError::new)
    })?;
    Ok(Some(picture))
}
