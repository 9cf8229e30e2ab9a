//! `weft bench allreduce --peers`.

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use weft_testbed::bench::peers::{self, Peer, Rivals, Row, Settings};
use weft_testbed::bench::{BenchError, BoxLink, Lanes, ScratchDir, interrupt};
use weft_testbed::lab::rootless;
use weft_testbed::report::Machine;

use super::bench_allreduce::{explain, of_lanes};
use super::rows::{Rows, or_dash, reason};
use super::{Exit, Failure, Format, Outcome};

// What conflicts with --peers spares clap its requirement: it has to conflict with these, too.
#[derive(Debug, Args)]
#[group(conflicts_with_all = ["io", "worker_io", "element_type", "lab", "rate_mbit"])]
pub(crate) struct PeerArgs {
    /// Rates of the workers' links, in each direction; 0: unshaped.
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000,0", requires = "peers")]
    rates: Vec<u32>,
    /// Largest IP packets of all links. Default 1500; 65535 with --one-host.
    #[arg(long, value_delimiter = ',', requires = "peers", value_parser = clap::value_parser!(u16).range(1280..))]
    mtus: Vec<u16>,
    /// Runs of each peer, in turn.
    #[arg(long, default_value_t = 3, requires = "peers", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Who is measured. Default: all.
    #[arg(long, value_enum, value_delimiter = ',', requires = "peers")]
    only: Vec<PeerName>,
    /// Links of Weft's box where the workers' are shaped: `unshaped`, as a switch's, or the `same`
    /// rate as theirs, as a host's. With rate 0 all are unshaped.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "unshaped,same",
        requires = "peers"
    )]
    box_links: Vec<BoxLinkName>,
    /// Everybody on this host: Weft through memory (`shm`) and UDP on loopback, beside OpenMPI
    /// through memory and Gloo on loopback.
    #[arg(long, requires = "peers", conflicts_with_all = ["rates", "box_links"])]
    one_host: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum PeerName {
    Weft,
    WeftOffload,
    WeftMulticast,
    WeftNoCrc,
    WeftAfPacket,
    WeftShm,
    Openmpi,
    OpenmpiRing,
    OpenmpiShm,
    Gloo,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum BoxLinkName {
    Unshaped,
    Same,
}

impl BoxLinkName {
    const fn link(self) -> BoxLink {
        match self {
            Self::Unshaped => BoxLink::Unshaped,
            Self::Same => BoxLink::Same,
        }
    }
}

impl PeerName {
    const fn peer(self) -> Peer {
        match self {
            Self::Weft => Peer::Weft,
            Self::WeftOffload => Peer::WeftOffload,
            Self::WeftMulticast => Peer::WeftMulticast,
            Self::WeftNoCrc => Peer::WeftNoCrc,
            Self::WeftAfPacket => Peer::WeftAfPacket,
            Self::WeftShm => Peer::WeftShm,
            Self::Openmpi => Peer::OpenMpi,
            Self::OpenmpiRing => Peer::OpenMpiRing,
            Self::OpenmpiShm => Peer::OpenMpiShm,
            Self::Gloo => Peer::Gloo,
        }
    }
}

pub(crate) fn run(
    arguments: &PeerArgs,
    workers: Vec<u8>,
    sizes: Vec<u64>,
    iterations: Option<u32>,
    lanes: Lanes,
    format: Format,
) -> Outcome {
    let only: Vec<Peer> = arguments.only.iter().map(|name| name.peer()).collect();
    let is_for = |peer: &Peer| peer.is_for(arguments.one_host);
    if let Some(peer) = only.iter().find(|peer| !is_for(peer)) {
        let (place, (name, io)) = (if arguments.one_host { "not" } else { "only" }, peer.words());
        let problem = anyhow!("{name} over {io} is {place} measured with --one-host");
        return Err(Exit::Usage.because(problem));
    }
    rootless::acquire().map_err(|error| Exit::CannotRun.because(error))?;
    interrupt::listen().map_err(|error| Exit::CannotRun.because(error))?;
    let scratch = ScratchDir::new(None).map_err(explain)?;
    let rivals = Rivals::build(scratch.path()).map_err(explain)?;
    let rates = arguments.rates.iter().map(|rate| (*rate > 0).then_some(*rate));
    let settings = Settings {
        rates_mbit: if arguments.one_host { vec![None] } else { rates.collect() },
        mtus: match (&arguments.mtus[..], arguments.one_host) {
            ([], true) => vec![LOOPBACK_MTU],
            ([], false) => vec![ETHERNET_MTU],
            (mtus, _) => mtus.to_vec(),
        },
        workers: if workers.is_empty() { vec![4] } else { workers },
        lanes,
        sizes,
        rounds: arguments.rounds,
        iterations,
        peers: if only.is_empty() { Peer::ALL.to_vec() } else { only },
        box_links: arguments.box_links.iter().map(|name| name.link()).collect(),
        one_host: arguments.one_host,
    };
    let mut rows = Rows::begin(format, &header(&Machine::read(), &rivals))?;
    let mut right = true;
    for place in peers::places(&settings) {
        let rate = place.rate_mbit.map(|rate| format!("{rate} Mb/s"));
        let rate = rate.unwrap_or_else(|| "no rate".to_owned());
        let (workers, mtu, lanes) = (place.workers, place.mtu, place.lanes);
        weft_process::say!("weft: {workers} workers, {rate}, MTU {mtu}, {}", of_lanes(lanes));
        let ended = peers::run(&settings, place, &rivals, scratch.path(), |row| {
            right &= row.is_valid();
            if let Some(failure) = &row.failure {
                weft_process::say!("weft: {} over {}: FAILED: {failure}", row.peer, row.io);
            }
            rows.row(row, text)
        });
        if let Err(failure) = ended {
            rows.end()?;
            return Err(failure);
        }
    }
    rows.end()?;
    Ok(if right { 0 } else { Exit::Failed as u8 })
}

/// Largest IP packet on loopback that an aggregator takes.
const LOOPBACK_MTU: u16 = u16::MAX;
/// And on Ethernet.
const ETHERNET_MTU: u16 = 1500;

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        explain(error)
    }
}

