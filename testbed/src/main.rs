//! `weft`: labs, runs and reports of the Weft dataplane.

// These macros panic when nobody reads: `weft_process::say` does not.
#![deny(clippy::print_stderr, clippy::print_stdout)]
#![forbid(unsafe_code)]

mod commands;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use commands::{
    Exit, Failure, Format, bench, certs, cluster, compare, conformance, doctor, install, job, lab,
    plan, probe, replay, report, run, run_args, soak, table_process, top, worker,
};
use weft_process::say;
use weft_process::say::chain;
use weft_testbed::interrupt;

/// Labs, runs and reports of Weft, the in-network gradient aggregation dataplane.
///
/// Data goes to standard output; progress and messages go to standard error.
#[derive(Debug, Parser)]
#[command(name = "weft", version = VERSION, after_help = EXIT_CODES, subcommand_required = true)]
struct Cli {
    /// How data is written.
    #[arg(long, global = true, value_enum, default_value_t, help_heading = "Output")]
    format: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build networks of namespaces on this machine
    #[command(subcommand)]
    Lab(lab::LabCommand),
    /// Run a scenario and prove what it computed
    ///
    /// Every round's sums and the final model are compared bit for bit with an independent
    /// reference. The exit status is 0 when all are right, 1 when the verdict is failed, 3 when the
    /// run was right but degraded: the verdict is ok, and the lines below it say what the run did
    /// without, such as the port that was asked for, or sums by multicast.
    Run(run_args::RunArgs),
    /// Run seeds of the simulated system without end, and judge them by its invariants
    ///
    /// The real engines of workers, aggregators, servers, replicas and the controller in virtual
    /// time; a seed decides who is there, what the network does to frames, who forges some and who
    /// crashes. The exit status is 1 when an invariant was broken; a signal ends it early, with a
    /// report of what was tried.
    Soak(soak::SoakArgs),
    /// Run a scenario under several policies and seeds, and put them beside each other
    ///
    /// Medians over the seeds, 95 % intervals of the means, 99th percentiles over all updates, and
    /// the loss against time of each policy as one picture.
    Compare(compare::CompareArgs),
    /// Play conformance scripts to whatever aggregates
    ///
    /// The Rust engine, the compiled P4 program, and switches that are here. docs/conformance.md
    /// says how a script is written. The exit status is 1 when a script failed, 3 when none could
    /// be played.
    Conformance(conformance::ConformanceArgs),
    /// Plan transfers for a snapshot of requests and bandwidths, without a network
    ///
    /// The case is a JSON file; docs/plan.md has every key. A bad case ends with status 1 and a
    /// message that names the field.
    Plan(plan::PlanArgs),
    /// Add, list, steer and remove the jobs of a controller that runs
    ///
    /// Every command goes to a live controller and changes what its workers and nodes do, or reads
    /// it; docs/steering.md has what each comes to. To simulate jobs: `weft cluster`.
    #[command(subcommand, after_help = job::EXITS)]
    Job(job::JobCommand),
    /// Simulate a trace of jobs on a cluster under a policy, or what its decisions rest on
    ///
    /// Who runs, where and how wide, event by event, with every job's times. A file that makes no
    /// sense ends with status 2 and a message that names file, line and field. Nothing is sent, and
    /// no controller is asked; a live controller's jobs are steered by `weft job`.
    Cluster(cluster::ClusterArgs),
    /// Make, list and renew the certificates of controllers, nodes, workers and operators
    ///
    /// docs/security.md says who needs which, and what each may do.
    #[command(subcommand)]
    Certs(certs::CertsCommand),
    /// Measure
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Watch the jobs, bands, links, groups, stragglers and drops of a controller
    ///
    /// Reads what the controller counts and changes nothing. `q` ends it; --once prints one
    /// reading.
    Top(top::TopArgs),
    /// Redraw the report of a run from its directory
    ///
    /// Writes the histogram of round times beside it. The exit status is the run's verdict: 1 when
    /// it failed or did not end.
    Report(report::ReportArgs),
    /// Feed recorded frames to a node's engines again, and compare what they send
    ///
    /// A recording of `weft-node --record` or `weft run --record` (docs/replay.md). Differences are
    /// shown field by field; the exit status is 1 when there is one.
    Replay(replay::ReplayArgs),
    /// Estimate the bandwidth of every link of a lab, beside the shaped truth
    ///
    /// Packet trains and NIC counters, as the controller has them. The exit status is 1 when
    /// `--within` is given and an estimate is farther off.
    Probe(probe::ProbeArgs),
    /// Say what this machine can run, and how to fix what it cannot
    ///
    /// One line for each finding. The exit status is 0 when the demo runs here in some mode,
    /// else 3.
    Doctor(doctor::DoctorArgs),
    /// Print what completes the command lines of Weft's programs in a shell
    Completions(install::CompletionsArgs),
    /// Write the manual pages of Weft's programs into a folder
    Man(install::ManArgs),
    /// One worker of a run; started by `weft run`
    #[command(hide = true)]
    Worker(worker::WorkerArgs),
    /// One process of a table of rows; started by `weft run`
    #[command(hide = true)]
    TableProcess(table_process::TableProcessArgs),
    /// One host of a measurement; started by `weft probe`
    #[command(hide = true)]
    ProbeAgent(probe::AgentArgs),
}

