//! Draws loss against time: of one run, or of several runs of each policy as a median and a band.
//! No I/O: the caller writes the file.

use plotters::prelude::*;

use super::page::{GREY, LETTERS, SIZE, SvgError, bound, colour, legend, line, page, seconds};
use super::{CommitRow, RunFiles};

/// Runs of one kind, such as one policy's with several seeds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LossCurves {
    /// What they have in common.
    pub name: String,
    /// Seconds and losses of each run, in order of time.
    pub runs: Vec<Vec<(f64, f64)>>,
    /// When they reached the target loss, in seconds, all in all.
    pub reached_s: Option<f64>,
}

/// Held-out loss against seconds since the workers had the first model.
#[must_use]
pub fn loss_curve(files: &RunFiles) -> Vec<(f64, f64)> {
    // The first round of a push begins with the first model.
    let begin_ns = files.rounds.first().map_or(0, |round| round.start_ns);
    let point =
        |row: &CommitRow| row.loss.map(|loss| (seconds(row.t_ns.saturating_sub(begin_ns)), loss));
    files.commits.iter().filter_map(point).collect()
}

/// Loss against time: the median of each kind's runs, and a band from their least to their most.
///
/// # Errors
/// When the drawing library fails.
pub fn losses_svg(
    title: &str,
    target: Option<f64>,
    kinds: &[LossCurves],
) -> Result<String, SvgError> {
    let drawn: Vec<(&LossCurves, Vec<Band>)> =
        kinds.iter().map(|kind| (kind, bands(&kind.runs))).collect();
    let all = || drawn.iter().flat_map(|(_, bands)| bands);
    let end = bound(all().map(|band| band.at_s).chain(kinds.iter().filter_map(|k| k.reached_s)));
    let top = bound(all().map(|band| band.most).chain(target));
    let most_runs = kinds.iter().map(|kind| kind.runs.len()).max().unwrap_or(0);
    let note = match (most_runs, target) {
        (0 | 1, None) => "every point is the model after a commit".to_owned(),
        (0 | 1, Some(_)) => {
            "every point is the model after a commit; dot: target reached".to_owned()
        }
        (seeds, target) => {
            let dot = if target.is_some() { "; dot: median time to the target" } else { "" };
            format!("line: median of {seeds} seeds; band: from the least to the most of them{dot}")
        }
    };
    page(SIZE, title, &note, |area| {
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
            .x_desc("seconds since the first model")
            .y_desc("loss over the held-out images (cross entropy)")
            .draw()
            .map_err(SvgError::new)?;
        if let Some(target) = target {
            let dashes = DashedLineSeries::new([(0.0, target), (end, target)], 6, 4, GREY.into());
            chart.draw_series(dashes).map_err(SvgError::new)?;
        }
        for (index, (kind, bands)) in drawn.iter().enumerate().filter(|_| most_runs > 1) {
            let least = bands.iter().map(|band| (band.at_s, band.least));
            let most = bands.iter().rev().map(|band| (band.at_s, band.most));
            let outline: Vec<(f64, f64)> = least.chain(most).collect();
            if kind.runs.len() > 1 && !outline.is_empty() {
                let band = Polygon::new(outline, colour(index).mix(0.2));
                chart.draw_series([band]).map_err(SvgError::new)?;
            }
        }
        for (index, (kind, bands)) in drawn.iter().enumerate() {
            let median = bands.iter().map(|band| (band.at_s, band.median));
            line(&mut chart, index, label(kind, target), median)?;
        }
        for (index, (kind, _)) in drawn.iter().enumerate() {
            if let (Some(time), Some(target)) = (kind.reached_s, target) {
                let dot = |filled| Circle::new((time, target), 6, filled);
                let dots = [dot(colour(index).filled()), dot(WHITE.stroke_width(1))];
                chart.draw_series(dots).map_err(SvgError::new)?;
            }
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    })
}

fn label(kind: &LossCurves, target: Option<f64>) -> String {
    match (target, kind.reached_s) {
        (Some(target), Some(time)) => format!("{}: loss {target} after {time:.1} s", kind.name),
        (Some(target), None) => format!("{}: loss {target} not reached", kind.name),
        (None, _) => kind.name.clone(),
    }
}

/// Runs at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Band {
    at_s: f64,
    least: f64,
    median: f64,
    most: f64,
}

/// The runs at every moment at which one of them changes, from where all have a value. A run keeps
/// its value until its next one, and its last to the end.
fn bands(runs: &[Vec<(f64, f64)>]) -> Vec<Band> {
    let runs: Vec<&[(f64, f64)]> =
        runs.iter().map(Vec::as_slice).filter(|run| !run.is_empty()).collect();
    let begin = runs.iter().map(|run| run[0].0).fold(0.0, f64::max);
    let mut moments: Vec<f64> =
        runs.iter().flat_map(|run| run.iter()).map(|point| point.0).collect();
    moments.retain(|moment| *moment >= begin);
    moments.sort_by(f64::total_cmp);
    moments.dedup();
    let band = |at_s: f64| {
        let mut values: Vec<f64> = runs
            .iter()
            .filter_map(|run| run[..run.partition_point(|point| point.0 <= at_s)].last())
            .map(|point| point.1)
            .collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let median = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Band { at_s, least, median, most })
    };
    moments.into_iter().filter_map(band).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds() -> Vec<LossCurves> {
        let runs = vec![
            vec![(1.0, 2.0), (3.0, 1.0)],
            vec![(2.0, 5.0), (3.0, 0.5), (4.0, 0.2)],
            vec![(1.5, 3.0)],
        ];
        vec![LossCurves { name: "fifo".to_owned(), runs, reached_s: Some(3.0) }]
    }

    #[test]
    fn a_band_by_hand() {
        let band = |at_s, least, median, most| Band { at_s, least, median, most };
        let expected =
            [band(2.0, 2.0, 3.0, 5.0), band(3.0, 0.5, 1.0, 3.0), band(4.0, 0.2, 1.0, 3.0)];
        assert_eq!(bands(&kinds()[0].runs), expected);
        assert_eq!(bands(&[]), []);
        assert_eq!(bands(&[vec![]]), []);
    }

    #[test]
    fn a_picture_of_seeds_has_one_line_and_one_band_for_each_policy() {
        let mut kinds = kinds();
        kinds.push(LossCurves { name: "fair".to_owned(), reached_s: None, ..kinds[0].clone() });
        let svg = losses_svg("Loss by policy", Some(0.5), &kinds).unwrap();
        for words in ["Loss by policy", "median of 3 seeds", "seconds since the first model"] {
            assert!(svg.contains(words), "{words}: {svg}");
        }
        assert!(svg.contains("fifo: loss 0.5 after 3.0 s"), "{svg}");
        assert!(svg.contains("fair: loss 0.5 not reached"), "{svg}");
        assert_eq!(svg.matches("<polygon").count(), 2, "{svg}");
        for colour in ["#0072B2", "#D55E00"] {
            assert!(svg.contains(&format!("fill=\"{colour}\"")), "{colour}: {svg}");
            assert!(svg.contains(&format!("stroke=\"{colour}\"")), "{colour}: {svg}");
        }
    }

    #[test]
    fn nothing_to_draw_is_an_empty_chart() {
        assert!(losses_svg("none", None, &[]).unwrap().contains("</svg>"));
    }
}
