//! Draws simulations of a cluster: how many jobs took how long, and how much of the cluster was in
//! use when. No I/O: the caller writes the file.

use plotters::prelude::*;

use super::page::{Area, LETTERS, SIZE, SvgError, bound, colour, legend, line, page};

/// How many of the jobs took at most how long, a line for each of `kinds`: its name and its jobs'
/// completion times in seconds. `None` where nothing ended.
///
/// # Errors
/// When the drawing library fails.
pub fn completions_svg(
    title: &str,
    kinds: &[(String, Vec<f64>)],
) -> Result<Option<String>, SvgError> {
    let lines: Vec<Line<'_>> =
        kinds.iter().map(|(name, times_s)| (&**name, cdf(times_s))).collect();
    let times = || lines.iter().flat_map(|(_, points)| points.iter().map(|point| point.0));
    let (least, most) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
    if most <= 0.0 {
        return Ok(None);
    }
    let note = "higher and further left is better; a line is one policy, all its jobs together";
    page(SIZE, title, note, |area| {
        let mut chart = ChartBuilder::on(area);
        let chart = chart.margin(12).margin_right(24).x_label_area_size(48).y_label_area_size(64);
        let ticks = ticks(least, most);
        let range = (ticks.first..ticks.last).log_scale().with_key_points(ticks.labelled);
        let mut chart = chart.build_cartesian_2d(range, 0.0..1.0).map_err(SvgError::new)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .label_style(("sans-serif", LETTERS))
            .x_desc("completion time of a job, seconds")
            .y_desc("part of the jobs")
            .x_label_formatter(&|time_s| plain(*time_s))
            .draw()
            .map_err(SvgError::new)?;
        for (index, (name, points)) in lines.iter().enumerate() {
            line(&mut chart, index, *name, points.iter().copied())?;
        }
        legend(&mut chart, SeriesLabelPosition::LowerRight)
    })
    .map(Some)
}

/// A line: its name and its points.
type Line<'a> = (&'a str, Vec<(f64, f64)>);

/// How much of the cluster was in use when: below each other, a line for each of `kinds`, its name
/// and, from each time in seconds on, the part of the GPUs. What is shorter than a line can show is
/// averaged. `None` where nothing ran.
///
/// # Errors
/// When the drawing library fails.
pub fn utilisation_svg(
    title: &str,
    kinds: &[(String, Vec<(f64, f64)>)],
) -> Result<Option<String>, SvgError> {
    let end = kinds.iter().filter_map(|(_, points)| Some(points.last()?.0)).fold(0.0, f64::max);
    if end <= 0.0 {
        return Ok(None);
    }
    let count = u32::try_from(kinds.len()).unwrap_or(u32::MAX);
    let height = 110 + STRIP * count.min(40);
    let note = "part of the GPUs that were in use, from 0 to 1; a strip is one policy";
    page((SIZE.0, height), title, note, |area| {
        // The last one has the axis of all below it.
        let height = area.dim_in_pixel().1;
        let strip = height.saturating_sub(AXIS_LAST - AXIS) / count;
        let axis_last = height.saturating_sub(count * strip) + AXIS;
        let tops = (1..count).map(|index| i32::try_from(index * strip).unwrap_or(i32::MAX));
        let strips = area.split_by_breakpoints([0_i32; 0], tops.collect::<Vec<_>>());
        let last = kinds.len() - 1;
        for (index, ((name, points), strip)) in kinds.iter().zip(&strips).enumerate() {
            strip_of(
                strip,
                (name.as_str(), points.as_slice()),
                index,
                bound([end].into_iter()),
                (index == last, if index == last { axis_last } else { AXIS }),
            )?;
        }
        Ok(())
    })
    .map(Some)
}

fn strip_of(
    area: &Area<'_>,
    (name, points): (&str, &[(f64, f64)]),
    index: usize,
    end: f64,
    (is_last, axis): (bool, u32),
) -> Result<(), SvgError> {
    let mut chart = ChartBuilder::on(area)
        .margin(6)
        .margin_right(24)
        .caption(name, ("sans-serif", LETTERS))
        .x_label_area_size(axis)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..end, 0.0..1.05)
        .map_err(SvgError::new)?;
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT).label_style(("sans-serif", LETTERS)).y_labels(3);
    match is_last {
        true => mesh.x_desc("seconds since the first job came").x_label_formatter(&|s| plain(*s)),
        false => mesh.x_labels(0),
    };
    mesh.draw().map_err(SvgError::new)?;
    let means = averaged(points, end);
    let mut outline = vec![(0.0, 0.0)];
    outline.extend(&means);
    outline.push((end, 0.0));
    let shape = Polygon::new(outline, colour(index).mix(0.3));
    chart.draw_series([shape]).map_err(SvgError::new)?;
    let line = LineSeries::new(means, colour(index).stroke_width(1));
    chart.draw_series(line).map(drop).map_err(SvgError::new)
}

