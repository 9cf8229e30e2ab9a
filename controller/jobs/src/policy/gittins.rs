//! The Gittins index: how likely a job ends soon, over what it takes to find out.
//!
//! `G(a) = sup over D > 0 of P(S - a <= D | S > a) / E[min(S - a, D) | S > a]` for a job that was
//! served `a`, where `S` is drawn from the total GPU times of earlier jobs (Tiresias, NSDI'19,
//! section 3.3).

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Knobs;
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

/// A table of indices: the columns `attained`, in GPU-seconds and growing, and `index`; in
/// GPU-nanoseconds.
///
/// # Errors
/// [`TextError`] for what is no time or no index, and where services do not grow.
pub fn read_table(file: &str, text: &str) -> Result<Vec<(u64, f64)>, TextError> {
    let table = Table::new(file, text)?;
    let (attained, index) = (table.column("attained")?, table.column("index")?);
    let mut entries: Vec<(u64, f64)> = Vec::new();
    for row in table.rows() {
        let row = row?;
        let served_ns = row.seconds_ns(attained)?;
        if entries.last().is_some_and(|(before_ns, _)| *before_ns >= served_ns) {
            return Err(row.wrong(attained, "services have to grow from row to row"));
        }
        entries.push((served_ns, row.number(index)?));
    }
    match entries.first() {
        Some((0, _)) => Ok(entries),
        _ => Err(TextError::new(file, 2, "attained", "the first row has to be that of 0")),
    }
}

/// The index of a job by what it was served, from a sample of earlier jobs or from a table.
#[derive(Clone, Debug)]
pub(super) struct Index {
    sizes_ns: Vec<u64>,
    /// Sums of the sizes ahead of each.
    sums_ns: Vec<u128>,
    table: Arc<[(u64, f64)]>,
}

impl Index {
    /// Of the knobs `history_gpu_ns` and `gittins_table`.
    pub(super) fn new(knobs: &Knobs) -> Self {
        let sizes_ns = history_ns(&knobs.history_gpu_ns);
        let mut sums_ns = vec![0];
        sums_ns.extend(sizes_ns.iter().scan(0, |sum, size_ns| {
            *sum += u128::from(*size_ns);
            Some(*sum)
        }));
        Self { sizes_ns, sums_ns, table: Arc::clone(&knobs.gittins_table) }
    }

    /// The index with the best `D` there is: O(sample). 0 for a job that was served more than any.
    pub(super) fn at(&self, served_ns: u64) -> f64 {
        if let Some(index) = self.of_table(served_ns) {
            return index;
        }
        let from = self.first_above(served_ns);
        let by_end = (from..self.sizes_ns.len())
            .map(|last| self.ratio(served_ns, from, last + 1, self.sizes_ns[last] - served_ns));
        by_end.fold(0.0, f64::max)
    }

    /// The index with that `D`.
    pub(super) fn within(&self, served_ns: u64, delta_ns: u64) -> f64 {
        if let Some(index) = self.of_table(served_ns) {
            return index;
        }
        let from = self.first_above(served_ns);
        let to = self.first_above(served_ns.saturating_add(delta_ns));
        self.ratio(served_ns, from, to, delta_ns)
    }

    /// A rank that falls as the index grows.
    pub(super) fn rank(&self, index: f64) -> i128 {
        // The bits of floats of one sign are in their order.
        i128::from(u64::MAX >> 1) - i128::from(index.max(0.0).to_bits())
    }

    /// Those who end, of the sizes from `from` on that end before `to`, over the time until then.
    fn ratio(&self, served_ns: u64, from: usize, to: usize, delta_ns: u64) -> f64 {
        let (ends, all) = (to - from, self.sizes_ns.len() - from);
        if ends == 0 {
            return 0.0;
        }
        let ended_ns = self.sums_ns[to] - self.sums_ns[from] - u128::from(served_ns) * ends as u128;
        let others_ns = u128::from(delta_ns) * (all - ends) as u128;
        ends as f64 / (ended_ns + others_ns) as f64
    }

    fn first_above(&self, served_ns: u64) -> usize {
        self.sizes_ns.partition_point(|size_ns| *size_ns <= served_ns)
    }

    fn of_table(&self, served_ns: u64) -> Option<f64> {
        let above = self.table.partition_point(|(from_ns, _)| *from_ns <= served_ns);
        self.table.get(above.checked_sub(1)?).map(|(_, index)| *index)
    }
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

#[cfg(test)]
mod tests;
