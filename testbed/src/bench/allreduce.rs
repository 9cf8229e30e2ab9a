//! Allreduce over any port, in nccl-tests' terms.
//!
//! `memory` runs in this process. On the others `weft-node` is the aggregator and every worker is
//! this program again, on loopback, or in a lab where each has a namespace and, if asked for, a
//! shaped link; the aggregator's own link is not shaped, for it stands for a switch.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde::Serialize;
use weft_client::{Config, Session};
use weft_config::node::{Elements, JobSection, NodeConfig, RowSection};
use weft_io::Port;
use weft_io::memory;
use weft_kernel::Kernels;
use weft_lane::AggregatorLane;
use weft_process::say::chain;
use weft_wire::frame::{IPV4_LEN, UDP_LEN};
use weft_wire::header::{ElementType, HEADER_LEN};

use super::member::{self, MemberPlan, MemberResult};
use super::network::{BOX_PORT, BoxLink, MEMBER_PORT, Network, failed_member};
use super::process::{BenchError, LIMIT};
use super::statistics::median;
use crate::run::{Io, WorkerIo, box_config, breathe_until};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The aggregator's port.
    pub io: Io,
    /// The workers' port.
    pub worker_io: WorkerIo,
    /// Members of the group.
    pub workers: u8,
    /// Lanes of the aggregator.
    pub lanes: u16,
    /// Elements on the wire.
    pub element_type: ElementType,
    /// Bytes of the vectors.
    pub sizes: Vec<u64>,
    /// Sums of each size before the measured ones.
    pub warm_up: u32,
    /// Measured sums of each size.
    pub iterations: u32,
    /// Rate of each worker's link in the lab, in each direction.
    pub rate_mbit: Option<u32>,
    /// Each worker in a namespace of its own.
    pub lab: bool,
}

impl Settings {
    /// The workers' port: with rings of one process there is one for all.
    fn worker_io_name(&self) -> &'static str {
        if self.io == Io::Memory { self.io.name() } else { self.worker_io.name() }
    }
}

/// A row of results; times are medians over iterations of the slowest worker. A size that could not
/// be measured has no figures.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the columns are explained in `weft bench allreduce --help`")]
pub struct Row {
    pub bytes: u64,
    pub count: u64,
    pub workers: u8,
    #[serde(rename = "type")]
    pub element_type: ElementType,
    pub redop: &'static str,
    pub time_us: Option<f64>,
    pub algbw_bytes_per_sec: Option<f64>,
    pub busbw_bytes_per_sec: Option<f64>,
    pub wirebw_bytes_per_sec: Option<f64>,
    pub wrong: Option<u64>,
    pub io: &'static str,
    pub worker_io: &'static str,
    pub time_min_us: Option<f64>,
    pub time_max_us: Option<f64>,
    pub retransmissions: Option<u64>,
    pub chunks_by_multicast: Option<u64>,
    pub rate_mbit: Option<u32>,
    pub bound_us: Option<f64>,
    pub ratio_to_bound: Option<f64>,
    pub failure: Option<String>,
    pub lanes: u16,
}

impl Row {
    /// Of a size that could not be measured.
    fn failed(settings: &Settings, bytes: u64, failure: String) -> Self {
        let nothing = MemberResult { bytes, ..MemberResult::default() };
        Self {
            time_us: None,
            algbw_bytes_per_sec: None,
            busbw_bytes_per_sec: None,
            wirebw_bytes_per_sec: None,
            wrong: None,
            time_min_us: None,
            time_max_us: None,
            retransmissions: None,
            chunks_by_multicast: None,
            ratio_to_bound: None,
            failure: Some(failure),
            ..Self::new(settings, &[nothing])
        }
    }

    /// True when it was measured and no element of any sum was wrong.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.wrong == Some(0) && self.failure.is_none()
    }

    fn new(settings: &Settings, members: &[MemberResult]) -> Self {
        let bytes = members.first().map_or(0, |member| member.bytes);
        let count = bytes / settings.element_type.len_bytes() as u64;
        // A sum has taken as long as it took the last of them.
        let times: Vec<f64> = (0..settings.iterations as usize)
            .map(|turn| members.iter().filter_map(|member| member.times_ns.get(turn)).max())
            .map(|slowest| slowest.map_or(0.0, |ns| *ns as f64 / 1e3))
            .collect();
        let time_us = median(&times);
        let workers = f64::from(settings.workers);
        let algbw = bytes as f64 / time_us * 1e6;
        let sent: u64 = members.iter().map(|member| member.tx_bytes).sum();
        let sent_each = sent as f64 / workers / f64::from(settings.iterations.max(1));
        let bound_us = settings.rate_mbit.map(|rate| bound_us(bytes, rate));
        Self {
            bytes,
            count,
            workers: settings.workers,
            element_type: settings.element_type,
            redop: "sum",
            time_us: Some(time_us),
            algbw_bytes_per_sec: Some(algbw),
            busbw_bytes_per_sec: Some(algbw * 2.0 * (workers - 1.0) / workers),
            wirebw_bytes_per_sec: Some(sent_each / time_us * 1e6),
            wrong: Some(members.iter().map(|member| member.wrong).sum()),
            io: settings.io.name(),
            worker_io: settings.worker_io_name(),
            time_min_us: times.iter().copied().reduce(f64::min),
            time_max_us: times.iter().copied().reduce(f64::max),
            retransmissions: Some(members.iter().map(|member| member.retransmissions).sum()),
            chunks_by_multicast: Some(members.iter().map(|it| it.chunks_by_multicast).sum()),
            rate_mbit: settings.rate_mbit,
            bound_us,
            ratio_to_bound: bound_us.map(|bound| time_us / bound),
            failure: None,
            lanes: settings.lanes,
        }
    }
}

