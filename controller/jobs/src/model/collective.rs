//! Predicts the seconds of one allreduce of `n` bytes among `w` workers.
//!
//! Ring, halving-doubling and binary blocks cost latency, bytes and additions (equations 2 to 4 of
//! arXiv 1908.08082; Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
//! Operations in MPICH", 2005). Aggregation in the network costs what Weft's own bench measured
//! ([`in_network`]).
//!
//! Invariant: one worker needs no allreduce, and it costs nothing.

use super::speed::Speed;

pub mod in_network;

pub use in_network::InNetwork;

/// A network between hosts that sum themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Seconds that a message takes, however small (alpha).
    pub latency_s: f64,
    /// Seconds per byte on a link (beta).
    pub transfer_s_per_byte: f64,
    /// Seconds to add one byte (gamma).
    pub reduce_s_per_byte: f64,
}

/// How the workers' vectors are summed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Collective {
    /// Around a ring, twice (equation 2).
    Ring(Network),
    /// Recursive halving and doubling; a number of workers that is no power of two drops to the
    /// next lower one first (equations 3 and 4).
    HalvingDoubling(Network),
    /// Halving and doubling in blocks of powers of two that add up to the workers.
    BinaryBlocks(Network),
    /// On the way, by Weft's aggregator.
    InNetwork(InNetwork),
}

impl Collective {
    /// Its name in reports.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ring(_) => "ring",
            Self::HalvingDoubling(_) => "halving-doubling",
            Self::BinaryBlocks(_) => "binary-blocks",
            Self::InNetwork(_) => "in-network",
        }
    }

    /// Seconds of one allreduce.
    #[must_use]
    pub fn seconds(&self, workers: u32, bytes: f64) -> f64 {
        if workers <= 1 {
            return 0.0;
        }
        match self {
            Self::Ring(network) => ring(*network, workers, bytes),
            Self::HalvingDoubling(network) => halving_doubling(*network, workers, bytes),
            Self::BinaryBlocks(network) => binary_blocks(*network, workers, bytes),
            Self::InNetwork(weft) => weft.seconds(workers, bytes),
        }
    }
}

/// A job whose whole batch stays the same: its workers share the computing, and then sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shared {
    /// Seconds of an iteration with one worker.
    pub compute_s: f64,
    /// Bytes that each worker sums.
    pub bytes: f64,
    /// How.
    pub collective: Collective,
}

impl Shared {
    /// Seconds of an iteration.
    #[must_use]
    pub fn iteration_s(&self, workers: u32) -> f64 {
        self.compute_s / f64::from(workers) + self.collective.seconds(workers, self.bytes)
    }
}

impl Speed for Shared {
    fn iterations_per_s(&self, width: u32) -> f64 {
        if width == 0 { 0.0 } else { 1.0 / self.iteration_s(width) }
    }
}

fn ring(network: Network, workers: u32, bytes: f64) -> f64 {
    let w = f64::from(workers);
    let share = (w - 1.0) / w * bytes;
    2.0 * (w - 1.0) * network.latency_s
        + share * (2.0 * network.transfer_s_per_byte + network.reduce_s_per_byte)
}

fn halving_doubling(network: Network, workers: u32, bytes: f64) -> f64 {
    let w = f64::from(workers);
    let share = (w - 1.0) / w;
    let extra = f64::from(u32::from(!workers.is_power_of_two()));
    (2.0 * f64::from(workers.ilog2()) + 2.0 * extra) * network.latency_s
        + (2.0 * share + 2.0 * extra) * bytes * network.transfer_s_per_byte
        + (share + extra) * bytes * network.reduce_s_per_byte
}

/// The critical path, *derived* from the description of the algorithm. Each block reduces and
/// scatters in itself. From the smallest block on, each worker of a block hands its part to the
/// workers of the next larger one that hold pieces of it; the sums come back the same way, and each
/// block gathers in itself.
fn binary_blocks(network: Network, workers: u32, bytes: f64) -> f64 {
    let inside = |block: u32| {
        let share = f64::from(block - 1) / f64::from(block) * bytes;
        let latency_s = f64::from(block.ilog2()) * network.latency_s;
        let gather_s = latency_s + share * network.transfer_s_per_byte;
        [gather_s + share * network.reduce_s_per_byte, gather_s]
    };
    let between = |small: u32, large: u32| {
        let part = bytes / f64::from(small);
        f64::from(large / small) * network.latency_s + part * network.transfer_s_per_byte
    };
    let blocks = || (0..u32::BITS).map(|bit| 1 << bit).filter(|block| workers & block != 0);
    // Up: when a block has summed itself and what came from the smaller ones.
    let mut summed_s = 0.0;
    let mut smaller: Option<u32> = None;
    for block in blocks() {
        let [reduced_s, _] = inside(block);
        summed_s = smaller.map_or(reduced_s, |small| {
            let piece = bytes / f64::from(block);
            let arrived_s = summed_s + between(small, block);
            reduced_s.max(arrived_s) + piece * network.reduce_s_per_byte
        });
        smaller = Some(block);
    }
    // Down: the largest has every sum now; the others get theirs one after the other.
    let mut larger: Option<u32> = None;
    let [mut here_s, mut end_s] = [summed_s, 0.0_f64];
    for bit in (0..u32::BITS).rev().filter(|bit| workers >> bit & 1 == 1) {
        let block = 1 << bit;
        here_s += larger.map_or(0.0, |large| between(block, large));
        end_s = end_s.max(here_s + inside(block)[1]);
        larger = Some(block);
    }
    end_s
}

#[cfg(test)]
mod tests;
