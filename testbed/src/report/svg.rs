//! Draws the histogram of round times as SVG. No I/O: the caller writes the file.

use plotters::prelude::*;

use super::histogram::bins;
use super::render::duration;

/// The histogram of `round_times_ns` as a picture; `None` without any rounds.
///
/// # Errors
/// When the drawing library fails.
pub fn round_times_svg(title: &str, round_times_ns: &[u64]) -> Result<Option<String>, SvgError> {
    let bins = bins(round_times_ns);
    let (Some(first), Some(last)) = (bins.first(), bins.last()) else { return Ok(None) };
    let width = first.high.map_or(1, |high| high - first.low);
    let end = last.high.unwrap_or(last.low + width);
    let highest = bins.iter().map(|bin| bin.count).max().unwrap_or(1);
    let mut picture = String::new();
    {
        let root = SVGBackend::with_string(&mut picture, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(SvgError::new)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(56)
            .build_cartesian_2d(first.low..end, 0..highest + highest / 10 + 1)
            .map_err(SvgError::new)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_desc("round time (the last bar is everything above)")
            .y_desc("rounds")
            .x_label_formatter(&|ns| duration(*ns))
            .draw()
            .map_err(SvgError::new)?;
        let bars = bins.iter().map(|bin| {
            let right = bin.high.unwrap_or(end);
            Rectangle::new([(bin.low, 0), (right, bin.count)], BLUE.mix(0.6).filled())
        });
        chart.draw_series(bars).map_err(SvgError::new)?;
        root.present().map_err(SvgError::new)?;
    }
    Ok(Some(picture))
}

/// The drawing library failed.
#[derive(Debug, thiserror::Error)]
#[error("drawing a picture: {reason}")]
pub struct SvgError {
    reason: String,
}

impl SvgError {
    pub(super) fn new(error: impl std::fmt::Display) -> Self {
        Self { reason: error.to_string() }
    }
}

const SIZE: (u32, u32) = (900, 480);