fn main() -> ExitCode {
    if let Err(error) = interrupt::end_at_once() {
        say!("weft: cannot listen to signals: {error}");
    }
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Lab(command) => lab::run(command, cli.format),
        Command::Run(arguments) => run::run(&arguments, cli.format),
        Command::Soak(arguments) => soak::run(&arguments, cli.format),
        Command::Compare(arguments) => compare::run(&arguments, cli.format),
        Command::Conformance(arguments) => conformance::run(&arguments, cli.format),
        Command::Plan(arguments) => plan::run(&arguments, cli.format),
        Command::Job(command) => job::run(&command, cli.format),
        Command::Cluster(arguments) => cluster::run(&arguments, cli.format),
        Command::Worker(arguments) => worker::run(&arguments),
        Command::TableProcess(arguments) => table_process::run(&arguments),
        Command::Probe(arguments) => probe::run(&arguments, cli.format),
        Command::ProbeAgent(arguments) => probe::run_agent(&arguments),
        Command::Certs(command) => certs::run(command, cli.format),
        Command::Bench(command) => bench::run(command, cli.format),
        Command::Replay(arguments) => replay::run(&arguments, cli.format),
        Command::Top(arguments) => top::run(&arguments, cli.format),
        Command::Report(arguments) => report::run(&arguments, cli.format),
        Command::Doctor(arguments) => doctor::run(&arguments, cli.format),
        Command::Completions(arguments) => install::completions(&arguments, programs()),
        Command::Man(arguments) => install::man(&arguments, programs()),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        // Whatever else failed then, failed of it.
        Err(Failure { error, .. }) if interrupt::is_raised() => {
            say!("weft: interrupted: {}", chain(error.as_ref()));
            ExitCode::from(Exit::Interrupted as u8)
        }
        Err(Failure { exit, error }) => {
            say!("weft: {}", chain(error.as_ref()));
            ExitCode::from(exit as u8)
        }
    }
}

/// The command lines of all programs of Weft.
fn programs() -> [clap::Command; 3] {
    [Cli::command(), weft_node::cli::Cli::command(), weft_controller::cli::Cli::command()]
}

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("WEFT_COMMIT"), ")");

const EXIT_CODES: &str = "\
Exit status: 0 done, 1 failed, 2 wrong usage or input file, 3 cannot run here or degraded, 130
interrupted by SIGINT, SIGTERM or SIGHUP, after what was made is taken down.";
