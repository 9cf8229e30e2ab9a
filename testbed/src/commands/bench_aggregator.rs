//! `weft bench aggregator`.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use weft_testbed::bench::aggregator::{self, Case, Lease, Row, Settings, Source};
use weft_testbed::bench::{BenchError, Node, ScratchDir, allowed_cpus};
use weft_testbed::report::Machine;

use super::{Exit, Failure, Format, Outcome, emit, emit_csv, emit_json};

#[derive(Debug, Args)]
pub(crate) struct AggregatorArgs {
    /// Where contributions come from.
    #[arg(long, value_enum, default_value_t = Sources::All)]
    source: Sources,
    /// How long slots live.
    #[arg(long, value_enum, default_value_t = LeaseName::Windowed)]
    lease: LeaseName,
    /// CRC32C of every packet.
    #[arg(long, value_enum, default_value_t = Switch::Both)]
    crc: Switch,
    /// Elements of 4 bytes in a packet.
    #[arg(long, value_delimiter = ',', default_value = "256", value_parser = clap::value_parser!(u16).range(1..=358))]
    elements: Vec<u16>,
    /// Members of the group.
    #[arg(long, value_delimiter = ',', default_value = "4", value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: Vec<u8>,
    /// Lcores of the aggregator; a figure per lcore needs one.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=1))]
    lcores: u8,
    /// Slots, a power of two; on memif fewer, if its rings do not hold them for all workers.
    #[arg(long, default_value_t = 256, value_parser = window)]
    window: u16,
    /// Interleaved rounds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// CPU of the lcore and, after a comma, of the generator [default: the first two allowed].
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<u32>,
    /// Keep configurations and captures here.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    keep: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sources {
    /// net_pcap with infinite_rx.
    Pcap,
    /// A generator process over memif.
    Memif,
    /// Both.
    All,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LeaseName {
    /// A window of slots, two banks each.
    Windowed,
    /// A slot per chunk, 64 MiB a group, on net_pcap only: one group gathers while the one before
    /// is released. Credits, acknowledgements and sums are in the figure; a packet is a
    /// contribution.
    Whole,
    /// Both, in this order.
    Both,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Switch {
    On,
    Off,
    Both,
}

fn window(text: &str) -> Result<u16, String> {
    match text.parse::<u16>() {
        Ok(window) if window.is_power_of_two() && window <= 2048 => Ok(window),
        _ => Err("a power of two, at most 2048".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 60.0 => Ok(seconds),
        _ => Err("seconds, more than 0 and at most 60".to_owned()),
    }
}

pub(crate) fn run(arguments: &AggregatorArgs, format: Format) -> Outcome {
    let node = Node::find().map_err(explain)?;
    let settings =
        Settings { rounds: arguments.rounds, seconds: arguments.seconds, cpus: cpus(arguments)? };
    let directory = ScratchDir::new(arguments.keep.as_deref()).map_err(explain)?;
    let machine = Machine::read();
    let mut rows = Vec::new();
    for case in cases(arguments) {
        let progress = |round| {
            let (source, crc) = (case.source, if case.crc { "crc" } else { "no crc" });
            let (elements, workers, rounds) = (case.elements, case.workers, settings.rounds);
            eprintln!(
                "weft: {source:?}, {crc}, {elements} elements, {workers} workers: round \
                 {round}/{rounds}"
            );
        };
        let row = aggregator::run(&node, &case, &settings, directory.path(), progress);
        rows.push(row.map_err(explain)?);
    }
    match format {
        Format::Text => emit(&text(&rows, &machine, &node))?,
        Format::Json => emit_json(&rows)?,
        Format::Csv => emit_csv(&rows)?,
    }
    let valid = rows.iter().all(Row::is_valid);
    if !valid {
        eprintln!("weft: a row is invalid: packets were refused, or sums were wrong or unchecked");
    }
    Ok(if valid { 0 } else { Exit::Failed as u8 })
}

fn cases(arguments: &AggregatorArgs) -> Vec<Case> {
    let sources: &[Source] = match arguments.source {
        Sources::Pcap => &[Source::Pcap],
        Sources::Memif => &[Source::Memif],
        Sources::All => &[Source::Pcap, Source::Memif],
    };
    let crcs: &[bool] = match arguments.crc {
        Switch::On => &[true],
        Switch::Off => &[false],
        Switch::Both => &[false, true],
    };
    let leases: &[Lease] = match arguments.lease {
        LeaseName::Windowed => &[Lease::Windowed],
        LeaseName::Whole => &[Lease::Whole],
        LeaseName::Both => &[Lease::Windowed, Lease::Whole],
    };
    let mut cases = Vec::new();
    for &source in sources {
        for &elements in &arguments.elements {
            for &workers in &arguments.workers {
                for &crc in crcs {
                    let window = arguments.window;
                    // A generator over memif plays members of windowed leases only.
                    let leases = leases
                        .iter()
                        .filter(|lease| source == Source::Pcap || **lease == Lease::Windowed);
                    cases.extend(leases.map(|&lease| {
                        Case { source, lease, crc, elements, workers, window }.fitted()
                    }));
                }
            }
        }
    }
    cases
}

fn cpus(arguments: &AggregatorArgs) -> Result<[u32; 2], Failure> {
    let allowed = allowed_cpus();
    let chosen = if arguments.cpus.is_empty() { &allowed } else { &arguments.cpus };
    match (chosen.as_slice(), arguments.source) {
        ([lane, other, ..], _) => Ok([*lane, *other]),
        ([only], Sources::Pcap) => Ok([*only, *only]),
        (others, _) => Err(explain(BenchError::OneCpu(others.len()))),
    }
}

fn explain(error: BenchError) -> Failure {
    let exit = match error {
        BenchError::Process { .. } | BenchError::System { .. } => Exit::Failed,
        _ => Exit::CannotRun,
    };
    exit.because(anyhow!(error))
}

fn text(rows: &[Row], machine: &Machine, node: &Node) -> String {
    let mut out = format!(
        "# {}\n# {} CPUs, kernel {}, DPDK {}, load {:.2} {:.2} {:.2}\n# {}\n",
        machine.cpu,
        machine.cpus,
        machine.kernel,
        machine.dpdk.as_deref().unwrap_or("unknown"),
        machine.load_average[0],
        machine.load_average[1],
        machine.load_average[2],
        node.version,
    );
    let _ = writeln!(
        out,
        "{:<6} {:<8} {:<4} {:>8} {:>7} {:>6} {:>11} {:>7} {:>11} {:>6} {:>10} {:>6}  verdict",
        "source",
        "lease",
        "crc",
        "elements",
        "workers",
        "lcores",
        "Mpkt/CPU-s",
        "ns/pkt",
        "testpmd M/s",
        "ratio",
        "added",
        "#wrong",
    );
    for row in rows {
        let source = format!("{:?}", row.source).to_lowercase();
        let per_cpu = row.packets_per_cpu_second;
        let number = |value: Option<f64>, scale: f64| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{:.2}", value / scale))
        };
        let _ = writeln!(
            out,
            "{:<6} {:<8} {:<4} {:>8} {:>7} {:>6} {:>11.2} {:>7.1} {:>11} {:>6} {:>9.2}% {:>6}  {}",
            source,
            format!("{:?}", row.lease).to_lowercase(),
            if row.crc { "on" } else { "off" },
            row.elements,
            row.workers,
            row.lcores,
            per_cpu / 1e6,
            1e9 / per_cpu,
            number(row.testpmd_packets_per_second, 1e6),
            number(row.ratio_to_testpmd, 1.0),
            100.0 * row.contributions_added as f64 / (row.packets as f64).max(1.0),
            row.wrong,
            if row.is_valid() { "ok" } else { "INVALID" },
        );
    }
    out
}

/// What the columns mean.
pub(crate) const COLUMNS: &str = "\
Columns (JSON and CSV have more, in the same order; rates and ratios are medians over the rounds):
  packets_per_cpu_second      packets received per CPU-second of the lcore
  contributions_added         packets that entered a sum
  packets                     packets received
  testpmd_packets_per_second  pcap: rxonly on the same device, per CPU-second
                              memif: macswap with the same generator, per second
  ratio_to_testpmd            pcap: packets_per_cpu_second / testpmd's
                              memif: packets_per_second / testpmd's
  wrong, checked              sampled sums that differ from the reference; sums compared
  packets_per_second          packets received per second of wall clock
  window                      slots of the lease
  repeated                    memif: frames sent again, because one or its answer was lost
  valid                       contributions_added / packets is at least 0.99, and wrong is 0";
