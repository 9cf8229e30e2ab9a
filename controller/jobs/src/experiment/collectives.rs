//! What aggregation in the network changes in how wide elastic jobs run.
//!
//! The contrast of the doubling rule and the +1 greedy (1,000, 500 and 250 iterations on 64 GPUs,
//! 6.4 s of computing an iteration on one) with every collective: a rule sees nothing but the times
//! of an iteration, and those differ in shape. Halving-doubling takes longer just beyond a power of
//! two; aggregation in the network does not know how many it sums for, until the aggregator itself
//! has too much to add.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Alike, OneSpeed, Spread, run};
use crate::cluster::Cluster;
use crate::job::NS_PER_S;
use crate::model::collective::in_network::Measured;
use crate::model::collective::{Collective, InNetwork, Network, Shared};
use crate::policy::elastic::widths::{Demand, Growth, grow, optimum, total_s};
use crate::policy::{BUILT_IN, Widths};
use crate::sim::SimError;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    /// Rate of every link, in bits per second.
    pub rate_bits_per_s: f64,
    /// Bytes of the model.
    pub model_bytes: f64,
    /// Lcores of the aggregator.
    pub lcores: u32,
    /// Weft's constants.
    pub measured: Measured,
    /// Runs of the simulation.
    pub seeds: u64,
}

/// Widths that a rule chose.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// Of the three jobs.
    pub widths: Vec<u32>,
    /// What they take together, in seconds.
    pub total_s: f64,
}

/// What comes of a collective.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its name. Weft has two rows: with hosts as measured, and with hosts that keep up with any link.
    pub collective: &'static str,
    /// Seconds of an iteration at [`WIDTHS`].
    pub iteration_s: Vec<f64>,
    /// One more where it gains most.
    pub one: Chosen,
    /// Twice as many where each gains most.
    pub doubling: Chosen,
    /// The best widths.
    pub optimum: Chosen,
    /// Mean completion time in seconds of jobs that come and go, under +1 and under doubling.
    pub mean_jct_s: [Spread; 2],
    /// How often such a job changes its width, under the same.
    pub resizes_per_job: [Spread; 2],
}

/// Widths whose iterations are shown.
pub const WIDTHS: [u32; 7] = [1, 8, 9, 16, 17, 32, 64];

/// Latency of a message and additions per byte of the hosts' own collectives: those of the
/// deterministic contrast.
const LATENCY_S: f64 = 30e-6;
const REDUCE_S_PER_BYTE: f64 = 1.0 / 8e9;

const COMPUTE_S: f64 = 6.4;
const ITERATIONS: [f64; 3] = [1_000.0, 500.0, 250.0];
const GPUS: u32 = 64;
const RESTART_NS: u64 = 10 * NS_PER_S;

/// Jobs that come and go: 6,400 s of one GPU's computing each 250 s, 26 GPUs' worth.
const COMING: Alike =
    Alike { jobs: 100, gap_s: 250.0, hours_on_one: ITERATIONS[0] * COMPUTE_S / 3_600.0 };

impl Question {
    /// Asks it of every collective.
    ///
    /// # Errors
    /// [`SimError`] if a policy fails.
    pub fn ask(&self) -> Result<Vec<Row>, SimError> {
        let rate_bytes_per_s = self.rate_bits_per_s / 8.0;
        let network = Network {
            latency_s: LATENCY_S,
            transfer_s_per_byte: 1.0 / rate_bytes_per_s,
            reduce_s_per_byte: REDUCE_S_PER_BYTE,
        };
        let weft = |counts_hosts| {
            let Self { measured, lcores, .. } = *self;
            Collective::InNetwork(InNetwork { measured, rate_bytes_per_s, lcores, counts_hosts })
        };
        let all = [
            ("ring", Collective::Ring(network)),
            ("halving-doubling", Collective::HalvingDoubling(network)),
            ("binary-blocks", Collective::BinaryBlocks(network)),
            ("weft", weft(true)),
            ("weft, fast hosts", weft(false)),
        ];
        all.into_iter().map(|(name, collective)| self.row(name, collective)).collect()
    }

    fn row(&self, name: &'static str, collective: Collective) -> Result<Row, SimError> {
        let speed = Shared { compute_s: COMPUTE_S, bytes: self.model_bytes, collective };
        let jobs = ITERATIONS.map(|iterations| Demand { iterations, speed, least: 1 });
        let chosen = |widths: Vec<u32>| {
            let total_s = total_s(&jobs, &widths);
            Chosen { widths, total_s }
        };
        let (best, _) = optimum(&jobs, GPUS).expect("more GPUs than jobs");
        let [mut mean_jct_s, mut resizes_per_job] = [[Spread::default(); 2]; 2];
        let widths: Arc<dyn Widths> = Arc::new(OneSpeed { speed, gpus_max: GPUS });
        for (at, name) in ["optimus", "doubling"].into_iter().enumerate() {
            let policy = BUILT_IN.find(name).expect("a policy of the registry");
            let [mut means_s, mut resizes] = [Vec::new(), Vec::new()];
            for seed in 1..=self.seeds.max(1) {
                let jobs = COMING.generate(seed);
                let cluster = Cluster::of_nodes(GPUS / 8, 8);
                let ran = run(&policy, cluster, jobs, Arc::clone(&widths), RESTART_NS)?;
                means_s.push(ran.mean_jct_s);
                resizes.push(ran.resizes_per_job);
            }
            mean_jct_s[at] = Spread::of(&means_s);
            resizes_per_job[at] = Spread::of(&resizes);
        }
        Ok(Row {
            collective: name,
            iteration_s: WIDTHS.iter().map(|width| speed.iteration_s(*width)).collect(),
            one: chosen(grow(&jobs, GPUS, Growth::One)),
            doubling: chosen(grow(&jobs, GPUS, Growth::Doubling)),
            optimum: chosen(best),
            mean_jct_s,
            resizes_per_job,
        })
    }
}

#[cfg(test)]
mod tests;
