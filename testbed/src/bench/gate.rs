//! Instructions per packet, counted by callgrind and held against committed figures.
//!
//! `weft-bench`'s mode `loop` runs twice, for few and for more packets; the difference of the
//! instruction counts over the difference of the packets leaves start-up out. Nothing depends on
//! the machine's load, so a figure changes only when the code or the compiler does. valgrind shows
//! its guest no AVX-512, so what is counted is the AVX2 arithmetic, and the CRC32C of SSE4.2 and
//! PCLMULQDQ. Machines with AVX-512 run another arithmetic, and with VPCLMULQDQ another CRC32C: the
//! figures do not guard those loops.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use weft_config::node::{BenchMode, BenchSection};
use weft_config::{ConfigFile, to_toml};

use super::case::Case;
use super::config::{self, NodeSpec};
use super::process::{BenchError, Program, Running};

/// The committed figures.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Largest relative difference that is no change.
    pub tolerance: f64,
    /// Instruction set of the arithmetic that was counted.
    pub isa: String,
    /// Instructions per packet.
    pub instructions_per_packet: PerPacket,
}

/// Instructions per packet of 256 x i32, 4 workers, windowed lease.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerPacket {
    /// Without CRC32C.
    pub crc_off: f64,
    /// With it.
    pub crc_on: f64,
}

/// One figure, counted and committed.
#[derive(Clone, Debug, Serialize)]
pub struct GateRow {
    /// CRC32C of every packet.
    pub crc: bool,
    /// What was counted now.
    pub instructions_per_packet: f64,
    /// What is committed.
    pub committed: f64,
    /// (counted - committed) / committed.
    pub change: f64,
    /// The change is within the tolerance.
    pub within: bool,
}

/// Why the gate has no verdict.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// The figures cannot be read.
    #[error("reading {}: {reason}", .path.display())]
    Figures {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// No valgrind.
    #[error("valgrind is not installed: `apt install valgrind`")]
    NoValgrind,
    /// Another instruction set.
    #[error(
        "counted with {found} arithmetic, but the figures are for {expected}: use such a machine"
    )]
    Isa {
        /// What this machine has under valgrind.
        found: String,
        /// What the figures are for.
        expected: String,
    },
    /// `weft-bench` or valgrind failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// valgrind's output has no count.
    #[error("callgrind wrote no instruction count to {}", .0.display())]
    NoCount(PathBuf),
}

impl Figures {
    /// Reads the committed figures.
    ///
    /// # Errors
    /// [`GateError::Figures`].
    pub fn read(path: &Path) -> Result<Self, GateError> {
        let failed = |reason: String| GateError::Figures { path: path.to_owned(), reason };
        let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let file = ConfigFile::new(path.display().to_string(), text);
        file.read().map_err(|error| failed(error.problem))
    }

    /// Holds a count against them.
    #[must_use]
    pub fn judge(&self, crc: bool, counted: f64) -> GateRow {
        let per_packet = self.instructions_per_packet;
        let committed = if crc { per_packet.crc_on } else { per_packet.crc_off };
        let change = (counted - committed) / committed;
        let within = change.abs() <= self.tolerance;
        GateRow { crc, instructions_per_packet: counted, committed, change, within }
    }
}

/// Counts both figures. Files go to `directory`.
///
/// # Errors
/// [`GateError`].
pub fn run(
    bench: &Program,
    figures: &Figures,
    directory: &Path,
) -> Result<Vec<GateRow>, GateError> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Err(GateError::NoValgrind);
    }
    let mut rows = Vec::new();
    for crc in [false, true] {
        let few = count(bench, figures, directory, crc, PACKETS[0])?;
        let more = count(bench, figures, directory, crc, PACKETS[1])?;
        // A run handles a tenth of its packets before, to warm up.
        let packets = (PACKETS[1] - PACKETS[0]) as f64 * 1.1;
        rows.push(figures.judge(crc, (more - few) as f64 / packets));
    }
    Ok(rows)
}

fn count(
    program: &Program,
    figures: &Figures,
    directory: &Path,
    crc: bool,
    packets: u64,
) -> Result<u64, GateError> {
    #[derive(Deserialize)]
    struct Isa {
        isa: String,
    }
    let case = Case { crc, ..Case::default() };
    let bench = BenchSection { packets, ..BenchSection::new(BenchMode::Loop) };
    let spec = NodeSpec { vdev: String::new(), cpus: vec![0], bench: Some(bench) };
    let config = directory.join("loop.toml");
    let output = directory.join("callgrind.out");
    fs::write(&config, to_toml(&config::config(&case, &spec)))
        .map_err(BenchError::system(format!("writing {}", config.display())))?;
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", output.display()))
        .arg(program.path())
        .arg("--config")
        .arg(&config);
    let stdout = Running::start("valgrind", &mut command)?.finish()?;
    let isa = serde_json::from_str::<Isa>(&stdout).map_or_else(|_| String::new(), |isa| isa.isa);
    if isa != figures.isa {
        return Err(GateError::Isa { found: isa, expected: figures.isa.clone() });
    }
    let text = fs::read_to_string(&output)
        .map_err(BenchError::system(format!("reading {}", output.display())))?;
    instructions(&text).ok_or(GateError::NoCount(output))
}

/// The total of a callgrind file.
fn instructions(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("totals:").or_else(|| line.strip_prefix("summary:")))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Packets of the two runs.
const PACKETS: [u64; 2] = [20_000, 80_000];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_beyond_the_tolerance_is_told_in_both_directions() {
        let text = "tolerance = 0.02\nisa = \"avx2\"\n\
                    [instructions_per_packet]\ncrc_off = 1000.0\ncrc_on = 2000.0\n";
        let figures: Figures = ConfigFile::new("figures.toml", text).read().unwrap();
        assert!(figures.judge(false, 1019.0).within);
        assert!(!figures.judge(false, 1021.0).within);
        assert!(!figures.judge(false, 979.0).within);
        assert!(figures.judge(true, 2039.0).within);
        assert!((figures.judge(true, 2200.0).change - 0.1).abs() < 1e-9);
    }

    #[test]
    fn the_total_is_read_from_the_end() {
        assert_eq!(instructions("summary: 12\nfn=(1)\n1 2\n\ntotals: 345\n"), Some(345));
        assert_eq!(instructions("fn=(1)\n"), None);
    }
}
