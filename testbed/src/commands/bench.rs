//! `weft bench aggregator|allreduce|forged|gate|keys`.

use clap::Subcommand;

use super::{
    Format, Outcome, bench_aggregator, bench_allreduce, bench_forged, bench_gate, bench_keys,
};

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// One lcore of the aggregator, beside dpdk-testpmd
    ///
    /// Each row is the median of interleaved rounds. It is valid, and the exit status 0, only if at
    /// least 99 % of the packets entered a sum and no sampled sum was wrong.
    #[command(after_help = bench_aggregator::COLUMNS)]
    Aggregator(bench_aggregator::AggregatorArgs),
    /// Sums of vectors over any port, in nccl-tests' columns
    ///
    /// Every element of every sum is compared; the exit status is 1 if one is wrong.
    #[command(after_help = bench_allreduce::COLUMNS)]
    Allreduce(bench_allreduce::AllreduceArgs),
    /// One worker of `weft bench allreduce`
    #[command(hide = true)]
    Member,
    /// A job at its quota, alone and among frames forged from its members' addresses
    ///
    /// Exit status 1 when this was no valid measurement: the job got 5 % less or more among forged
    /// frames than alone, or there was no flood.
    #[command(after_help = bench_forged::COLUMNS)]
    Forged(bench_forged::ForgedArgs),
    /// Instructions per packet against the committed figures
    ///
    /// Counted by callgrind, so a busy machine changes nothing. Exit status 1 when a figure changed
    /// by more than the tolerance.
    ///
    /// callgrind shows its guest no AVX-512, so what is counted, on any machine that runs the gate,
    /// is the AVX2 arithmetic and the CRC32C of SSE4.2 and PCLMULQDQ. That is what processors run
    /// that have AVX2 and BMI2 and no AVX-512: their whole path is guarded. Those with AVX-512
    /// (Skylake-SP and Zen 4 on) run another arithmetic, and with VPCLMULQDQ another CRC32C: of
    /// their path only the rest is guarded, such as headers, slots and the lane.
    Gate(bench_gate::GateArgs),
    /// Operations on rows of parameters that move between processes, on loopback
    ///
    /// One thread calls at a time. Exit status 1 when a push was lost or counted twice.
    #[command(after_help = bench_keys::COLUMNS)]
    Keys(bench_keys::KeysArgs),
}

pub(crate) fn run(command: BenchCommand, format: Format) -> Outcome {
    match command {
        BenchCommand::Aggregator(arguments) => bench_aggregator::run(&arguments, format),
        BenchCommand::Allreduce(arguments) => bench_allreduce::run(&arguments, format),
        BenchCommand::Member => bench_allreduce::run_member(),
        BenchCommand::Forged(arguments) => bench_forged::run(&arguments, format),
        BenchCommand::Gate(arguments) => bench_gate::run(&arguments, format),
        BenchCommand::Keys(arguments) => bench_keys::run(&arguments, format),
    }
}
