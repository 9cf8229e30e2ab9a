//! What an allreduce costs through Weft's aggregator, by the rows of Weft's own bench.
//!
//! A worker sends its vector once and gets the sum meanwhile, so the number of workers counts at
//! the aggregator alone: `latency + max(link, host, aggregator)`, where
//!
//! - link = stretch x the frames of the vector / the rate of a worker's link,
//! - host = the vector / what one worker's processor moves,
//! - aggregator = workers x chunks / contributions per second of all its lcores.
//!
//! The bench gives each as CSV. `weft bench allreduce --lab` has the latency, which is the time of
//! one chunk on links without a shaper (a shaper lets short vectors through at once), with
//! `--rate-mbit` the stretch, which is the least squares of what is beyond the latency, and with
//! `--io memory -w 1` what a host moves; `weft bench aggregator` has the contributions. The
//! aggregator's own links are taken for wide enough, as a switch's are. Invariant: no constant here is made up; [`MEASURED`] are committed
//! rows, and their provenance is beside them.

use alloc::vec::Vec;

use weft_plan::float::ceil;

use crate::model::nnls;
use crate::text::{Row, Table, TextError};

/// The constants of Weft's data plane on one kind of machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Seconds of the smallest allreduce.
    pub latency_s: f64,
    /// Time on a link over the time that the frames need.
    pub stretch: f64,
    /// How far these two miss the rows: the root of the mean of the squared residuals.
    pub residual_rms_s: f64,
    /// Bytes per second of a vector that a worker's processor sends, and receives, at once.
    pub host_bytes_per_s: f64,
    /// Contributions of one chunk that one lcore of the aggregator adds per second.
    pub contributions_per_s: f64,
}

/// Weft on a network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InNetwork {
    /// What was measured.
    pub measured: Measured,
    /// Rate of a worker's link, in each direction, in bytes per second.
    pub rate_bytes_per_s: f64,
    /// Lcores of the aggregator.
    pub lcores: u32,
    /// Whether a host's processor counts; false asks what a host that keeps up with its link gets.
    pub counts_hosts: bool,
}

impl InNetwork {
    /// Seconds of one allreduce among several workers.
    #[must_use]
    pub fn seconds(&self, workers: u32, bytes: f64) -> f64 {
        let Measured { latency_s, stretch, host_bytes_per_s, contributions_per_s, .. } =
            self.measured;
        let chunks = ceil(bytes / CHUNK_BYTES);
        let link_s = stretch * chunks * FRAME_BYTES / self.rate_bytes_per_s;
        let host_s = if self.counts_hosts { bytes / host_bytes_per_s } else { 0.0 };
        let lcores = f64::from(self.lcores.max(1));
        let aggregator_s = f64::from(workers) * chunks / (contributions_per_s * lcores);
        latency_s + link_s.max(host_s).max(aggregator_s)
    }
}

impl Measured {
    /// From tables that the bench wrote, each with its name. Rows that failed are left out.
    ///
    /// # Errors
    /// [`TextError`] if a table is none of the bench's, or the tables together lack a constant.
    pub fn from_bench(tables: &[(&str, &str)]) -> Result<Self, TextError> {
        let mut rows = Rows::default();
        for (file, text) in tables {
            rows.read(&Table::new(file, text)?)?;
        }
        let lacks = |what: &str| TextError {
            file: tables.iter().map(|(file, _)| *file).collect::<Vec<_>>().join(", "),
            line: 1,
            field: "rows".into(),
            problem: format!("no valid row of {what}"),
        };
        let latency_s = median(&mut rows.latency)
            .ok_or_else(|| lacks("`weft bench allreduce --lab` of at most 1,024 bytes"))?;
        // Seconds and not shares: the shaper lets a short vector through sooner than the rate says.
        let beyond = |&(bound_s, time_s): &(f64, f64)| ([bound_s], time_s - latency_s);
        let shaped: Vec<_> = rows.shaped.iter().map(beyond).collect();
        let line =
            nnls::solve(&shaped).ok_or_else(|| lacks("`weft bench allreduce` with --rate-mbit"))?;
        let host_bytes_per_s = median(&mut rows.host)
            .ok_or_else(|| lacks("`weft bench allreduce --io memory -w 1`"))?;
        let contributions_per_s =
            median(&mut rows.added).ok_or_else(|| lacks("`weft bench aggregator`"))?;
        let [stretch] = line.coefficients;
        let residual_rms_s = line.residual_rms;
        Ok(Self { latency_s, stretch, residual_rms_s, host_bytes_per_s, contributions_per_s })
    }

