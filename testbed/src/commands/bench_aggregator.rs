//! `weft bench aggregator`.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use weft_testbed::bench::aggregator::{self, Row, Settings};
use weft_testbed::bench::case::{Case, Frames, Lease, Order, Source};
use weft_testbed::bench::{BenchError, Programs, ScratchDir, allowed_cpus, interrupt};
use weft_testbed::report::Machine;

use super::rows::Rows;
use super::{Exit, Failure, Format, Outcome};

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
    /// Steps that a member sends before it is the next member's turn; on net_pcap only, if not
    /// "step".
    #[arg(long, value_enum, value_delimiter = ',', default_value = "step")]
    order: Vec<OrderName>,
    /// Jobs whose frames take turns; on net_pcap only, if more than one.
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u8).range(1..=8))]
    jobs: Vec<u8>,
    /// What surrounds a datagram; on net_pcap only, if not IPv4.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ipv4")]
    frames: Vec<FramesName>,
    /// Give each job a quota, which it does not reach.
    #[arg(long)]
    quota: bool,
    /// Lcores of the aggregator, 1 or 2. With two, on net_pcap only, the first receives and sends
    /// for both and hands over half of the frames; a CPU-second is one of either.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
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
enum OrderName {
    /// One: the contributions to a step stand one behind another.
    Step,
    /// Two.
    #[value(name = "2")]
    Two,
    /// Eight.
    #[value(name = "8")]
    Eight,
    /// Thirty-two: a burst holds one member's.
    #[value(name = "32")]
    ThirtyTwo,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FramesName {
    Ipv4,
    Ipv6,
    /// IPv4 behind a VLAN tag, which an aggregator refuses: the row shows what that costs.
    Vlan,
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
    let programs = Programs::find().map_err(explain)?;
    let settings =
        Settings { rounds: arguments.rounds, seconds: arguments.seconds, cpus: cpus(arguments)? };
    let cases = cases(arguments);
    if cases.is_empty() {
        let text = "nothing to measure: orders, jobs, lcores, IPv6, VLAN tags and whole leases need net_pcap";
        return Err(Exit::Usage.because(anyhow!(text)));
    }
    interrupt::listen().map_err(|error| Exit::CannotRun.because(error))?;
    let directory = ScratchDir::new(arguments.keep.as_deref()).map_err(explain)?;
    let mut rows = Rows::begin(format, &header(&Machine::read(), &programs.bench.version))?;
    let mut valid = true;
    for case in cases {
        let name = case.name();
        let progress =
            |round| weft_process::say!("weft: {name}: round {round}/{}", settings.rounds);
        let row = match aggregator::run(&programs, &case, &settings, directory.path(), progress) {
            Ok(row) => row,
            Err(error) => {
                rows.end()?;
                return Err(explain(error));
            }
        };
        rows.row(&row, text)?;
        if let Some(failure) = &row.failure {
            weft_process::say!("weft: {name}: FAILED: {failure}");
        } else if !row.is_valid() {
            weft_process::say!(
                "weft: {name}: packets were refused, or sums were wrong or unchecked"
            );
        }
        valid &= row.is_valid();
    }
    rows.end()?;
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
    let orders = arguments.order.iter().map(|order| match order {
        OrderName::Step => Order::Step,
        OrderName::Two => Order::Two,
        OrderName::Eight => Order::Eight,
        OrderName::ThirtyTwo => Order::ThirtyTwo,
    });
    let frames = arguments.frames.iter().map(|frames| match frames {
        FramesName::Ipv4 => Frames::Ipv4,
        FramesName::Ipv6 => Frames::Ipv6,
        FramesName::Vlan => Frames::Vlan,
    });
    let (window, quota, lcores) = (arguments.window, arguments.quota, arguments.lcores);
    let plain = Case { window, quota, lcores, ..Case::default() };
    let cases = product(vec![plain], sources, |case, source| Case { source, ..case });
    let cases = product(cases, &arguments.elements, |case, elements| Case { elements, ..case });
    let cases = product(cases, &arguments.workers, |case, workers| Case { workers, ..case });
    let cases = product(cases, &Vec::from_iter(frames), |case, frames| Case { frames, ..case });
    let cases = product(cases, &arguments.jobs, |case, jobs| Case { jobs, ..case });
    let cases = product(cases, &Vec::from_iter(orders), |case, order| Case { order, ..case });
    let cases = product(cases, crcs, |case, crc| Case { crc, ..case });
    let cases = product(cases, leases, |case, lease| Case { lease, ..case });
    cases.into_iter().map(Case::fitted).filter(Case::is_measurable).collect()
}

/// Each case with each value.
fn product<T: Copy>(cases: Vec<Case>, values: &[T], with: impl Fn(Case, T) -> Case) -> Vec<Case> {
    let of_case = |case| values.iter().map(|value| with(case, *value)).collect::<Vec<_>>();
    cases.into_iter().flat_map(of_case).collect()
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
        BenchError::Process { .. } | BenchError::System { .. } | BenchError::Interrupted => {
            Exit::Failed
        }
        _ => Exit::CannotRun,
    };
    exit.because(anyhow!(error))
}

