//! `weft bench allreduce`.

use std::path::Path;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use weft_testbed::bench::allreduce::{self, Row, Settings};
use weft_testbed::bench::{BenchError, Lanes, ScratchDir, interrupt};
use weft_testbed::lab::rootless;
use weft_testbed::report::Machine;
use weft_testbed::run::{Io, WorkerIo};
use weft_wire::header::ElementType;

use super::bench_peers::{self, PeerArgs};
use super::rows::{Rows, or_dash, reason};
use super::run_args::WorkerIoName;
use super::{Exit, Failure, Format, Outcome, word};

#[derive(Debug, Args)]
pub(crate) struct AllreduceArgs {
    /// Smallest vector, in bytes; K, M, G are powers of 1024. Default 4K.
    #[arg(short = 'b', long, value_parser = size)]
    minbytes: Option<u64>,
    /// Largest vector. Default 64M.
    #[arg(short = 'e', long, value_parser = size)]
    maxbytes: Option<u64>,
    /// From one size to the next. Default 4; 16 with --peers, where all three left out stand for
    /// 4K, 64K, 1M, 4M and 64M.
    #[arg(short = 'f', long, value_parser = clap::value_parser!(u64).range(2..))]
    stepfactor: Option<u64>,
    /// Measured sums of each size. Default 5; with --peers as many as take a moment.
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u32).range(1..))]
    iters: Option<u32>,
    /// Sums of each size before the measured ones.
    #[arg(long, default_value_t = 1)]
    warmup_iters: u32,
    /// Members of the group. Default 2,4,8,16; 4 with --peers.
    #[arg(short = 'w', long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=16))]
    workers: Vec<u8>,
    /// The aggregator's port. `af_packet` and `dpdk` run in a lab.
    #[arg(long, value_enum, default_value_t = IoName::Memory)]
    io: IoName,
    /// The workers' port; `af_packet` runs in a lab [default: udp; shm with --io shm].
    #[arg(long, value_enum)]
    worker_io: Option<WorkerIoName>,
    /// Lanes of Weft's aggregator, each a thread of its own: 1, 2, 4, 8, or `auto`, one of these
    /// that leaves a CPU for each worker, and at most one for two workers.
    #[arg(long, default_value = "1")]
    lanes: Lanes,
    /// Elements on the wire.
    #[arg(short = 'd', long = "type", value_parser = word::<ElementType>(), default_value_t = ElementType::I32)]
    element_type: ElementType,
    /// Put every worker in a network namespace of its own.
    #[arg(long)]
    lab: bool,
    /// Shape every worker's link in the lab to this rate, in each direction; implies --lab.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rate_mbit: Option<u32>,
    /// OpenMPI's and Gloo's sums of f32 beside Weft's, in the same rounds in the same lab.
    #[arg(long, conflicts_with_all = ["io", "worker_io", "element_type", "lab", "rate_mbit"])]
    peers: bool,
    #[command(flatten)]
    beside: PeerArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum IoName {
    Memory,
    Udp,
    /// Memory that box and workers share on this host.
    Shm,
    AfPacket,
    Dpdk,
}

