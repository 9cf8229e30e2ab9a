//! Draws who sent when, as SVG: one line per sender, one bar per stretch of constant rate, its
//! height the share of the fastest rate. No I/O: the caller writes the file.

use std::collections::BTreeMap;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::page::{LETTERS, SvgError, colour, page, room_for, seconds};

/// A stretch of one transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Who sends: the line that the bar is drawn in.
    pub lane: String,
    /// What is sent: written on its first bar.
    pub label: String,
    /// Bars of one class have one colour: the group.
    pub class: usize,
    /// When it begins.
    pub from_ns: u64,
    /// When it ends.
    pub to_ns: u64,
    /// How fast: the bar's height, relative to the fastest of the picture.
    pub bytes_per_sec: u64,
}

/// An instant with a name: a commit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mark {
    /// The line that it is drawn in.
    pub lane: String,
    /// When.
    pub at_ns: u64,
    /// The colour's class.
    pub class: usize,
}

/// The picture of `bars` and `marks`; lanes in the order of their first bar, or else mark. `None`
/// without any bar.
///
/// # Errors
/// When the drawing library fails.
pub fn gantt_svg(title: &str, bars: &[Bar], marks: &[Mark]) -> Result<Option<String>, SvgError> {
    let Some(begin_ns) = bars.iter().map(|bar| bar.from_ns).min() else { return Ok(None) };
    let ends = bars.iter().map(|bar| bar.to_ns).chain(marks.iter().map(|mark| mark.at_ns));
    let span_s = seconds(ends.max().unwrap_or(begin_ns).saturating_sub(begin_ns)).max(1e-9);
    let fastest = bars.iter().map(|bar| bar.bytes_per_sec).max().unwrap_or(1).max(1);
    let lanes = lanes(bars, marks);
    // A label begins with its bar, which may be the last and short.
    let longest = bars.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0);
    let label_room = 7 * u32::try_from(longest).unwrap_or(u32::MAX / 16).min(40);
    let height = 140 + 26 * u32::try_from(lanes.len()).unwrap_or(100).min(400);
    let note = "a bar's height is its rate; colours tell groups apart; an upright line is a commit";
    page((WIDTH, height), title, note, |root| {
        let lowest = lanes.len() as f64;
        let mut chart = ChartBuilder::on(root)
            .margin(10)
            .margin_right(label_room)
            .x_label_area_size(48)
            .y_label_area_size(room_for(lanes.keys().copied()))
            .build_cartesian_2d(0.0..span_s * 1.02, lowest..0.0)
            .map_err(SvgError::new)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(0)
            .label_style(("sans-serif", LETTERS))
            .x_desc("seconds since the first transfer")
            .y_desc("sender")
            .draw()
            .map_err(SvgError::new)?;
        let name_style =
            TextStyle::from(("sans-serif", 13)).pos(Pos::new(HPos::Right, VPos::Center));
        // The area's own places, for the names are outside the chart.
        let (left, top) = root.get_base_pixel();
        for (name, index) in &lanes {
            let (x, y) = chart.backend_coord(&(0.0, *index as f64 + 0.5));
            let place = (x - left - 8, y - top);
            root.draw(&Text::new(*name, place, name_style.clone())).map_err(SvgError::new)?;
        }
        let shape = |bar: &Bar| {
            let bottom = lanes[bar.lane.as_str()] as f64 + 0.92;
            let share = bar.bytes_per_sec as f64 / fastest as f64;
            let at = |ns: u64| seconds(ns.saturating_sub(begin_ns));
            let corners = [
                (at(bar.from_ns), bottom - 0.84 * share.clamp(0.06, 1.0)),
                (at(bar.to_ns), bottom),
            ];
            Rectangle::new(corners, colour(bar.class).mix(0.75).filled())
        };
        chart.draw_series(bars.iter().map(shape)).map_err(SvgError::new)?;
        let mut named: Vec<(&str, &str, usize)> = Vec::new();
        let label_style =
            TextStyle::from(("sans-serif", 11)).pos(Pos::new(HPos::Left, VPos::Bottom));
        for bar in bars {
            let name = (bar.lane.as_str(), bar.label.as_str(), bar.class);
            if named.contains(&name) {
                continue;
            }
            named.push(name);
            let spot = (seconds(bar.from_ns - begin_ns), lanes[bar.lane.as_str()] as f64 + 0.9);
            let text = Text::new(bar.label.clone(), spot, label_style.clone());
            chart.draw_series([text]).map_err(SvgError::new)?;
        }
        let ticks = marks.iter().map(|mark| {
            let y = lanes[mark.lane.as_str()] as f64;
            let x = seconds(mark.at_ns.saturating_sub(begin_ns));
            PathElement::new([(x, y + 0.08), (x, y + 0.92)], colour(mark.class).stroke_width(3))
        });
        chart.draw_series(ticks).map(drop).map_err(SvgError::new)
    })
    .map(Some)
}

/// Every lane and its line from the top.
fn lanes<'a>(bars: &'a [Bar], marks: &'a [Mark]) -> BTreeMap<&'a str, usize> {
    let names = bars.iter().map(|bar| &bar.lane).chain(marks.iter().map(|mark| &mark.lane));
    let mut lanes = BTreeMap::new();
    for name in names {
        let next = lanes.len();
        lanes.entry(name.as_str()).or_insert(next);
    }
    lanes
}

const WIDTH: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(lane: &str, label: &str, from_ns: u64, to_ns: u64) -> Bar {
        let (lane, label) = (lane.to_owned(), label.to_owned());
        Bar { lane, label, class: 0, from_ns, to_ns, bytes_per_sec: 10 }
    }

    #[test]
    fn draws_a_lane_for_each_sender_and_a_label_for_each_transfer() {
        let bars = [bar("w0", "a", 5, 10), bar("w1", "b", 10, 30), bar("w1", "b", 40, 50)];
        let marks = [Mark { lane: "s0".to_owned(), at_ns: 50, class: 0 }];
        let picture = gantt_svg("plan", &bars, &marks).unwrap().unwrap();
        for name in ["w0", "w1", "s0", "plan"] {
            assert_eq!(picture.matches(&format!("\n{name}\n")).count(), 1, "{name}: {picture}");
        }
        assert_eq!(picture.matches("\nb\n").count(), 1, "a label is written once");
        assert!(picture.contains("</svg>"));
    }

    #[test]
    fn nothing_to_draw_is_no_picture() {
        assert!(gantt_svg("plan", &[], &[]).unwrap().is_none());
    }
}