    /// From the committed rows.
    ///
    /// # Panics
    /// If they cannot be read, which a test rules out.
    #[must_use]
    pub fn committed() -> Self {
        Self::from_bench(&MEASURED).expect("the committed rows are the bench's")
    }
}

/// What the rows say, before anything is fitted.
#[derive(Debug, Default)]
struct Rows {
    /// Seconds of vectors of one chunk.
    latency: Vec<f64>,
    /// Of each row on shaped links, the bound and the time, in seconds.
    shaped: Vec<(f64, f64)>,
    /// Bytes per second of one worker whose aggregator has a processor of its own.
    host: Vec<f64>,
    /// Contributions per second of an lcore.
    added: Vec<f64>,
}

impl Rows {
    fn read(&mut self, table: &Table<'_>) -> Result<(), TextError> {
        // Rows that failed have a reason, which may have commas.
        let is_whole = |row: &Result<Row<'_>, TextError>| row.is_ok();
        let failure = table.column("failure")?;
        if table.has("packets_per_cpu_second") {
            let [rate, valid] = [table.column("packets_per_cpu_second")?, table.column("valid")?];
            for row in table.rows().filter(is_whole) {
                let row = row?;
                if row.text(valid) == "true" {
                    self.added.push(row.number(rate)?);
                }
            }
            return Ok(());
        }
        let [bytes, time, bound] =
            [table.column("bytes")?, table.column("time_us")?, table.column("bound_us")?];
        let [workers, io, wrong] =
            [table.column("workers")?, table.column("io")?, table.column("wrong")?];
        for row in table.rows().filter(is_whole) {
            let row = row?;
            if !row.text(failure).is_empty() || row.whole(wrong, 0)? != 0 {
                continue;
            }
            let time_s = row.number(time)? / 1e6;
            if time_s <= 0.0 {
                return Err(row.wrong(time, "an allreduce that takes no time"));
            }
            let len_bytes = row.number(bytes)?;
            if !row.text(bound).is_empty() {
                self.shaped.push((row.number(bound)? / 1e6, time_s));
            } else if row.text(io) != "memory" && len_bytes <= CHUNK_BYTES {
                self.latency.push(time_s);
            } else if row.text(io) == "memory" && row.whole(workers, 1)? == 1 {
                self.host.push(len_bytes / time_s);
            }
        }
        Ok(())
    }
}

fn median(numbers: &mut [f64]) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let upper = numbers.get(numbers.len() / 2)?;
    Some((numbers[(numbers.len() - 1) / 2] + upper) / 2.0)
}

/// Rows that Weft's bench wrote; `measured/README.md` has the machine, the commit and the commands.
pub const MEASURED: [(&str, &str); 2] = [
    ("measured/allreduce.csv", include_str!("measured/allreduce.csv")),
    ("measured/aggregator.csv", include_str!("measured/aggregator.csv")),
];

/// Payload of a frame: 256 elements of 4 bytes (`proto/SPEC.md`, "Chunks").
const CHUNK_BYTES: f64 = 1024.0;

/// With Ethernet, IPv4, UDP and Weft's header.
const FRAME_BYTES: f64 = 1024.0 + 14.0 + 20.0 + 8.0 + 32.0;

#[cfg(test)]
mod tests;
