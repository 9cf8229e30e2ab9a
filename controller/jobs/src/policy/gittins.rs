//! The Gittins index: how likely a job ends soon, over what it takes to find out.
//!
//! `G(a) = sup over D > 0 of P(S - a <= D | S > a) / E[min(S - a, D) | S > a]` for a job that was
//! served `a`, where `S` is drawn from the total GPU times of earlier jobs (Tiresias, NSDI'19,
//! section 3.3).

use alloc::vec::Vec;

use crate::job::NS_PER_S;
use crate::text::{Table, TextError};
use weft_plan::float;

/// The sample that is built in, as it ships with Tiresias' simulator.
const BUILT_IN: &str = include_str!("../../data/gpu_time_1000.csv");

/// A file of GPU times: the column `duration`, in GPU-seconds; from small to large, in
/// GPU-nanoseconds.
///
/// # Errors
/// [`TextError`] for what is no time.
pub fn read_history(file: &str, text: &str) -> Result<Vec<u64>, TextError> {
    let table = Table::new(file, text)?;
    let duration = table.column("duration")?;
    let rows = table.rows().map(|row| row?.seconds_ns(duration));
    let mut history = rows.collect::<Result<Vec<_>, _>>()?;
    if history.is_empty() {
        return Err(TextError::new(file, 2, "row", "there is no sample"));
    }
    history.sort_unstable();
    Ok(history)
}

/// The given history, or the one that is built in.
pub(super) fn history_ns(given: &[u64]) -> Vec<u64> {
    if given.is_empty() {
        return read_history("built-in", BUILT_IN).expect("it is a history");
    }
    given.to_vec()
}

/// That in whole seconds.
pub(super) fn history_s(given: &[u64]) -> Vec<i64> {
    let history = history_ns(given);
    history.iter().map(|time_ns| i64::try_from(time_ns / NS_PER_S).unwrap_or(i64::MAX)).collect()
}

/// The index as the public simulator makes it: with one `D`, over total sizes, rounded.
#[derive(Clone, Debug, Default)]
pub(super) struct PublicTable {
    sizes_s: Vec<i64>,
    index: Vec<f64>,
}

impl PublicTable {
    /// Of sizes from small to large.
    pub(super) fn new(sizes_s: &[i64]) -> Self {
        let count = sizes_s.len();
        let first_above = |size_s: i64| sizes_s.partition_point(|other| *other <= size_s);
        let index = |size_s: &i64| {
            let from = first_above(size_s - 1);
            let next_s = size_s - 1 + DELTA_S;
            let to = if next_s > sizes_s[count - 1] - 1 { count - 1 } else { first_above(next_s) };
            let [ends, all, beyond] = [to - from, count - from, count - to].map(whole);
            let likely = round(ends as f64 / all as f64, 1e5);
            let takes_s = (sizes_s[from..to].iter().sum::<i64>() + DELTA_S * beyond) / all;
            round(likely * 1e6 / takes_s as f64, 1e4)
        };
        Self { index: sizes_s.iter().map(index).collect(), sizes_s: sizes_s.to_vec() }
    }

    /// The index of a job that was served so much.
    pub(super) fn at(&self, served_s: i64) -> f64 {
        let above = self.sizes_s.partition_point(|size_s| *size_s <= served_s);
        self.index.get(above).copied().unwrap_or(0.0)
    }
}

/// `D` of the public simulator, in GPU-seconds.
const DELTA_S: i64 = 3_250;

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Rounds to so many parts of 1, halves up.
fn round(number: f64, parts: f64) -> f64 {
    float::floor(number * parts + 0.5) / parts
}
