//! One lcore of the aggregator, beside dpdk-testpmd on the same device in the same rounds.
//!
//! Rounds are interleaved (Weft, testpmd, Weft, testpmd, …) and every figure is a median over them,
//! so that another load on the machine hits both. A row is worth something only if at least 99 % of
//! the packets entered a sum and every sampled sum was right ([`Row::is_valid`]).
//!
//! - `pcap`: net_pcap with `infinite_rx`, no transmit device, so that what leaves is freed by the
//!   driver. Restamping, PMD and egress copies are on the lcore and count as Weft's. Rates are per
//!   CPU-second of the polling thread. testpmd's `rxonly` is the ceiling: the driver alone.
//! - `memif`: a generator process is all members at once on another CPU, over a memif with copies.
//!   The rate is what the generator got through; testpmd's `macswap` meets the same generator with
//!   the same frames and window, sent back instead of summed.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_config::node::{BenchMode, BenchSection};

use super::case::{Case, Frames, Lease, Order, Source};
use super::config::NodeSpec;
use super::interrupt;
use super::process::{BenchError, Measurement, Programs, Running, testpmd};
use super::statistics::median;

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Interleaved rounds.
    pub rounds: u32,
    /// Seconds of each measurement, after a warm-up of a tenth of it.
    pub seconds: f64,
    /// CPU of the lcore, and of the generator.
    pub cpus: [u32; 2],
}

/// A row of results. Rates and ratios are medians over rounds, counts are sums.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the columns are explained in `weft bench aggregator --help`")]
pub struct Row {
    pub source: Source,
    pub lease: Lease,
    pub crc: bool,
    pub elements: u16,
    pub workers: u8,
    pub lcores: u8,
    pub order: Order,
    pub jobs: u8,
    pub frames: Frames,
    pub quota: bool,
    pub packets_per_cpu_second: f64,
    pub contributions_added: u64,
    pub packets: u64,
    pub testpmd_packets_per_second: Option<f64>,
    pub ratio_to_testpmd: Option<f64>,
    pub wrong: u64,
    pub checked: u64,
    pub packets_per_second: f64,
    pub packets_per_cpu_second_min: f64,
    pub packets_per_cpu_second_max: f64,
    pub window: u16,
    pub rounds: u32,
    pub testpmd_mode: &'static str,
    pub repeated: u64,
    pub valid: bool,
    pub failure: Option<String>,
}

impl Row {
    /// True when at least 99 % of the packets entered a sum (of tagged ones: were refused as such),
    /// no compared sum was wrong, and every round came to its end.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.valid
    }

    /// Of what was measured until the row ended, or failed.
    fn new(case: &Case, rounds: &[Round], failure: Option<String>) -> Self {
        let weft = |value: fn(&Round) -> f64| -> Vec<f64> { rounds.iter().map(value).collect() };
        let per_cpu = weft(|round| round.packets as f64 / round.cpu_seconds);
        let per_second = weft(|round| round.packets_per_second);
        let testpmd: Vec<f64> = rounds.iter().filter_map(|round| round.testpmd).collect();
        let ratios: Vec<f64> = rounds.iter().filter_map(|round| round.ratio).collect();
        let sum = |value: fn(&Round) -> u64| rounds.iter().map(value).sum::<u64>();
        let (packets, added) = (sum(|round| round.counted), sum(|round| round.added));
        let (checked, wrong) = (sum(|round| round.checked), sum(|round| round.wrong));
        let refused = sum(|round| round.refused_as_tagged);
        let is_tagged = case.frames == Frames::Vlan;
        let proper = if is_tagged { refused } else { added } as f64 / (packets as f64).max(1.0);
        // Nothing leaves that could be compared where everything is refused.
        let is_right = wrong == 0 && (checked > 0 || is_tagged);
        Self {
            source: case.source,
            lease: case.lease,
            crc: case.crc,
            elements: case.elements,
            workers: case.workers,
            lcores: case.lcores,
            order: case.order,
            jobs: case.jobs,
            frames: case.frames,
            quota: case.quota,
            packets_per_cpu_second: median(&per_cpu),
            contributions_added: added,
            packets,
            testpmd_packets_per_second: (!testpmd.is_empty()).then(|| median(&testpmd)),
            ratio_to_testpmd: (!ratios.is_empty()).then(|| median(&ratios)),
            wrong,
            checked,
            packets_per_second: median(&per_second),
            packets_per_cpu_second_min: per_cpu.iter().copied().fold(f64::INFINITY, f64::min),
            packets_per_cpu_second_max: per_cpu.iter().copied().fold(0.0, f64::max),
            window: case.window,
            rounds: u32::try_from(rounds.len()).unwrap_or(u32::MAX),
            testpmd_mode: if case.source == Source::Pcap { "rxonly" } else { "macswap" },
            repeated: sum(|round| round.repeated),
            valid: proper >= SHARE_MIN && is_right && failure.is_none(),
            failure,
        }
    }
}

