//! `weft bench aggregator|allreduce|gate`.

use clap::Subcommand;

use super::{Format, Outcome, bench_aggregator};

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// One lcore of the aggregator, beside dpdk-testpmd
    ///
    /// Each row is the median of interleaved rounds. It is valid, and the exit status 0, only if at
    /// least 99 % of the packets entered a sum and no sampled sum was wrong.
    #[command(after_help = bench_aggregator::COLUMNS)]
    Aggregator(bench_aggregator::AggregatorArgs),
}

pub(crate) fn run(command: BenchCommand, format: Format) -> Outcome {
    match command {
        BenchCommand::Aggregator(arguments) => bench_aggregator::run(&arguments, format),
    }
}
