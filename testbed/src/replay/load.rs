//! Reads a recording's directory (`weft_node::record` has its files).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use weft_config::{ConfigError, ConfigFile};
use weft_engine::role::model::ModelState;
use weft_engine::role::model::journal::read_checkpoint;
use weft_io::PortInfo;
use weft_io::pcap::{Capture, PcapError};
use weft_io::record::{Entry, LogError, frames_name, log_name};
use weft_lane::Settings;
use weft_node::record::{
    CONFIG_NAME, FORMAT, HEAD_NAME, Head, LaneHead, checkpoint_name, model_name,
};
use weft_node::{config, error::NodeError};
use weft_wire::{JobId, MacAddr};

/// Why something could not be replayed. Each message is one line that names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A file cannot be read or written.
    #[error("could not {attempt} {}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was attempted.
        attempt: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A directory without [`HEAD_NAME`].
    #[error("{} is no recording: it has no {HEAD_NAME}", .0.display())]
    NoRecording(PathBuf),
    /// A recording of a later Weft.
    #[error("{} is of format {found}, and this weft reads up to {FORMAT}: use the weft of its \
             version, {version}", .path.display())]
    TooNew {
        /// The recording.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// Who wrote it.
        version: String,
    },
    /// A file of the recording, or something between two of them, is wrong.
    #[error("{}: {problem}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A line of a log.
    #[error("{}: line {line}", .path.display())]
    Line {
        /// The log.
        path: PathBuf,
        /// Its number.
        line: usize,
        /// What is wrong.
        source: LogError,
    },
    /// The log has no end: the node was killed.
    #[error("{} has no end, for its node was killed: replay what is whole of it with --partial",
            .0.display())]
    Cut(PathBuf),
    /// A capture.
    #[error(transparent)]
    Capture(#[from] PcapError),
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The node's engines could not be made.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// This program has no DPDK.
    #[error(
        "--io net_pcap: this weft was built without DPDK; install libdpdk-dev and build with \
         `cargo build -p weft-testbed --features dpdk`"
    )]
    NoDpdk,
    /// The configuration and what is asked for do not go together.
    #[error("{0}")]
    Unfit(String),
}

/// A recording in memory.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) head: Head,
    pub(super) settings: Settings,
    pub(super) mac: MacAddr,
    pub(super) states: Vec<(JobId, ModelState)>,
    pub(super) lanes: Vec<Lane>,
    pub(super) directory: PathBuf,
}

/// What a lane met.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) capture: Capture,
    pub(super) log: String,
    pub(super) log_path: PathBuf,
    pub(super) frames_path: PathBuf,
    /// How the log says that it ends; `None` when it does not.
    pub(super) end: Option<String>,
}

impl Recording {
    /// Reads all of it. One without an end is refused unless what is whole is to be replayed.
    pub(super) fn read(directory: &Path, partial: bool) -> Result<Self, ReplayError> {
        let head = read_head(directory)?;
        let mut settings = read_config(&directory.join(CONFIG_NAME))?;
        let local = |job: u16| {
            let path = directory.join(model_name(job)).to_string_lossy().into_owned();
            head.models.contains(&job).then_some(path)
        };
        for section in &mut settings.config.server {
            section.initial_model = local(section.job);
        }
        for section in &mut settings.config.replica {
            section.initial_model = local(section.job);
        }
        let mac = head.lanes.first().map(|lane| lane.mac.parse());
        let head_path = directory.join(HEAD_NAME);
        let damaged = |problem: &str| damaged(&head_path, problem);
        let mac = mac.ok_or_else(|| damaged("it has no lanes"))?;
        let mac = mac.map_err(|_| damaged("the port's address is none"))?;
        if head.lanes.len() != usize::from(settings.config.lcores.shards) {
            return Err(damaged("the configuration has another number of lanes"));
        }
        let state = |job: &u16| {
            let path = directory.join(checkpoint_name(*job));
            let checkpoint = read_checkpoint(&read(&path)?);
            let checkpoint = checkpoint.map_err(|damage| self::damaged(&path, &damage.to_string()));
            Ok((JobId(*job), checkpoint?.state))
        };
        let states = head.checkpoints.iter().map(state).collect::<Result<_, ReplayError>>()?;
        let lanes = (0..head.lanes.len()).map(|lane| Lane::read(directory, lane, partial));
        let lanes = lanes.collect::<Result<_, _>>()?;
        Ok(Self { head, settings, mac, states, lanes, directory: directory.to_owned() })
    }

    /// What a lane's port was.
    pub(super) fn info(&self, lane: usize) -> PortInfo {
        let LaneHead { port, driver, mac, mtu, .. } = &self.head.lanes[lane];
        let mac = mac.parse().unwrap_or_default();
        PortInfo { name: port.clone(), driver: driver.clone(), mac, mtu: *mtu }
    }
}

impl Lane {
    fn read(directory: &Path, lane: usize, partial: bool) -> Result<Self, ReplayError> {
        let log_path = directory.join(log_name(lane));
        let frames_path = directory.join(frames_name(lane));
        let log = String::from_utf8(read(&log_path)?)
            .map_err(|_| damaged(&log_path, "it is not UTF-8"))?;
        let last = log.lines().last().map(Entry::parse);
        let end = match last {
            Some(Ok(Entry::End { reason })) if log.ends_with('\n') => Some(reason.to_owned()),
            _ => None,
        };
        if end.is_none() && !partial {
            return Err(ReplayError::Cut(log_path));
        }
        let capture =
            if partial { Capture::load_cut(&frames_path) } else { Capture::load(&frames_path) };
        Ok(Self { capture: capture?, log, log_path, frames_path, end })
    }
}

/// Reads a node's configuration.
pub(super) fn read_config(path: &Path) -> Result<Settings, ReplayError> {
    let text = String::from_utf8(read(path)?).map_err(|_| damaged(path, "it is not UTF-8"))?;
    Ok(config::parse(&ConfigFile::new(path.display().to_string(), text))?)
}

fn read_head(directory: &Path) -> Result<Head, ReplayError> {
    let path = directory.join(HEAD_NAME);
    if !path.is_file() {
        return Err(ReplayError::NoRecording(directory.to_owned()));
    }
    let value: serde_json::Value = serde_json::from_slice(&read(&path)?)
        .map_err(|error| damaged(&path, &error.to_string()))?;
    // Before the rest, which a later format may have changed.
    let found = value["format"].as_u64().ok_or_else(|| damaged(&path, "it says no format"))?;
    if found > u64::from(FORMAT) {
        let version = value["version"].as_str().unwrap_or("unknown").to_owned();
        return Err(ReplayError::TooNew { path: directory.to_owned(), found, version });
    }
    serde_json::from_value(value).map_err(|error| damaged(&path, &error.to_string()))
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, ReplayError> {
    fs::read(path).map_err(|source| ReplayError::File {
        path: path.to_owned(),
        attempt: "read",
        source,
    })
}

pub(super) fn damaged(path: &Path, problem: &str) -> ReplayError {
    ReplayError::Damaged { path: path.to_owned(), problem: problem.to_owned() }
}