/// What one round says.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Packets of the measured time.
    packets: u64,
    cpu_seconds: f64,
    packets_per_second: f64,
    /// Packets and contributions that are held against each other.
    counted: u64,
    added: u64,
    checked: u64,
    wrong: u64,
    /// Packets that were refused for their VLAN tag.
    refused_as_tagged: u64,
    /// Frames that the generator sent again, for one or its answer was lost.
    repeated: u64,
    testpmd: Option<f64>,
    ratio: Option<f64>,
}

/// Measures one row. Files and sockets go to `directory`; `after_round` is told after each round. A
/// row that fails is a row with a failure, so that others can be measured all the same.
///
/// # Errors
/// [`BenchError::Interrupted`].
pub fn run(
    programs: &Programs,
    case: &Case,
    settings: &Settings,
    directory: &Path,
    mut after_round: impl FnMut(u32),
) -> Result<Row, BenchError> {
    let mut rounds = Vec::new();
    for number in 0..settings.rounds {
        let round = match case.source {
            Source::Pcap => pcap_round(programs, case, settings, directory),
            Source::Memif => memif_round(programs, case, settings, directory),
        };
        match round {
            Ok(round) => rounds.push(round),
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => {
                let failure = format!("round {}: {error}", number + 1);
                return Ok(Row::new(case, &rounds, Some(failure)));
            }
        }
        after_round(number + 1);
    }
    Ok(Row::new(case, &rounds, None))
}

fn pcap_round(
    programs: &Programs,
    case: &Case,
    settings: &Settings,
    directory: &Path,
) -> Result<Round, BenchError> {
    let pcap = directory.join("contributions.pcap");
    let vdev = format!("net_pcap0,rx_pcap={},infinite_rx=1", pcap.display());
    let bench = BenchSection {
        pcap: Some(pcap.display().to_string()),
        seconds: settings.seconds,
        ..BenchSection::new(BenchMode::Replay)
    };
    let [lane, main] = settings.cpus;
    if case.lcores > 1 && lane == main {
        return Err(BenchError::OneCpu(1));
    }
    let cpus = [lane, main][..usize::from(case.lcores)].to_vec();
    let spec = NodeSpec { vdev: vdev.clone(), cpus, bench: Some(bench) };
    let measured = measurement(&programs.start(directory, "replay", case, &spec)?.finish()?)?;
    let mut round = Round {
        packets: measured.packets,
        cpu_seconds: measured.cpu_seconds,
        packets_per_second: measured.packets as f64 / measured.wall_seconds,
        counted: measured.packets,
        added: measured.contributions_added,
        checked: measured.checked,
        wrong: measured.wrong,
        refused_as_tagged: measured.drops.get("vlan").copied().unwrap_or(0),
        ..Round::default()
    };
    if let Some(testpmd) = testpmd(directory, "weft-rxonly", &vdev, "rxonly", [lane, main])? {
        interrupt::sleep(Duration::from_secs_f64(settings.seconds))?;
        let cpu = testpmd.busiest_thread().as_secs_f64();
        let packets = received_packets(&testpmd.press_enter()?)?;
        let rate = packets as f64 / cpu.max(1e-3);
        round.testpmd = Some(rate);
        round.ratio = Some(measured.packets as f64 / measured.cpu_seconds / rate);
    }
    Ok(round)
}