/// The least time that a link of `rate_mbit` needs for a vector's frames, headers counted: each
/// worker sends the vector once and receives the sum meanwhile.
fn bound_us(bytes: u64, rate_mbit: u32) -> f64 {
    let room = usize::from(MTU) - IPV4_LEN - UDP_LEN - HEADER_LEN;
    let chunk_bytes = u64::from(Elements::Auto.resolve(room, 1));
    let wire = bytes.div_ceil(chunk_bytes) * (chunk_bytes + HEADERS_BYTES);
    wire as f64 * 8.0 / f64::from(rate_mbit)
}

/// Measures all sizes, in order. Sizes that fail are rows with a failure.
///
/// # Errors
/// [`BenchError`] where this machine lacks something, or on a signal.
pub fn run(settings: &Settings, directory: &Path) -> Result<Vec<Row>, BenchError> {
    let results = match settings.io {
        Io::Memory => in_memory(settings),
        _ => in_processes(settings, directory),
    };
    let results = match results {
        Ok(results) => results,
        Err(error @ (BenchError::Process { .. } | BenchError::System { .. })) => {
            let failed = |bytes| Row::failed(settings, bytes, error.to_string());
            return Ok(settings.sizes.iter().copied().map(failed).collect());
        }
        Err(error) => return Err(error),
    };
    let sizes = 0..settings.sizes.len();
    let of_size = |index: usize| -> Vec<MemberResult> {
        results.iter().filter_map(|member| member.get(index).cloned()).collect()
    };
    Ok(sizes.map(|index| Row::new(settings, &of_size(index))).collect())
}

fn member_plans(
    settings: &Settings,
    aggregator: SocketAddr,
    local: impl Fn(u8) -> SocketAddr,
) -> Vec<MemberPlan> {
    let plan = |rank| MemberPlan {
        rank,
        workers: settings.workers,
        local: local(rank),
        aggregator,
        io: settings.worker_io,
        element_type: settings.element_type,
        sizes: settings.sizes.clone(),
        warm_up: settings.warm_up,
        iterations: settings.iterations,
        lanes: settings.lanes,
        mtu: MTU,
        offload: settings.io.takes_runs(),
        aggregator_pid: None,
    };
    (0..settings.workers).map(plan).collect()
}

fn in_memory(settings: &Settings) -> Result<Vec<Vec<MemberResult>>, BenchError> {
    let names: Vec<String> = (0..=settings.workers).map(|index| format!("p{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut ports = memory::hub(RING_FRAMES, 1500, &names);
    let box_port = ports.remove(0);
    let aggregator = SocketAddr::from(([10, 0, 0, 100], BOX_PORT));
    let plans = member_plans(settings, aggregator, |rank| {
        SocketAddr::from(([10, 0, 1, rank + 1], MEMBER_PORT))
    });
    let meant = weft_lane::Settings::new(config(settings, &plans, "lo"));
    let meant = meant.map_err(|problem| BenchError::Process {
        program: "the aggregator".to_owned(),
        how: "refused its configuration".to_owned(),
        stderr: problem.to_string(),
    })?;
    let (table, seed) = (meant.table_at(box_port.info().mac), u64::from(std::process::id()));
    let engine = meant.aggregator(&table, 0, seed, Kernels::detect());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            breathe_until(&stop, &mut AggregatorLane::new(box_port, engine), |_| ());
        });
        let members: Vec<_> = plans
            .iter()
            .zip(ports)
            .map(|(plan, port)| {
                scope.spawn(move || {
                    let mut results = Vec::new();
                    let connect = |config: &Config| Session::over(port, config);
                    member::run(plan, connect, |result| results.push(result)).map(|()| results)
                })
            })
            .collect();
        let results = members.into_iter().map(|member| match member.join() {
            Ok(Ok(results)) => Ok(results),
            Ok(Err(error)) => Err(failed_member(chain(&error))),
            Err(_) => Err(failed_member("it panicked".to_owned())),
        });
        let results = results.collect();
        stop.store(true, Ordering::Relaxed);
        results
    })
}