/// Each time and the part of the jobs that took at most as long.
fn cdf(times_s: &[f64]) -> Vec<(f64, f64)> {
    let mut sorted = times_s.to_vec();
    sorted.retain(|time_s| *time_s > 0.0);
    sorted.sort_by(f64::total_cmp);
    let len = sorted.len();
    let every = (len / POINTS_MAX).max(1);
    let point = |(index, time_s): (usize, &f64)| (*time_s, (index + 1) as f64 / len as f64);
    let points = sorted.iter().enumerate().map(point);
    points.enumerate().filter(|(at, _)| at % every == 0 || at + 1 == len).map(|(_, p)| p).collect()
}

/// The mean over each of equal stretches of time up to `end`, at its middle.
fn averaged(points: &[(f64, f64)], end: f64) -> Vec<(f64, f64)> {
    let width = end / STRETCHES as f64;
    let mut sums = vec![0.0; STRETCHES];
    let ends = points.iter().skip(1).map(|point| point.0).chain([end]);
    for ((from, share), to) in points.iter().zip(ends) {
        for (stretch, sum) in sums.iter_mut().enumerate() {
            let (begin, end) = (stretch as f64 * width, (stretch + 1) as f64 * width);
            *sum += share * (to.min(end) - from.max(begin)).max(0.0);
        }
    }
    sums.iter().enumerate().map(|(at, sum)| ((at as f64 + 0.5) * width, sum / width)).collect()
}

/// The ends of an axis in powers, and which of its numbers have labels.
#[derive(Clone, Debug, PartialEq)]
struct Ticks {
    first: f64,
    last: f64,
    labelled: Vec<f64>,
}

/// Round numbers around what is between `least` and `most`: 1, 2 and 5 times powers of ten, or as
/// few of the powers as have room for their labels.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small powers")]
fn ticks(least: f64, most: f64) -> Ticks {
    let powers = least.log10().floor() as i32..=most.log10().ceil() as i32;
    let round: Vec<f64> = powers
        .clone()
        .flat_map(|power| [1, 2, 5].map(|times| power_of_ten(times, power)))
        .collect();
    let below = round.iter().copied().rev().find(|number| *number <= least);
    let above = round.iter().copied().find(|number| *number >= most);
    let first = below.unwrap_or(least);
    let last = above.unwrap_or(most).max(2.0 * first);
    let is_inside = |number: &f64| (first..=last).contains(number);
    let inside = || round.iter().copied().filter(is_inside);
    let widest = inside().map(|number| plain(number).len()).max().unwrap_or(1);
    let room = (last / first).log10() * LABEL_WIDTH * (widest + 2) as f64 / AXIS_LEN;
    let labelled = if room <= 2_f64.log10() {
        inside().collect()
    } else {
        let every = room.ceil().max(1.0) as usize;
        let powers = powers.step_by(every).map(|power| power_of_ten(1, power));
        powers.filter(is_inside).collect()
    };
    Ticks { first, last, labelled }
}

/// The number nearest to it, whose text is short; a product is not.
fn power_of_ten(times: u32, power: i32) -> f64 {
    format!("{times}e{power}").parse().unwrap_or(f64::NAN)
}

/// A number without what a float's text adds.
fn plain(value: f64) -> String {
    if value >= 1.0 { format!("{value:.0}") } else { format!("{value}") }
}

