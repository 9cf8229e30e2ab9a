//! Finds the captures that boxes left in a run directory.

use std::fs;
use std::path::Path;

use super::BoxCounters;
use super::additions::{capture_path, life_path};
use crate::report::CaptureRow;

/// The captures of the boxes that have one, each box's lives in order.
#[must_use]
pub fn captures(directory: &Path, boxes: &[(String, BoxCounters)]) -> Vec<CaptureRow> {
    let mut rows = Vec::new();
    for (name, counters) in boxes {
        let last = capture_path(directory, name);
        let lives = (0..).map(|life| life_path(&last, life)).take_while(|path| path.is_file());
        // Who is killed takes its counters along.
        rows.extend(lives.filter_map(|path| row(&path, &BoxCounters::default())));
        rows.extend(row(&last, counters));
    }
    rows
}

fn row(path: &Path, counters: &BoxCounters) -> Option<CaptureRow> {
    let bytes = fs::metadata(path).ok()?.len();
    let file = path.file_name()?.to_string_lossy().into_owned();
    let counts = counters.capture;
    Some(CaptureRow {
        file,
        bytes,
        frames: counts.map(|counts| counts.frames),
        cut_frames: counts.map(|counts| counts.cut + counts.errors),
    })
}