/// Parses `4K`, `64M`, `1G` or a plain number.
fn size(text: &str) -> Result<u64, String> {
    let (number, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes
        .filter(|bytes| (4..=4 << 30).contains(bytes))
        .ok_or_else(|| "a size such as 4096, 4K or 64M, from 4 bytes to 4G".to_owned())
}

pub(crate) fn run(arguments: &AllreduceArgs, format: Format) -> Outcome {
    if arguments.peers {
        let sizes = sizes(arguments, 16);
        let mut sizes = sizes.map_err(|error| Exit::Usage.because(anyhow!(error)))?;
        let AllreduceArgs { minbytes, maxbytes, stepfactor, .. } = arguments;
        if (minbytes, maxbytes, stepfactor) == (&None, &None, &None) {
            sizes = PEERS_SIZES.to_vec();
        }
        let (workers, iterations) = (arguments.workers.clone(), arguments.iters);
        let lanes = arguments.lanes;
        return bench_peers::run(&arguments.beside, workers, sizes, iterations, lanes, format);
    }
    let io = match arguments.io {
        IoName::Memory => Io::Memory,
        IoName::Udp => Io::Udp,
        IoName::Shm => Io::Shm,
        IoName::AfPacket => Io::AfPacket,
        IoName::Dpdk => Io::Dpdk,
    };
    let worker_io = arguments.worker_io.map_or_else(|| WorkerIo::beside(io), WorkerIoName::io);
    if arguments.worker_io.is_some() && matches!(io, Io::Memory | Io::Shm) {
        let problem = anyhow!("--worker-io goes with --io udp, af_packet or dpdk");
        return Err(Exit::Usage.because(problem));
    }
    if io == Io::Memory && matches!(arguments.lanes, Lanes::Count(2..)) {
        let problem = anyhow!("--lanes goes with --io udp, shm, af_packet or dpdk");
        return Err(Exit::Usage.because(problem));
    }
    let in_lab = worker_io == WorkerIo::AfPacket
        || arguments.lab
        || arguments.rate_mbit.is_some()
        || matches!(io, Io::AfPacket | Io::Dpdk);
    if in_lab && matches!(io, Io::Memory | Io::Shm) {
        let problem = anyhow!("--io {} has no links: use udp, af_packet or dpdk", io.name());
        return Err(Exit::Usage.because(problem));
    }
    if in_lab {
        rootless::acquire().map_err(|error| Exit::CannotRun.because(error))?;
    }
    let sizes = sizes(arguments, 4).map_err(|error| Exit::Usage.because(anyhow!(error)))?;
    // Threads of this process leave nothing behind, so a signal may end it as it ends any other.
    let scratch = (io != Io::Memory).then(|| {
        interrupt::listen().map_err(|error| Exit::CannotRun.because(error))?;
        ScratchDir::new(None).map_err(explain)
    });
    let scratch = scratch.transpose()?;
    let directory = scratch.as_ref().map_or_else(|| Path::new(""), ScratchDir::path);
    let mut rows = Rows::begin(format, &header(&Machine::read()))?;
    let mut right = true;
    let workers = match &arguments.workers[..] {
        [] => &WORKERS[..],
        workers => workers,
    };
    for &workers in workers {
        // Rings of one process have no lanes.
        let lanes = if io == Io::Memory { 1 } else { arguments.lanes.beside(workers) };
        weft_process::say!("weft: {workers} workers over {}, {}", io.name(), of_lanes(lanes));
        let settings = Settings {
            io,
            worker_io,
            workers,
            lanes,
            element_type: arguments.element_type,
            sizes: sizes.clone(),
            warm_up: arguments.warmup_iters,
            iterations: arguments.iters.unwrap_or(5),
            rate_mbit: arguments.rate_mbit,
            lab: in_lab,
        };
        let measured = match allreduce::run(&settings, directory) {
            Ok(measured) => measured,
            Err(error) => {
                rows.end()?;
                return Err(explain(error));
            }
        };
        for row in &measured {
            rows.row(row, text)?;
            right &= row.is_valid();
        }
        if let Some(failure) = measured.iter().find_map(|row| row.failure.as_ref()) {
            weft_process::say!("weft: {workers} workers over {}: FAILED: {failure}", io.name());
        }
    }
    rows.end()?;
    Ok(if right { 0 } else { Exit::Failed as u8 })
}

/// `weft bench member`: a worker of `weft bench allreduce`.
pub(crate) fn run_member() -> Outcome {
    allreduce::run_member().map_err(|error| Exit::Failed.because(anyhow!(error)))?;
    Ok(0)
}

fn sizes(arguments: &AllreduceArgs, factor_default: u64) -> Result<Vec<u64>, &'static str> {
    let min = arguments.minbytes.unwrap_or(MIN_BYTES);
    let max = arguments.maxbytes.unwrap_or_else(|| MAX_BYTES.max(min));
    if min > max {
        return Err("--minbytes is more than --maxbytes");
    }
    let factor = arguments.stepfactor.unwrap_or(factor_default);
    let next = |bytes: &u64| bytes.checked_mul(factor);
    let sizes = std::iter::successors(Some(min), next);
    Ok(sizes.take_while(|bytes| *bytes <= max).collect())
}

/// How many lanes, for people.
pub(super) fn of_lanes(lanes: u16) -> String {
    if lanes == 1 { "1 lane".to_owned() } else { format!("{lanes} lanes") }
}

pub(super) fn explain(error: BenchError) -> Failure {
    let exit = match error {
        BenchError::Process { .. } | BenchError::System { .. } | BenchError::Interrupted => {
            Exit::Failed
        }
        _ => Exit::CannotRun,
    };
    exit.because(anyhow!(error))
}

fn header(machine: &Machine) -> String {
    format!(
        "# {}, {} CPUs, kernel {}, load {:.2} {:.2} {:.2}\n# {:>10} {:>10} {:>6} {:>6} {:>7} \
         {:>11} {:>8} {:>8} {:>8} {:>7} {:>9}\n# {:>10} {:>10} {:>6} {:>6} {:>7} {:>11} {:>8} \
         {:>8} {:>8} {:>7} {:>9}\n",
        machine.cpu,
        machine.cpus,
        machine.kernel,
        machine.load_average[0],
        machine.load_average[1],
        machine.load_average[2],
        "size",
        "count",
        "type",
        "redop",
        "workers",
        "time",
        "algbw",
        "busbw",
        "wirebw",
        "#wrong",
        "time/bound",
        "(B)",
        "(elements)",
        "",
        "",
        "",
        "(us)",
        "(GB/s)",
        "(GB/s)",
        "(GB/s)",
        "",
        "",
    )
}