const POINTS_MAX: usize = 600;
const STRETCHES: usize = 240;
const STRIP: u32 = 110;
/// Room below a strip, and below the last one, which has the labels.
const AXIS: u32 = 4;
const AXIS_LAST: u32 = 44;
/// Width of a letter of an axis, and length of the axis, in pixels.
const LABEL_WIDTH: f64 = 8.0;
const AXIS_LEN: f64 = 780.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_of_jobs_grows_to_one() {
        assert_eq!(
            cdf(&[4.0, 1.0, 2.0, 0.0, 2.0]),
            [(1.0, 0.25), (2.0, 0.5), (2.0, 0.75), (4.0, 1.0)]
        );
        let many: Vec<f64> = (1..10_000).map(f64::from).collect();
        let points = cdf(&many);
        assert!(points.len() < 2 * POINTS_MAX && points.last() == Some(&(9_999.0, 1.0)));
    }

    #[test]
    fn use_is_averaged_over_time() {
        // Whole cluster for a quarter of the time, then half of it, then nothing.
        let means = averaged(&[(0.0, 1.0), (60.0, 0.5), (120.0, 0.0)], 240.0);
        assert_eq!(means.len(), STRETCHES);
        assert_eq!((means[0].1, means[59].1, means[60].1, means[120].1), (1.0, 1.0, 0.5, 0.0));
        let area: f64 = means.iter().map(|mean| mean.1).sum();
        assert!((area - 90.0).abs() < 1e-9, "{area}");
    }

    #[test]
    fn labels_of_powers_are_around_the_data_and_have_room() {
        let of = |least, most| ticks(least, most).labelled;
        assert_eq!(of(120.0, 13_000.0), [100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4]);
        assert_eq!(of(300.0, 310.0), [200.0, 500.0]);
        assert_eq!(of(100.0, 100.0), [100.0, 200.0]);
        assert_eq!(of(3.0, 4e6), [10.0, 100.0, 1e3, 1e4, 1e5, 1e6]);
        assert_eq!(of(0.02, 0.3), [0.02, 0.05, 0.1, 0.2, 0.5]);
        for power in -6..12 {
            for ratio in [1.0, 2.0, 7.0, 1e2, 1e4, 1e7, 1e10, 1e15] {
                let (least, most) = (1.3 * 10_f64.powi(power), 1.3 * ratio * 10_f64.powi(power));
                let Ticks { first, last, labelled } = ticks(least, most);
                assert!(first <= least && last >= most, "{least} to {most}");
                assert!(labelled.len() >= 2, "{least} to {most}: {labelled:?}");
                let at = |number: f64| AXIS_LEN * (number / first).log10() / (last / first).log10();
                for pair in labelled.windows(2) {
                    let letters = plain(pair[0]).len().max(plain(pair[1]).len());
                    let gap = at(pair[1]) - at(pair[0]);
                    assert!(gap >= LABEL_WIDTH * letters as f64, "{least} to {most}: {pair:?}");
                }
            }
        }
    }

    #[test]
    fn strips_are_alike() {
        let kinds: Vec<_> =
            (0..5).map(|n| (format!("p{n}"), vec![(0.0, 1.0), (9.0, 0.0)])).collect();
        let svg = utilisation_svg("In use", &kinds).unwrap().unwrap();
        // An outline goes from the strip's bottom to the top of what is full and back.
        let heights = svg.match_indices("<polygon").map(|(at, _)| {
            let points = svg[at..].split("points=\"").nth(1).unwrap().split('"').next().unwrap();
            let ys = points.split_whitespace().map(|p| p.split(',').nth(1).unwrap());
            let ys: Vec<i32> = ys.map(|y| y.parse().unwrap()).collect();
            ys.iter().max().unwrap() - ys.iter().min().unwrap()
        });
        let heights: Vec<i32> = heights.collect();
        assert_eq!(heights.len(), 5);
        assert!(heights.iter().all(|height| *height == heights[0] && *height > 40), "{heights:?}");
    }

    #[test]
    fn pictures_name_every_policy_once() {
        let times = [("fifo", 10.0), ("las", 5.0)];
        let kinds = times.map(|(name, time)| (name.to_owned(), vec![time, 2.0 * time, 900.0]));
        let svg = completions_svg("Completion", &kinds).unwrap().unwrap();
        let uses = times.map(|(name, time)| (name.to_owned(), vec![(0.0, 1.0), (time, 0.0)]));
        let used = utilisation_svg("In use", &uses).unwrap().unwrap();
        for picture in [svg, used] {
            for name in ["fifo", "las"] {
                assert_eq!(picture.matches(&format!("\n{name}\n")).count(), 1, "{name}: {picture}");
            }
        }
        assert_eq!(completions_svg("none", &[]).unwrap(), None);
        assert_eq!(utilisation_svg("none", &[]).unwrap(), None);
    }
}
