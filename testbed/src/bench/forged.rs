//! What a forger with every member's address costs a job at its quota: contributions that entered
//! a sum, alone and among forged frames, in interleaved rounds on a device of memory.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};
use weft_config::node::{
    BenchMode, BenchSection, HostAddr, Io, JobSection, NodeConfig, PortSection, RowSection,
};
use weft_config::{StatsFormat, to_toml};
use weft_wire::hello::Integrity;

use super::process::{BenchError, Program, Running};
use super::statistics::median;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The job's token bucket.
    pub rate_bytes_per_sec: u64,
    /// Members of the group.
    pub workers: u8,
    /// Seconds of each measurement.
    pub seconds: f64,
    /// Pairs of measurements.
    pub rounds: u32,
}

/// The medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The job's token bucket.
    pub rate_bytes_per_sec: u64,
    /// Members of the group.
    pub workers: u8,
    /// Contributions per second that entered a sum, without forged frames.
    pub alone_per_second: f64,
    /// The same among forged frames.
    pub forged_at_per_second: f64,
    /// What the forger cost: 1 less the second over the first.
    pub cost: f64,
    /// Forged frames per second.
    pub forged_frames_per_second: f64,
    /// Contributions due, in all rounds.
    pub packets: u64,
    /// Those that entered a sum.
    pub contributions_added: u64,
    /// Why this is no valid measurement.
    pub invalid: Option<&'static str>,
}

impl Row {
    /// The job got its quota alone, was flooded, and got as much then but for a twentieth.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.invalid.is_none()
    }
}

#[derive(Clone, Debug, Deserialize)]
struct Measured {
    packets: u64,
    contributions_added: u64,
    forged: u64,
    wall_seconds: f64,
}

impl Measured {
    fn rate(&self, count: u64) -> f64 {
        count as f64 / self.wall_seconds.max(f64::MIN_POSITIVE)
    }
}

/// Measures. Files go to `directory`.
///
/// # Errors
/// [`BenchError`] when `weft-bench` fails.
pub fn run(bench: &Program, settings: &Settings, directory: &Path) -> Result<Row, BenchError> {
    let mut rounds = Vec::new();
    for _ in 0..settings.rounds {
        let alone = measure(bench, settings, directory, BenchMode::Quota)?;
        rounds.push((alone, measure(bench, settings, directory, BenchMode::Forged)?));
    }
    Ok(row(settings, &rounds))
}

fn row(settings: &Settings, rounds: &[(Measured, Measured)]) -> Row {
    let middle =
        |of: fn(&(Measured, Measured)) -> f64| median(&rounds.iter().map(of).collect::<Vec<f64>>());
    let alone_per_second = middle(|(alone, _)| alone.rate(alone.contributions_added));
    let forged_at_per_second = middle(|(_, forged)| forged.rate(forged.contributions_added));
    let forged_frames_per_second = middle(|(_, forged)| forged.rate(forged.forged));
    let cost = 1.0 - forged_at_per_second / alone_per_second.max(f64::MIN_POSITIVE);
    let invalid = if alone_per_second <= 0.0 {
        Some(NOTHING_ALONE)
    } else if forged_frames_per_second < forged_at_per_second {
        Some(NO_FLOOD)
    } else {
        // A gain by a forger is as impossible as a loss is unwanted.
        (cost.abs() >= COST_MAX).then_some(COST)
    };
    let both = || rounds.iter().flat_map(|(alone, forged)| [alone, forged]);
    Row {
        rate_bytes_per_sec: settings.rate_bytes_per_sec,
        workers: settings.workers,
        alone_per_second,
        forged_at_per_second,
        cost,
        forged_frames_per_second,
        packets: both().map(|measured| measured.packets).sum(),
        contributions_added: both().map(|measured| measured.contributions_added).sum(),
        invalid,
    }
}

fn measure(
    bench: &Program,
    settings: &Settings,
    directory: &Path,
    mode: BenchMode,
) -> Result<Measured, BenchError> {
    let path = directory.join("forged.toml");
    fs::write(&path, to_toml(&config(settings, mode)))
        .map_err(BenchError::system(format!("writing {}", path.display())))?;
    let mut command = Command::new(bench.path());
    command.arg("--config").arg(&path);
    let stdout = Running::start("weft-bench", &mut command)?.finish()?;
    serde_json::from_str(stdout.trim()).map_err(|error| BenchError::Process {
        program: "weft-bench".to_owned(),
        how: "printed something else than its report".to_owned(),
        stderr: error.to_string(),
    })
}

fn config(settings: &Settings, mode: BenchMode) -> NodeConfig {
    let members = (1..=settings.workers).map(|rank| SocketAddr::from(([10, 77, 1, rank], 7000)));
    let row = RowSection {
        exponent: Some(0),
        integrity: Integrity::None,
        ..RowSection::new(0, 0, members.map(Into::into).collect())
    };
    let job =
        JobSection { rate_bytes_per_sec: Some(settings.rate_bytes_per_sec), ..JobSection::new(0) };
    let ip = HostAddr { ip: IpAddr::from([10, 77, 0, 100]), prefix_len: 16 };
    let mut config = NodeConfig {
        bench: Some(BenchSection { seconds: settings.seconds, ..BenchSection::new(mode) }),
        job: vec![job],
        row: vec![row],
        ..NodeConfig::new(PortSection::new(Io::Udp, ip))
    };
    config.node.stats_format = StatsFormat::Json;
    config
}

/// Largest cost, and largest gain, of a valid measurement.
const COST_MAX: f64 = 0.05;
const NOTHING_ALONE: &str = "nothing of the job entered a sum without the forger";
const NO_FLOOD: &str =
    "there was no flood: more of the job's frames entered a sum than were forged";
const COST: &str = "a cost or gain of a twentieth or more is no valid measurement: either the forger \
                    cost the job, or the run without it was disturbed";

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings =
        Settings { rate_bytes_per_sec: 1_000_000, workers: 4, seconds: 1.0, rounds: 1 };

    fn measured(added: u64, forged: u64) -> Measured {
        Measured { packets: 1000, contributions_added: added, forged, wall_seconds: 1.0 }
    }

    #[test]
    fn a_row_is_valid_where_the_job_is_flooded_and_gets_the_same_but_for_a_twentieth() {
        let of = |added, forged| row(&SETTINGS, &[(measured(1000, 0), measured(added, forged))]);
        assert!(of(951, 1000).is_valid());
        assert_eq!(of(949, 1000).invalid, Some(COST));
        assert!(of(1049, 2000).is_valid());
        let gained = of(1608, 2000);
        assert!((gained.cost + 0.608).abs() < 1e-9);
        assert_eq!(gained.invalid, Some(COST), "no forger gives a job more than its quota");
        assert_eq!(of(1000, 999).invalid, Some(NO_FLOOD));
        assert!((of(960, 1000).cost - 0.04).abs() < 1e-9);
        let nothing = row(&SETTINGS, &[(measured(0, 0), measured(0, 9))]);
        assert_eq!(nothing.invalid, Some(NOTHING_ALONE));
    }
}
