//! Draws policies of bands beside each other: completion time and wait at the barrier, as measured
//! with their 95 % intervals, and as simulated. No I/O: the caller writes the file.

use plotters::prelude::*;

use super::BandsRow;
use super::page::{Area, GREY, LETTERS, SIZE, SvgError, bound, colour, page};

/// Mean completion time and mean wait of each policy.
///
/// # Errors
/// When the drawing library fails.
pub fn bands_svg(title: &str, rows: &[BandsRow]) -> Result<String, SvgError> {
    let note = "bar: mean over the seeds; whisker: its 95 % interval; grey line: simulated";
    page(SIZE, title, note, |area| {
        let (left, right) = area.split_horizontally(50.percent_width());
        let jct = |row: &BandsRow| Value {
            mean: row.jct_mean_s,
            half: row.jct_half_interval_s,
            simulated: row.predicted_jct_mean_s,
        };
        let wait = |row: &BandsRow| Value {
            mean: row.wait_mean_ms,
            half: row.wait_half_interval_ms,
            simulated: row.predicted_wait_mean_ms,
        };
        panel(&left, "completion time, s", rows, jct)?;
        panel(&right, "wait at the barrier, ms", rows, wait)
    })
}

/// What is drawn of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Value {
    mean: Option<f64>,
    half: Option<f64>,
    simulated: Option<f64>,
}

impl Value {
    fn most(self) -> f64 {
        let measured = self.mean.unwrap_or(0.0) + self.half.unwrap_or(0.0);
        measured.max(self.simulated.unwrap_or(0.0))
    }
}

fn panel(
    area: &Area<'_>,
    words: &str,
    rows: &[BandsRow],
    value: impl Fn(&BandsRow) -> Value,
) -> Result<(), SvgError> {
    let count = rows.len().max(1) as f64;
    let name = |x: &f64| {
        let at = (0..rows.len()).find(|at| (*x - *at as f64 - 0.5).abs() < 0.01);
        at.map_or_else(String::new, |at| rows[at].policy.clone())
    };
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..count, 0.0..bound(rows.iter().map(|row| value(row).most())))
        .map_err(SvgError::new)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(("sans-serif", LETTERS))
        .x_labels(2 * rows.len() + 1)
        .x_label_formatter(&name)
        .y_desc(words)
        .draw()
        .map_err(SvgError::new)?;
    for (at, row) in rows.iter().enumerate() {
        let (middle, Value { mean, half, simulated }) = (at as f64 + 0.5, value(row));
        if let Some(mean) = mean {
            let bar = [(middle - 0.3, 0.0), (middle + 0.3, mean)];
            chart.draw_series([Rectangle::new(bar, colour(at).filled())]).map_err(SvgError::new)?;
        }
        if let (Some(mean), Some(half)) = (mean, half) {
            let ends = vec![(middle, mean - half), (middle, mean + half)];
            chart
                .draw_series([PathElement::new(ends, BLACK.stroke_width(2))])
                .map_err(SvgError::new)?;
        }
        if let Some(simulated) = simulated {
            let line = vec![(middle - 0.4, simulated), (middle + 0.4, simulated)];
            chart
                .draw_series([PathElement::new(line, GREY.stroke_width(3))])
                .map_err(SvgError::new)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_has_its_bars_whiskers_and_what_was_simulated() {
        let row = |policy: &str, jct_s| BandsRow {
            policy: policy.to_owned(),
            jct_mean_s: Some(jct_s),
            jct_half_interval_s: Some(0.5),
            predicted_jct_mean_s: Some(jct_s - 1.0),
            wait_mean_ms: Some(30.0),
            ..BandsRow::default()
        };
        let svg = bands_svg("lights", &[row("fifo", 6.0), row("one", 5.0)]).expect("a picture");
        for words in ["lights", "fifo", "one", "completion time, s", "wait at the barrier, ms"] {
            assert!(svg.contains(words), "{words}: {svg}");
        }
        for colour in ["#0072B2", "#D55E00"] {
            let bars = svg.matches(&format!("fill=\"{colour}\"")).count();
            assert_eq!(bars, 2, "{colour}: {svg}");
        }
        assert!(bands_svg("none", &[]).expect("an empty one").contains("</svg>"));
    }
}
