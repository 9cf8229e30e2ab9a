//! Throughput that somebody measured, by model, whole batch and GPUs: how fast a trace's jobs are
//! at widths that they did not ask for.
//!
//! `model,global_batch_size,gpus,iterations_per_s`, a line a measurement (the tables of
//! ElasticFlow, ASPLOS'23, reshaped). Invariant: a job that the table does not have, or not at the
//! width that it asks for, runs at that width and at no other.

use alloc::collections::BTreeMap;
use alloc::string::String;

use super::speed::{Curve, Speed};
use crate::job::{Job, NS_PER_S};
use crate::policy::{AsAsked, Widths};
use crate::text::{Table, TextError, ns_of, plain};

/// A table of throughput.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Throughputs(BTreeMap<String, BTreeMap<u32, Curve>>);

impl Throughputs {
    /// Reads a table.
    ///
    /// # Errors
    /// [`TextError`] at the first line that is wrong, or says again what another one said.
    pub fn read(file: &str, text: &str) -> Result<Self, TextError> {
        let table = Table::new(file, text)?;
        let [model, batch, gpus, rate] = [
            table.column("model")?,
            table.column("global_batch_size")?,
            table.column("gpus")?,
            table.column("iterations_per_s")?,
        ];
        let mut throughputs = Self::default();
        for row in table.rows() {
            let row = row?;
            let [width, of_batch] = [row.whole(gpus, 1)?, row.whole(batch, 1)?];
            let name = plain(row.text(model));
            let speed = row.number(rate)?;
            if speed <= 0.0 {
                return Err(row.wrong(rate, "is 0; leave out what was not measured"));
            }
            let curve = throughputs.0.entry(name).or_default().entry(of_batch).or_default();
            if curve.points().iter().any(|point| point.0 == width) {
                return Err(row.wrong(gpus, "is the second line of its model, batch and GPUs"));
            }
            curve.set(width, speed);
        }
        if throughputs.0.is_empty() {
            return Err(TextError::new(file, 2, "row", "there is no measurement"));
        }
        Ok(throughputs)
    }

    /// The curve of a model, by its [`plain`] name, and its whole batch.
    #[must_use]
    pub fn curve(&self, model: &str, global_batch: u32) -> Option<&Curve> {
        self.0.get(model)?.get(&global_batch)
    }

    /// All curves with their models and whole batches, in order.
    pub fn curves(&self) -> impl Iterator<Item = (&str, u32, &Curve)> {
        self.0.iter().flat_map(|(model, batches)| {
            batches.iter().map(move |(batch, curve)| (model.as_str(), *batch, curve))
        })
    }

    /// The curve of a job, if it was measured where the job's duration holds, and its speed there.
    fn of(&self, job: &Job) -> Option<(&Curve, f64)> {
        let curve = self.curve(&job.model, job.global_batch)?;
        let asked = curve.iterations_per_s(job.gpus);
        (asked > 0.0).then_some((curve, asked))
    }
}

impl Widths for Throughputs {
    fn speedup(&self, job: &Job, gpus: u32) -> f64 {
        match self.of(job) {
            Some((curve, asked)) => curve.iterations_per_s(gpus) / asked,
            None => AsAsked.speedup(job, gpus),
        }
    }

    fn gpus_max(&self, job: &Job) -> u32 {
        let fastest = self.of(job).and_then(|(curve, _)| curve.fastest(u32::MAX));
        fastest.map_or_else(|| AsAsked.gpus_max(job), |(width, _)| width)
    }

    fn knows(&self, job: &Job) -> bool {
        self.of(job).is_some()
    }
}

/// Gives a job that is wider than a cluster all its GPUs, and its duration there.
///
/// # Errors
/// Says why it cannot run there.
pub fn narrow(job: &mut Job, gpus: u32, widths: &dyn Widths) -> Result<(), String> {
    if job.gpus <= gpus {
        return Ok(());
    }
    let speedup = widths.speedup(job, gpus);
    if speedup <= 0.0 {
        return Err(format!(
            "its {} GPUs are more than the cluster's {gpus}, and its speed there is not known",
            job.gpus
        ));
    }
    job.duration_ns = ns_of(job.duration_ns as f64 / NS_PER_S as f64 / speedup);
    job.gpus = gpus;
    Ok(())
}

#[cfg(test)]
mod tests;
