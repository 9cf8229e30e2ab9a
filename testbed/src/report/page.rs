//! How every picture looks: a white page, a title that fits it, and colours that colour-blind
//! readers tell apart. No I/O.

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

/// What a picture is drawn on.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Lets `paint` draw on a page below `title`, which says what is seen, and `note`, which says how
/// to read it.
pub(super) fn page(
    size: (u32, u32),
    title: &str,
    note: &str,
    paint: impl FnOnce(&Area<'_>) -> Result<(), SvgError>,
) -> Result<String, SvgError> {
    let mut picture = String::new();
    {
        let root = SVGBackend::with_string(&mut picture, size).into_drawing_area();
        root.fill(&WHITE).map_err(SvgError::new)?;
        let mut area = root.margin(MARGIN, MARGIN, 0, 0);
        for (text, letters) in [(title, TITLE_LETTERS), (note, NOTE_LETTERS)] {
            let style = ("sans-serif", fitting(text, size.0, letters));
            area = area.titled(text, style).map_err(SvgError::new)?;
        }
        paint(&area)?;
        root.present().map_err(SvgError::new)?;
    }
    Ok(picture)
}

/// Okabe and Ito's colours, the ones that are dark enough for a line on white.
pub(super) fn colour(index: usize) -> RGBColor {
    OKABE_ITO[index % OKABE_ITO.len()]
}

/// A chart with two axes of numbers.
pub(super) type Chart<'a, 'b, X> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, RangedCoordf64>>;

/// Draws a line with its place in the legend.
pub(super) fn line<'a, 'b: 'a, X: Ranged<ValueType = f64>>(
    chart: &mut Chart<'a, 'b, X>,
    index: usize,
    name: impl Into<String>,
    points: impl IntoIterator<Item = (f64, f64)>,
) -> Result<(), SvgError> {
    let colour = colour(index);
    chart
        .draw_series(LineSeries::new(points, colour.stroke_width(2)))
        .map_err(SvgError::new)?
        .label(name)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(3)));
    Ok(())
}

/// Draws the legend of the lines so far.
pub(super) fn legend<'a, 'b: 'a, X: Ranged<ValueType = f64>>(
    chart: &mut Chart<'a, 'b, X>,
    position: SeriesLabelPosition,
) -> Result<(), SvgError> {
    chart
        .configure_series_labels()
        .position(position)
        .margin(8)
        .label_font(("sans-serif", LETTERS))
        .background_style(WHITE.mix(0.9))
        .border_style(GREY)
        .draw()
        .map_err(SvgError::new)
}

/// A number above the largest finite value, for an axis from 0.
pub(super) fn bound(values: impl Iterator<Item = f64>) -> f64 {
    let largest = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
    if largest > 0.0 { largest * 1.05 } else { 1.0 }
}

pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Room left of an axis for the longest of its names.
pub(super) fn room_for<'a>(names: impl Iterator<Item = &'a str>) -> u32 {
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
    40 + 8 * u32::try_from(longest).unwrap_or(u32::MAX / 16).min(60)
}

/// The size of letters at which a line fits a page of this width.
fn fitting(text: &str, width: u32, wanted: f64) -> f64 {
    let count = text.chars().count().max(1) as f64;
    wanted.min((f64::from(width) - 2.0 * f64::from(MARGIN)) / (LETTER_WIDTH * count))
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

/// The usual page.
pub(super) const SIZE: (u32, u32) = (900, 480);
/// Letters of axes and legends.
pub(super) const LETTERS: i32 = 14;
/// The dark grey of what is not data.
pub(super) const GREY: RGBColor = RGBColor(90, 90, 90);
const MARGIN: i32 = 14;
const TITLE_LETTERS: f64 = 20.0;
const NOTE_LETTERS: f64 = 14.0;
/// Mean width of a letter, of its height.
const LETTER_WIDTH: f64 = 0.56;
const OKABE_ITO: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_title_gets_smaller_letters_and_a_short_one_does_not() {
        assert_eq!(fitting("digits", 900, 20.0), 20.0);
        let long = "x".repeat(200);
        assert!(fitting(&long, 900, 20.0) * LETTER_WIDTH * 200.0 <= 900.0);
    }
}
