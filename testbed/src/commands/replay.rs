//! `weft replay`.

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use weft_node::stats::write_text;
use weft_process::say;
use weft_testbed::replay::{
    Carrier, Fields, Options, Outcome as Replayed, ReplayError, Speed, replay, replay_captures,
};
use weft_wire::Rank;

use super::{Exit, Failure, Format, Outcome, emit, emit_csv, emit_json, input};

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Directories of recordings; with --config captures of somebody else, pcap or pcapng, which
    /// are merged by time.
    #[arg(required = true, value_name = "DIR|IN.pcap")]
    inputs: Vec<PathBuf>,
    /// Replay captures against this node's configuration. Addresses, ranks, cookies, generations
    /// and checksums are mapped to it and back; handshakes are made anew.
    #[arg(long, value_name = "NODE.toml", conflicts_with_all = ["bless", "partial"],
        value_parser = input())]
    config: Option<PathBuf>,
    /// Who has which rank in captures, where contributions do not say it as they should.
    #[arg(long, value_name = "IP=RANK", value_parser = mapped, requires = "config")]
    map: Vec<(IpAddr, Rank)>,
    /// Compare what comes out with this capture, and not with what was recorded.
    #[arg(long, value_name = "OUT.pcap")]
    expect: Option<PathBuf>,
    /// Write what comes out into this capture.
    #[arg(long, value_name = "OUT.pcap")]
    write: Option<PathBuf>,
    /// Fields that may differ, such as crc,cookie,udp.checksum; a wrong name lists all.
    #[arg(long, value_name = "FIELD,…", default_value = "")]
    ignore: String,
    /// Take what comes out now for right from now on: put it into the recording.
    #[arg(long, requires = "reason", conflicts_with_all = ["expect", "write", "ignore", "partial"])]
    bless: bool,
    /// Why that is right; a line of ORIGIN.md in the recording.
    #[arg(long, value_name = "TEXT", requires = "bless")]
    reason: Option<String>,
    /// Print the engines' counters too.
    #[arg(long, help_heading = "Output")]
    stats: bool,
    /// How fast frames come.
    #[arg(long, value_enum, default_value_t)]
    speed: SpeedName,
    /// What carries frames to and from the engines of a recording.
    #[arg(long, value_enum, default_value_t, conflicts_with = "config")]
    io: IoName,
    /// Replay what is whole of a recording whose node was killed.
    #[arg(long)]
    partial: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