fn header(machine: &Machine, rivals: &Rivals) -> String {
    let builds: String =
        rivals.builds().map(|(name, build)| format!("# {name}: {build}\n")).collect();
    format!(
        "# {}, {} CPUs, kernel {}, load {:.2} {:.2} {:.2}\n{builds}# {:>8} {:>6} {:>8} {:>7} \
         {:>10} {:>12} {:>13} {:>11} {:>8} {:>10} {:>11} {:>6} {:>9}\n",
        machine.cpu,
        machine.cpus,
        machine.kernel,
        machine.load_average[0],
        machine.load_average[1],
        machine.load_average[2],
        "Mb/s",
        "mtu",
        "box link",
        "workers",
        "size (B)",
        "peer",
        "io",
        "time (us)",
        "cpu (ms)",
        "wire (MB)",
        "bound (us)",
        "#wrong",
        "repeats",
    )
}

fn text(row: &Row) -> String {
    let algorithm = row.algorithm.map(|algorithm| format!(" {}", algorithm.word()));
    let disturbed = if row.disturbed == Some(true) { " DISTURBED by other programs" } else { "" };
    format!(
        "  {:>8} {:>6} {:>8} {:>7} {:>10} {:>12} {:>13} {:>11} {:>8} {:>10} {:>11} {:>6} \
         {:>9}{}{disturbed}{}\n",
        or_dash(row.rate_mbit, |rate| rate.to_string()),
        row.mtu,
        or_dash(row.box_link, |link| link.word().to_owned()),
        row.workers,
        row.bytes,
        row.peer,
        row.io,
        or_dash(row.time_us, |time_us| format!("{time_us:.0}")),
        or_dash(row.cpu_s, |cpu_s| format!("{:.1}", cpu_s * 1e3)),
        or_dash(row.wire_bytes, |bytes| format!("{:.2}", bytes as f64 / 1e6)),
        or_dash(row.bound_us, |bound| format!("{bound:.0}")),
        or_dash(row.wrong, |wrong| wrong.to_string()),
        or_dash(row.retransmissions, |count| count.to_string()),
        algorithm.unwrap_or_default(),
        reason(row.failure.as_ref()),
    )
}