/// The aggregator's configuration.
fn config(settings: &Settings, plans: &[MemberPlan], interface: &str) -> NodeConfig {
    let members = plans.iter().map(|plan| plan.local.into()).collect();
    let row = RowSection {
        element_type: settings.element_type,
        elements: Elements::Auto,
        window: WINDOW / settings.lanes,
        exponent: (settings.element_type == ElementType::I32).then_some(0),
        ..RowSection::new(0, 0, members)
    };
    let mut config = box_config("a0", settings.io, plans[0].aggregator, u32::from(MTU), interface);
    config.lcores.shards = settings.lanes;
    config.dpdk.memory_mib = 128;
    config.port.multicast = settings.worker_io.multicast();
    NodeConfig { job: vec![JobSection::new(0)], row: vec![row], ..config }
}

fn in_processes(
    settings: &Settings,
    directory: &Path,
) -> Result<Vec<Vec<MemberResult>>, BenchError> {
    let network = if settings.lab {
        let rate = settings.rate_mbit;
        Network::lab(settings.io, settings.workers, rate, BoxLink::Unshaped, MTU, false)?
    } else {
        Network::loopback()
    };
    let local = |rank| network.local(rank, settings.lanes);
    let plans = member_plans(settings, network.aggregator(), local);
    let config = config(settings, &plans, &network.interface());
    network.run(&config, &plans, directory, LIMIT)
}

/// Runs the worker that standard input describes, over UDP sockets; results go to standard output.
///
/// # Errors
/// What went wrong, for people.
pub fn run_member() -> Result<(), String> {
    let plan: MemberPlan = serde_json::from_reader(std::io::stdin().lock())
        .map_err(|error| format!("reading the plan: {error}"))?;
    let report = |result: MemberResult| {
        let line = serde_json::to_string(&result).expect("numbers can be written");
        // Whoever started this has gone when standard output has.
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    };
    member::run(&plan, Session::connect, report).map_err(|error| chain(&error))
}

/// Ethernet, IPv4, UDP and Weft headers: what a link's queueing discipline counts besides.
const HEADERS_BYTES: u64 = 74;
/// Largest IP packet of all links.
const MTU: u16 = 1500;
const WINDOW: u16 = 256;
const RING_FRAMES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            io: Io::Memory,
            worker_io: WorkerIo::Udp,
            workers: 4,
            lanes: 1,
            element_type: ElementType::I32,
            sizes: vec![4096, 70_000],
            warm_up: 1,
            iterations: 2,
            rate_mbit: Some(1000),
            lab: false,
        }
    }

    #[test]
    fn a_row_takes_the_slowest_worker_and_the_median_turn() {
        let member = |times: [u64; 2]| MemberResult {
            bytes: 1 << 20,
            times_ns: times.to_vec(),
            wrong: 1,
            tx_bytes: 2 << 20,
            ..MemberResult::default()
        };
        let members = [member([1_000_000, 5_000_000]), member([3_000_000, 1_000_000])];
        let row = Row::new(&Settings { workers: 2, ..settings() }, &members);
        let algbw = row.algbw_bytes_per_sec.unwrap();
        assert!((row.time_us.unwrap() - 4000.0).abs() < 1e-6);
        assert!((algbw - 262_144_000.0).abs() < 1.0);
        assert!((row.busbw_bytes_per_sec.unwrap() - algbw).abs() < 1.0, "2 (n-1) / n = 1");
        assert!((row.wirebw_bytes_per_sec.unwrap() - algbw).abs() < 1.0);
        assert_eq!(row.wrong, Some(2));
        assert!((row.bound_us.unwrap() - 8832.72).abs() < 1e-3);
    }

    #[test]
    fn sizes_that_fail_are_rows_that_say_why() {
        let row = Row::failed(&settings(), 4096, "w3 ended early".to_owned());
        assert!(!row.is_valid());
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!(
            (json["bytes"].as_u64(), json["failure"].as_str()),
            (Some(4096), Some("w3 ended early"))
        );
        for figure in ["time_us", "time_min_us", "algbw_bytes_per_sec", "wrong", "retransmissions"]
        {
            assert!(json[figure].is_null(), "{figure} was not measured: {json}");
        }
    }

    #[test]
    fn all_types_sum_right_in_memory() {
        for element_type in [ElementType::I32, ElementType::F32, ElementType::Bf16] {
            let rows =
                run(&Settings { element_type, ..settings() }, Path::new("/nonexistent")).unwrap();
            assert_eq!(rows.len(), 2, "{element_type:?}");
            assert!(
                rows.iter().all(|row| row.wrong == Some(0) && row.time_us > Some(0.0)),
                "{rows:?}"
            );
        }
    }
}