enum SpeedName {
    /// As they came.
    Realtime,
    /// As fast as the engines take them.
    #[default]
    Max,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
enum IoName {
    /// Memory of this process.
    #[default]
    Memory,
    /// DPDK's net_pcap, which reads them from a capture and writes another; in a build with DPDK.
    #[value(name = "net_pcap")]
    NetPcap,
}

pub(crate) fn run(arguments: &ReplayArgs, format: Format) -> Outcome {
    let many = arguments.inputs.len() > 1;
    if many && (arguments.expect.is_some() || arguments.write.is_some()) {
        return Err(Exit::Usage.because(anyhow!("--expect and --write are for one recording")));
    }
    if many && arguments.io == IoName::NetPcap {
        let problem = "--io net_pcap is for one recording, for DPDK starts once in a process";
        return Err(Exit::Usage.because(anyhow!(problem)));
    }
    if let Some(config) = &arguments.config {
        let map = arguments.map.iter().copied().collect();
        let outcome = replay_captures(&arguments.inputs, config, &map, &options(arguments, None)?)
            .map_err(|error| Exit::Usage.because(error))?;
        match format {
            Format::Text => emit(&text(&arguments.inputs[0], &outcome, arguments.stats))?,
            Format::Json => emit_json(&outcome)?,
            Format::Csv => emit_csv(&[Row::of(&outcome)])?,
        }
        return Ok(if outcome.differences == 0 { 0 } else { Exit::Failed as u8 });
    }
    if let Some(file) = arguments.inputs.iter().find(|input| input.is_file()) {
        let problem = "is no recording: a capture needs --config NODE.toml";
        return Err(Exit::Usage.because(anyhow!("{} {problem}", file.display())));
    }
    let mut is_good = true;
    let mut all = Vec::new();
    for input in &arguments.inputs {
        let outcome = one(input, arguments)?;
        is_good &= outcome.differences == 0 || arguments.bless;
        if format == Format::Text {
            emit(&text(input, &outcome, arguments.stats))?;
        }
        all.push(outcome);
    }
    match format {
        Format::Text => {}
        Format::Json if many => emit_json(&all)?,
        Format::Json => emit_json(&all[0])?,
        Format::Csv => emit_csv(&all.iter().map(Row::of).collect::<Vec<_>>())?,
    }
    Ok(if is_good { 0 } else { Exit::Failed as u8 })
}

fn one(input: &Path, arguments: &ReplayArgs) -> Result<Replayed, Failure> {
    let usage = |error: anyhow::Error| Exit::Usage.because(error);
    let anew = if arguments.bless {
        let anew = tempfile::Builder::new().prefix(".bless").tempdir_in(input);
        Some(
            anew.with_context(|| format!("making a directory in {}", input.display()))
                .map_err(usage)?,
        )
    } else {
        None
    };
    let options = options(arguments, anew.as_ref().map(tempfile::TempDir::path))?;
    let outcome = replay(input, &options).map_err(|error| match error {
        ReplayError::NoDpdk => Exit::CannotRun.because(error),
        error => usage(error.into()),
    })?;
    if let (Some(anew), Some(reason)) = (&anew, &arguments.reason) {
        bless(input, anew.path(), reason, &outcome).map_err(|error| Exit::Failed.because(error))?;
    }
    Ok(outcome)
}

fn options(arguments: &ReplayArgs, bless: Option<&Path>) -> Result<Options, Failure> {
    let ignore = Fields::parse(&arguments.ignore).map_err(|error| Exit::Usage.because(error))?;
    Ok(Options {
        expect: arguments.expect.clone(),
        write: arguments.write.clone(),
        bless: bless.map(Path::to_owned),
        ignore,
        speed: match arguments.speed {
            SpeedName::Realtime => Speed::Realtime,
            SpeedName::Max => Speed::Max,
        },
        carrier: match arguments.io {
            IoName::Memory => Carrier::Memory,
            IoName::NetPcap => Carrier::NetPcap,
        },
        partial: arguments.partial,
    })
}

fn mapped(text: &str) -> Result<(IpAddr, Rank), String> {
    let problem = || "must be an address and a rank from 0 to 63, such as 10.0.0.1=2".to_owned();
    let (addr, rank) = text.split_once('=').ok_or_else(problem)?;
    let rank = rank.parse().ok().and_then(Rank::new).ok_or_else(problem)?;
    Ok((addr.parse().map_err(|_| problem())?, rank))
}

/// Puts what came out in the place of what was recorded, and says why.
fn bless(input: &Path, anew: &Path, reason: &str, outcome: &Replayed) -> anyhow::Result<()> {
    if outcome.differences == 0 {
        say!("{}: nothing differs, nothing to bless", input.display());
        return Ok(());
    }
    for entry in fs::read_dir(anew)? {
        let entry = entry?;
        fs::rename(entry.path(), input.join(entry.file_name()))
            .with_context(|| format!("putting {} in place", entry.path().display()))?;
    }
    let path = input.join("ORIGIN.md");
    let mut origin = fs::read_to_string(&path).unwrap_or_default();
    let _ = writeln!(origin, "\nBlessed ({} differences): {reason}", outcome.differences);
    fs::write(&path, origin).with_context(|| format!("writing {}", path.display()))
}

fn text(input: &Path, outcome: &Replayed, stats: bool) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    for difference in outcome.first_differences.iter().take(TEXT_MAX) {
        let _ = writeln!(out, "{difference}");
    }
    let shown = outcome.first_differences.len().min(TEXT_MAX) as u64;
    if outcome.differences > shown {
        let _ = writeln!(out, "… and {} more", outcome.differences - shown);
    }
    for note in &outcome.notes {
        let _ = writeln!(out, "note: {note}");
    }
    if outcome.draws_missing > 0 {
        let count = outcome.draws_missing;
        let _ = writeln!(out, "note: {count} numbers were drawn that the recording does not have");
    }
    if let (true, Some(report)) = (stats, &outcome.report) {
        out.push_str(&write_text(report));
    }
    let Replayed { packets_in, packets_out, unmapped, differences, .. } = outcome;
    let rate = outcome.packets_per_second;
    let _ = write!(out, "{}: {}: {packets_in} frames in, ", input.display(), outcome.verdict);
    let _ = write!(out, "{packets_out} out, {differences} differences, ");
    if *unmapped > 0 {
        let _ = write!(out, "{unmapped} unmapped, ");
    }
    let _ = writeln!(out, "{rate:.0} frames/s");
    out
}

/// A line of CSV.
#[derive(Debug, serde::Serialize)]
struct Row {
    packets_in: u64,
    packets_out: u64,
    unmapped: u64,
    differences: u64,
    packets_per_second: f64,
    verdict: &'static str,
}

impl Row {
    fn of(outcome: &Replayed) -> Self {
        Self {
            packets_in: outcome.packets_in,
            packets_out: outcome.packets_out,
            unmapped: outcome.unmapped,
            differences: outcome.differences,
            packets_per_second: outcome.packets_per_second,
            verdict: outcome.verdict,
        }
    }
}

/// Differences that a text shows.
const TEXT_MAX: usize = 20;