fn memif_round(
    programs: &Programs,
    case: &Case,
    settings: &Settings,
    directory: &Path,
) -> Result<Round, BenchError> {
    let [lane, other] = settings.cpus;
    if lane == other {
        return Err(BenchError::OneCpu(1));
    }
    let socket = directory.join("aggregator.sock");
    let spec = NodeSpec { vdev: memif(&socket, "server"), cpus: vec![lane], bench: None };
    let mut aggregator = programs.start(directory, "aggregator", case, &spec)?;
    aggregator.wait_for("\"ready\":true")?;
    let (generator, cpu) =
        generate(programs, case, settings, directory, &socket, &aggregator, false)?;
    let served: Served = parse("aggregator", &aggregator.interrupt()?)?;
    let measured = measurement(&generator.interrupt()?)?;
    let rate = measured.packets as f64 / measured.wall_seconds;
    let mut round = Round {
        packets: measured.packets,
        cpu_seconds: cpu,
        packets_per_second: rate,
        counted: served.port.rx_packets,
        added: served.jobs.iter().map(|job| job.contributions_added).sum(),
        checked: measured.checked,
        wrong: measured.wrong,
        repeated: measured.repeated,
        ..Round::default()
    };
    let socket = directory.join("testpmd.sock");
    let vdev = memif(&socket, "server");
    if let Some(echo) = testpmd(directory, "weft-macswap", &vdev, "macswap", [lane, other])? {
        let (generator, _) = generate(programs, case, settings, directory, &socket, &echo, true)?;
        echo.press_enter()?;
        let measured = measurement(&generator.interrupt()?)?;
        let echoed = measured.packets as f64 / measured.wall_seconds;
        round.testpmd = Some(echoed);
        round.ratio = Some(rate / echoed);
        round.wrong += measured.wrong;
        round.repeated += measured.repeated;
    }
    // The next round listens at the same places.
    for name in ["aggregator.sock", "testpmd.sock"] {
        let _ = std::fs::remove_file(directory.join(name));
    }
    Ok(round)
}

/// Runs the generator against a device until it has measured; returns it, and the CPU time that the
/// device's polling thread took meanwhile. The device must end first: net_memif frees its rings
/// under a polling lcore when the peer leaves.
fn generate(
    programs: &Programs,
    case: &Case,
    settings: &Settings,
    directory: &Path,
    socket: &Path,
    device: &Running,
    echo: bool,
) -> Result<(Running, f64), BenchError> {
    let mode = if echo { BenchMode::Echo } else { BenchMode::Generate };
    let bench = BenchSection { seconds: settings.seconds, ..BenchSection::new(mode) };
    let spec = NodeSpec {
        vdev: memif(socket, "client"),
        cpus: vec![settings.cpus[1]],
        bench: Some(bench),
    };
    let mut generator = programs.start(directory, "generator", case, &spec)?;
    generator.wait_for("bench: begin")?;
    let before = device.busiest_thread();
    generator.wait_for("bench: end")?;
    let cpu = (device.busiest_thread().saturating_sub(before)).as_secs_f64();
    Ok((generator, cpu))
}

fn memif(socket: &Path, role: &str) -> String {
    format!("net_memif0,role={role},socket={},socket-abstract=no,rsize=11", socket.display())
}

/// The part of a node's final report that a row needs.
#[derive(Deserialize)]
struct Served {
    port: ServedPort,
    jobs: Vec<ServedJob>,
}

