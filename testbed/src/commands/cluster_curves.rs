//! What `weft cluster` draws: how long jobs took, and how much of the cluster was in use when.

use weft_jobs::cluster::Cluster;
use weft_jobs::job::NS_PER_S;
use weft_jobs::sim::{Row, Usage};
use weft_testbed::report::{SvgError, completions_svg, utilisation_svg};

use super::cluster_files::Staged;
use super::{Exit, Failure};

/// What pictures show of one simulation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Curves {
    /// GPUs of the cluster.
    gpus: f64,
    /// Completion times of jobs, in order of their ends.
    pub(super) jct_s: Vec<f64>,
    /// From when on which part of the GPUs was in use.
    pub(super) used: Vec<(f64, f64)>,
}

impl Curves {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        Self { gpus: cluster.gpus().into(), ..Self::default() }
    }

    pub(crate) fn ended(&mut self, row: &Row<'_>) {
        self.jct_s.push(seconds(row.jct_ns()));
    }

    pub(crate) fn usage(&mut self, now_ns: u64, usage: Usage) {
        let share = f64::from(usage.gpus) / self.gpus;
        if self.used.last().is_none_or(|last| last.1.to_bits() != share.to_bits()) {
            self.used.push((seconds(now_ns), share));
        }
    }
}

/// Draws `completions.svg` of `all` and `utilisation.svg` of `one`, the first case of all.
pub(crate) fn draw(
    files: &mut Staged,
    [all, one]: [&str; 2],
    kinds: &[(String, Curves)],
) -> Result<(), Failure> {
    let failed = |error: SvgError| Exit::Failed.because(error);
    let times: Vec<_> = kinds.iter().map(|(name, c)| (name.clone(), c.jct_s.clone())).collect();
    let used: Vec<_> = kinds.iter().map(|(name, c)| (name.clone(), c.used.clone())).collect();
    let completions = completions_svg(&format!("How long jobs took: {all}"), &times);
    let utilisation = utilisation_svg(&format!("GPUs in use: {one}"), &used);
    for (name, picture) in [("completions.svg", completions), ("utilisation.svg", utilisation)] {
        if let Some(picture) = picture.map_err(failed)? {
            files.write(name, &picture)?;
        }
    }
    Ok(())
}

fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / NS_PER_S as f64
}