fn text(row: &Row) -> String {
    let rate = |rate: Option<f64>| or_dash(rate, |rate| format!("{:.3}", rate / 1e9));
    format!(
        "  {:>10} {:>10} {:>6} {:>6} {:>7} {:>11} {:>8} {:>8} {:>8} {:>7} {:>9}{}\n",
        row.bytes,
        row.count,
        row.element_type.to_string(),
        row.redop,
        row.workers,
        or_dash(row.time_us, |time_us| format!("{time_us:.1}")),
        rate(row.algbw_bytes_per_sec),
        rate(row.busbw_bytes_per_sec),
        rate(row.wirebw_bytes_per_sec),
        or_dash(row.wrong, |wrong| wrong.to_string()),
        or_dash(row.ratio_to_bound, |ratio| format!("{ratio:.3}")),
        reason(row.failure.as_ref()),
    )
}

/// Sizes that are measured unless others are named.
const MIN_BYTES: u64 = 4 << 10;
const MAX_BYTES: u64 = 64 << 20;
const PEERS_SIZES: [u64; 5] = [4 << 10, 64 << 10, 1 << 20, 4 << 20, 64 << 20];
/// Numbers of workers that are measured unless others are named.
const WORKERS: [u8; 4] = [2, 4, 8, 16];

/// What the columns mean.
pub(crate) const COLUMNS: &str = "\
Columns (JSON and CSV have more; GB/s is 1e9 bytes per second):
  bytes, count   size of each worker's vector on the wire, and its elements
  time_us        median over the iterations of the slowest worker's time
  algbw          bytes / time
  busbw          algbw x 2 (n - 1) / n, nccl-tests' figure: what a ring would have to carry to be as
                 fast. With aggregation in the network a host sends each byte once.
  wirebw         bytes of Ethernet frames that a worker sent, repeats included, / time
  io, worker_io  ports of the aggregator and of the workers (JSON, CSV)
  wrong          elements of all sums at all workers that differ from the right ones
  time/bound     time / (frames of the vector / link rate), with --rate-mbit
  lanes          lanes of Weft's aggregator (JSON, CSV)
  failure        why a size could not be measured: such a row has no figures (a dash, null, or
                 nothing between commas), the table goes on, and the exit status is 1

With --peers, of f32 vectors in namespaces, each peer's runs in turn with the others':
  peer, io       weft over udp, over udp_offload (runs of frames as one message), over
                 udp_multicast (the same, and a sum leaves the box once for all), over udp_no_crc
                 (the same without Weft's own CRC: a chunk then has the checksum of its datagram
                 alone, as TCP's segments have theirs), over af_packet (box and workers on packet
                 sockets), or, with --one-host, over shm; openmpi and openmpi_ring over tcp, or,
                 with --one-host, openmpi over shm; gloo over tcp. Interfaces keep their offloads
  rate_mbit, mtu of the workers' links; without a rate they are not shaped
  box_link       unshaped: the link of Weft's box has no rate, for the box stands for a switch;
                 same: it has the workers' rate, as a host's. openmpi and gloo have no box and are
                 measured once, in the lab of the first. Nothing with --one-host
  time_us        median over the sums of all rounds, of the slowest rank's time
  cpu_s          CPU seconds of one sum, of all ranks and of Weft's box (cpu_box_s)
  wire_bytes     bytes that all hosts' interfaces sent for one sum, as the kernel counts them: a
                 message that is cut later has one set of headers; loopback is not counted
  wrong          elements of all timed sums at all ranks that differ from the right ones
  bound_us       the least time that the links allow: Weft's frames of the vector / rate, times
                 the workers where the box has the same link; for the others 2 (n - 1) / n of the
                 vector in full TCP segments / rate
  algorithm      gloo's: ring, bcube and halving_doubling are measured, the row is the fastest's
  disturbed      other programs of this machine used more than one CPU on average while the row was
                 measured: its figures are no measure of the peer
  peer_build     how the peer was built (text: above the table)
  failure        as above; also a run that took 60 s and ten times the bound of its sums: it is
                 ended with all its processes, and the other peers go on
  elements       of a chunk of Weft's
  chunks_by_multicast  chunks of Weft's timed sums that came once for all ranks (JSON, CSV)
A size is measured whole and its rows are written before the next begins; a signal ends the table
with the rows of what was measured.";
