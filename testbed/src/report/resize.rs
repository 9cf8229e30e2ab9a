//! A run whose number of workers changes: what its directory says of it, its table, and the picture
//! of how long nobody worked at each resize. No I/O: the caller writes the files.

use plotters::prelude::*;
use serde::{Deserialize, Serialize};

use super::Verdict;
use super::page::{LETTERS, SvgError, bound, colour, legend, page, room_for};
use super::record::Record;

/// `run.json` of such a run.
pub type ResizeRecord = Record<ResizeOutcome>;

/// What a run came to; keys that scripts read.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ResizeOutcome {
    /// The scenario's name.
    pub name: String,
    /// All workers of the last cohort have the reference's model, bit for bit; null where not all
    /// of them came to the end to be compared.
    pub model_identical: Option<bool>,
    /// The model's hash, and the reference's.
    pub model_sha256: Vec<String>,
    /// See above.
    pub reference_sha256: String,
    /// How long nobody worked, over all resizes.
    pub pause_s: f64,
    /// Each of them.
    pub pauses: Vec<PauseRow>,
    /// Numbers of workers, in order.
    pub widths: Vec<u32>,
    /// Standstills that were asked for: seconds from the word.
    pub standstills_s: Vec<f64>,
    /// Rounds that were computed; 0 if not all workers came to the end.
    pub rounds: u64,
    /// Share of the held-out images that the model labels correctly; null where none came to the
    /// end.
    pub accuracy: Option<f64>,
    /// Boxes that were killed and started again.
    pub killed: Vec<String>,
    /// All that was killed, and in which step of which word.
    pub kills: Vec<KillRow>,
    /// What went wrong, for people.
    pub problems: Vec<String>,
    /// Whether all of it held.
    pub verdict: Verdict,
}

/// A resize.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct PauseRow {
    /// Its first round.
    pub round: u64,
    /// Workers before.
    pub from: u32,
    /// Workers afterwards.
    pub to: u32,
    /// How long nobody worked: the sum of the next three.
    pub pause_s: f64,
    /// From the boundary until the checkpoint was kept,
    pub checkpoint_s: f64,
    /// until the box had the new lease,
    pub lease_s: f64,
    /// until all new workers had begun.
    pub start_s: f64,
    /// From the word to the boundary; the job ran on.
    pub stop_s: f64,
    /// False where the controller that measured it was killed: then its times are 0.
    pub is_measured: bool,
}

/// A process that was killed.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct KillRow {
    /// Its name.
    #[serde(rename = "box")]
    pub name: String,
    /// Which word that followed.
    pub word: usize,
    /// How far the word had come, if it was killed for that.
    pub step: Option<String>,
}

/// The picture of resizes: a line for each, from the standstill on; `None` without any.
///
/// # Errors
/// When the drawing library fails.
pub fn pauses_svg(title: &str, pauses: &[PauseRow]) -> Result<Option<String>, SvgError> {
    if pauses.is_empty() {
        return Ok(None);
    }
    let names: Vec<String> =
        pauses.iter().map(|it| format!("round {}: {} to {}", it.round, it.from, it.to)).collect();
    let count = u32::try_from(pauses.len()).unwrap_or(u32::MAX).min(400);
    let note = "how long nobody worked, by what was waited for; from the word to the standstill \
                the job ran on";
    page((WIDTH, 150 + 34 * count), title, note, |root| {
        let span_s = bound(pauses.iter().map(|pause| pause.pause_s));
        let mut chart = ChartBuilder::on(root)
            .margin(10)
            .x_label_area_size(48)
            .y_label_area_size(room_for(names.iter().map(String::as_str)))
            .build_cartesian_2d(0.0..span_s, f64::from(count)..0.0)
            .map_err(SvgError::new)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(0)
            .label_style(("sans-serif", LETTERS))
            .x_desc("seconds since all stood")
            .draw()
            .map_err(SvgError::new)?;
        for (name, line) in names.iter().zip(0u32..) {
            let spot = chart.backend_coord(&(0.0, f64::from(line) + 0.5));
            let (left, top) = root.get_base_pixel();
            let place = (10 - left.min(0), spot.1 - top - 7);
            let text = Text::new(name.as_str(), place, ("sans-serif", 13));
            root.draw(&text).map_err(SvgError::new)?;
        }
        for (part, index) in PARTS.iter().zip(0..) {
            let bar = |(pause, line): (&PauseRow, u32)| {
                let lengths = [pause.checkpoint_s, pause.lease_s, pause.start_s];
                let from_s: f64 = lengths[..index].iter().sum();
                let top = f64::from(line) + 0.15;
                let corners = [(from_s, top), (from_s + lengths[index], top + 0.7)];
                Rectangle::new(corners, colour(index).filled())
            };
            chart
                .draw_series(pauses.iter().zip(0u32..).map(bar))
                .map_err(SvgError::new)?
                .label(*part)
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour(index).filled())
                });
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    })
    .map(Some)
}

/// What is waited for, in order.
const PARTS: [&str; 3] = ["checkpoint", "lease", "start"];
const WIDTH: u32 = 900;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_resize_has_a_line_and_each_part_its_share() {
        let row = |round, parts: [f64; 3]| PauseRow {
            round,
            from: 2,
            to: 4,
            pause_s: parts.iter().sum(),
            checkpoint_s: parts[0],
            lease_s: parts[1],
            start_s: parts[2],
            stop_s: 0.01,
            is_measured: true,
        };
        let pauses = [row(20, [0.01, 0.02, 0.1]), row(60, [0.03, 0.02, 0.3])];
        let svg = pauses_svg("resize", &pauses).expect("it draws").expect("there are resizes");
        for word in ["round 20: 2 to 4", "round 60: 2 to 4", "checkpoint", "lease", "start"] {
            assert!(svg.contains(word), "{word}");
        }
        let wide = |svg: &str| svg.matches("<rect").count();
        let one = pauses_svg("resize", &pauses[..1]).expect("it draws").expect("there is one");
        assert_eq!(wide(&svg), wide(&one) + 3, "three parts more");
        assert_eq!(pauses_svg("resize", &[]).expect("it draws"), None);
    }
}