#[derive(Deserialize)]
struct ServedPort {
    rx_packets: u64,
}

#[derive(Deserialize)]
struct ServedJob {
    contributions_added: u64,
}

fn measurement(stdout: &str) -> Result<Measurement, BenchError> {
    parse("weft-bench", stdout)
}

fn parse<T: serde::de::DeserializeOwned>(program: &str, stdout: &str) -> Result<T, BenchError> {
    serde_json::from_str(stdout.trim()).map_err(|error| BenchError::Process {
        program: program.to_owned(),
        how: "printed something else than its report".to_owned(),
        stderr: error.to_string(),
    })
}

/// The last `RX-packets` of testpmd's statistics.
fn received_packets(stdout: &str) -> Result<u64, BenchError> {
    let number = |line: &str| {
        let (_, rest) = line.split_once("RX-packets:")?;
        rest.split_whitespace().next()?.parse().ok()
    };
    stdout.lines().rev().find_map(number).ok_or_else(|| BenchError::Process {
        program: "dpdk-testpmd".to_owned(),
        how: "printed no RX-packets".to_owned(),
        stderr: stdout.lines().last().unwrap_or_default().to_owned(),
    })
}

/// Least share of packets that entered a sum.
const SHARE_MIN: f64 = 0.99;

#[cfg(test)]
mod tests {
    use super::*;

    fn round(packets: u64, added: u64, wrong: u64) -> Round {
        Round {
            packets,
            cpu_seconds: 0.5,
            packets_per_second: packets as f64,
            counted: packets,
            added,
            checked: 10,
            wrong,
            refused_as_tagged: 0,
            repeated: 0,
            testpmd: Some(400.0),
            ratio: Some(0.5),
        }
    }

    fn row(rounds: &[Round]) -> Row {
        Row::new(&Case::default(), rounds, None)
    }

    #[test]
    fn a_row_is_the_median_of_its_rounds() {
        let row = row(&[round(100, 100, 0), round(300, 300, 0), round(200, 200, 0)]);
        assert!((row.packets_per_cpu_second - 400.0).abs() < 1e-9);
        assert_eq!((row.packets, row.contributions_added), (600, 600));
        assert!(row.is_valid());
    }

    #[test]
    fn refused_packets_and_wrong_sums_make_a_row_invalid() {
        assert!(row(&[round(1000, 990, 0)]).is_valid());
        assert!(!row(&[round(1000, 989, 0)]).is_valid());
        assert!(!row(&[round(1000, 1000, 1)]).is_valid());
        assert!(!row(&[Round { checked: 0, ..round(1000, 1000, 0) }]).is_valid());
        assert!(!row(&[]).is_valid());
    }

    #[test]
    fn a_row_that_failed_is_invalid_and_says_why() {
        let failed =
            Row::new(&Case::default(), &[round(1000, 1000, 0)], Some("round 2: no answer".into()));
        assert!(!failed.is_valid());
        let json = serde_json::to_value(&failed).unwrap();
        assert_eq!(json["failure"], "round 2: no answer");
        assert_eq!((json["order"].as_str(), json["jobs"].as_u64()), (Some("step"), Some(1)));
    }

    #[test]
    fn tagged_packets_must_be_refused_as_such() {
        let tagged = Case { frames: Frames::Vlan, ..Case::default() };
        let of = |refused_as_tagged| Round { checked: 0, refused_as_tagged, ..round(1000, 0, 0) };
        assert!(Row::new(&tagged, &[of(1000)], None).is_valid());
        assert!(!Row::new(&tagged, &[of(0)], None).is_valid());
    }

    #[test]
    fn the_last_statistics_of_testpmd_count() {
        let text = "  RX-packets: 12   RX-dropped: 0\nx\n  RX-packets: 345 RX-dropped: 0\nBye";
        assert_eq!(received_packets(text).unwrap(), 345);
        assert!(received_packets("Bye").is_err());
    }
}