fn header(machine: &Machine, version: &str) -> String {
    let mut out = format!(
        "# {}\n# {} CPUs, kernel {}, DPDK {}, load {:.2} {:.2} {:.2}\n# {}\n",
        machine.cpu,
        machine.cpus,
        machine.kernel,
        machine.dpdk.as_deref().unwrap_or("unknown"),
        machine.load_average[0],
        machine.load_average[1],
        machine.load_average[2],
        version,
    );
    let _ = writeln!(
        out,
        "{:<6} {:<8} {:<4} {:>8} {:>7} {:<5} {:>4} {:<6} {:<5} {:>6} {:>10} {:>6} {:>11} {:>5} \
         {:>7} {:>6}  verdict",
        "source",
        "lease",
        "crc",
        "elements",
        "workers",
        "order",
        "jobs",
        "frames",
        "quota",
        "lcores",
        "Mpkt/CPU-s",
        "ns/pkt",
        "testpmd M/s",
        "ratio",
        "added",
        "#wrong",
    );
    out
}

fn text(row: &Row) -> String {
    let source = format!("{:?}", row.source).to_lowercase();
    let per_cpu = row.packets_per_cpu_second;
    let number = |value: Option<f64>, scale: f64| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{:.2}", value / scale))
    };
    format!(
        "{:<6} {:<8} {:<4} {:>8} {:>7} {:<5} {:>4} {:<6} {:<5} {:>6} {:>10.2} {:>6.1} {:>11} \
         {:>5} {:>6.2}% {:>6}  {}\n",
        source,
        format!("{:?}", row.lease).to_lowercase(),
        if row.crc { "on" } else { "off" },
        row.elements,
        row.workers,
        row.order.name(),
        row.jobs,
        row.frames.name(),
        if row.quota { "on" } else { "off" },
        row.lcores,
        per_cpu / 1e6,
        1e9 / per_cpu,
        number(row.testpmd_packets_per_second, 1e6),
        number(row.ratio_to_testpmd, 1.0),
        100.0 * row.contributions_added as f64 / (row.packets as f64).max(1.0),
        row.wrong,
        match &row.failure {
            Some(_) => "FAILED",
            None if !row.is_valid() => "INVALID",
            None if row.frames == Frames::Vlan => "ok: all refused",
            None => "ok",
        },
    )
}

/// What the columns mean.
pub(crate) const COLUMNS: &str = "\
Columns (JSON and CSV have more, in the same order; rates and ratios are medians over the rounds):
  order, jobs                 how the members' frames are mixed; jobs whose frames take turns
  frames, quota               ipv4, ipv6 or vlan; each job has a quota
  packets_per_cpu_second      packets received per CPU-second of the lcores
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
  valid                       contributions_added / packets is at least 0.99, and wrong is 0;
                              with VLAN tags: as many packets were refused for them
  failure                     why a row has no figures, or not of all rounds";
