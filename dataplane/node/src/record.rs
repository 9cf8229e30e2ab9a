//! Keeps what a node's engines meet, and what they began with, so that `weft replay` can make the
//! same engines and have them meet the same.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `recording.json` | [`Head`]: format, role, commit, ports, clock |
//! | `node.toml` | the configuration with every default filled in |
//! | `model-JOB.f32` | the model that a job began with, where a file gave one |
//! | `checkpoint-JOB` | what a former life left, journal applied (`weft_engine`'s checkpoints) |
//! | `lane-N.pcapng` | the frames of a lane, outside faults and hand-over |
//! | `lane-N.log` | breaths, draws, commands, events, durability (`weft_io::record`) |
//!
//! Nothing here decides anything. Commands and events are written as the interface to controllers
//! has them, so a recording is as old-fashioned as that interface at worst.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use prost::Message as _;
use serde::{Deserialize, Serialize};
use weft_config::node::{NodeConfig, RecordSection};
use weft_control::{Command, Event};
use weft_engine::random::Seed;
use weft_engine::role::model::journal::{JournalHeader, write_checkpoint};
use weft_io::record::{Entry, LaneRecorder, Recording};
use weft_io::{Frame, Port, PortInfo};
use weft_kernel::crc32c;
use weft_lane::{DrawTape, LanePort, Settings};
use weft_rpc::convert::{command_to_proto, event_to_proto};
use weft_wire::{JobId, Nanos};

use crate::durable::Stored;
use crate::error::{NodeError, remedy};

/// The version of a recording's files. It grows when an older `weft replay` would misread them.
pub const FORMAT: u32 = 1;
/// The file that says what a recording is.
pub const HEAD_NAME: &str = "recording.json";
/// The file of the configuration.
pub const CONFIG_NAME: &str = "node.toml";

/// What a recording is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Head {
    /// [`FORMAT`] of who wrote it.
    pub format: u32,
    /// `aggregator`, `server` or `replica`.
    pub role: NodeRole,
    /// Version and commit of the node, as `--version` has them.
    pub version: String,
    /// Unix time of the origin of the node's clock, in nanoseconds.
    pub clock_origin_ns: u64,
    /// Seed of the stack that answers ARP, NDP and ping; absent where the kernel does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_seed: Option<u64>,
    /// True when a controller could be there.
    pub has_controller: bool,
    /// The lanes.
    pub lanes: Vec<LaneHead>,
    /// Jobs whose models came from a file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<u16>,
    /// Jobs that went on where a former life stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<u16>,
}

/// What a node is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// It sums.
    Aggregator,
    /// It serves models.
    Server,
    /// It follows servers.
    Replica,
}

impl NodeRole {
    /// What a node with these settings is.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        match (settings.servers.is_empty(), settings.replicas.is_empty()) {
            (false, _) => Self::Server,
            (true, false) => Self::Replica,
            (true, true) => Self::Aggregator,
        }
    }
}

/// A lane's port, as its engine saw it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LaneHead {
    /// Its name.
    pub port: String,
    /// What drives it.
    pub driver: String,
    /// Its Ethernet address.
    pub mac: String,
    /// Its MTU.
    pub mtu: usize,
    /// Bytes of a frame's buffer.
    pub buffer_len: usize,
    /// The longest frame that may become a copy of another; absent where none may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recycled_len_max: Option<usize>,
    /// Whether frames were sorted by destination ([`Port::merges`]).
    #[serde(default)]
    pub merges: bool,
}

/// What a recording begins with.
#[derive(Clone, Copy, Debug)]
pub struct Beginning<'a> {
    /// The node's.
    pub settings: &'a Settings,
    /// What its servers have on disk.
    pub stored: &'a Stored,
    /// Unix time of the origin of its clock.
    pub clock_origin: Nanos,
    /// Seed of its host side, where it answers.
    pub host_seed: Option<u64>,
    /// True when a controller could be there.
    pub has_controller: bool,
}

/// Has the command line override `[record]`.
///
/// # Errors
/// [`NodeError::Record`] for a path that a configuration cannot name.
pub fn override_by(
    config: &mut NodeConfig,
    directory: Option<&Path>,
    max_bytes: Option<u64>,
) -> Result<(), NodeError> {
    if let Some(path) = directory {
        let name = path.to_str().ok_or_else(|| NodeError::Record {
            path: path.to_owned(),
            problem: "the path is not UTF-8; name another directory".to_owned(),
        })?;
        let section = RecordSection::new(name);
        config.record = Some(match config.record.take() {
            Some(old) => RecordSection { max_bytes: old.max_bytes, ..section },
            None => section,
        });
    }
    if let (Some(section), Some(max_bytes)) = (&mut config.record, max_bytes) {
        section.max_bytes = max_bytes;
    }
    Ok(())
}

/// Begins a recording of all lanes.
///
/// # Errors
/// [`NodeError::Record`].
pub fn start<P: Port, S: Port>(
    section: &RecordSection,
    beginning: &Beginning<'_>,
    front: &mut LanePort<P>,
    sides: &mut [LanePort<S>],
) -> Result<Recording, NodeError> {
    let path = Path::new(&section.directory);
    let failed = |problem: String| NodeError::Record { path: path.to_owned(), problem };
    let io_failed = |error: std::io::Error| failed(io_problem(&error));
    fs::create_dir_all(path).map_err(io_failed)?;
    if fs::read_dir(path).map_err(io_failed)?.next().is_some() {
        return Err(failed("it is not empty; name an empty directory".to_owned()));
    }
    let mut lanes = vec![lane_head(front)];
    lanes.extend(sides.iter_mut().map(lane_head));
    let settings = beginning.settings;
    let mut head = Head {
        format: FORMAT,
        role: NodeRole::of(settings),
        version: crate::cli::VERSION.to_owned(),
        clock_origin_ns: beginning.clock_origin.0,
        host_seed: beginning.host_seed,
        has_controller: beginning.has_controller,
        lanes,
        models: Vec::new(),
        checkpoints: Vec::new(),
    };
    let mut used = 0;
    let mut keep = |name: &str, bytes: &[u8]| {
        used += bytes.len() as u64;
        if used > section.max_bytes {
            let problem = "what the node begins with is larger than record.max_bytes; raise it";
            return Err(failed(problem.to_owned()));
        }
        fs::write(path.join(name), bytes).map_err(io_failed)
    };
    for (job, model) in models(&settings.config) {
        let bytes = fs::read(model).map_err(|error| failed(format!("reading {model}: {error}")))?;
        keep(&model_name(job), &bytes)?;
        head.models.push(job);
    }
    for (config, state) in beginning.stored.configured() {
        let journal = JournalHeader::new(&config.model, config.workers.len());
        let mut bytes = Vec::new();
        write_checkpoint(&journal, 0, state, &mut bytes);
        keep(&checkpoint_name(config.model.job.0), &bytes)?;
        head.checkpoints.push(config.model.job.0);
    }
    keep(CONFIG_NAME, weft_config::to_toml(&settings.config).as_bytes())?;
    let text = serde_json::to_string_pretty(&head).expect("it has string keys");
    keep(HEAD_NAME, (text + "\n").as_bytes())?;
    let infos: Vec<PortInfo> =
        std::iter::once(front.info()).chain(sides.iter().map(Port::info)).collect();
    let name = section.directory.clone();
    let warn = move |reason: &str| {
        weft_process::say!("weft-node: the recording in {name} ends here ({reason}), not the node");
    };
    let program = format!("weft-node {}", crate::cli::VERSION);
    let sizes = (used, section.max_bytes);
    let recording = Recording::start(path, &program, &infos, beginning.clock_origin, sizes, warn);
    let mut recording = recording.map_err(io_failed)?;
    if let Some(recorder) = recording.lane(0) {
        front.record(recorder);
    }
    for (side, lane) in sides.iter_mut().zip(1..) {
        if let Some(recorder) = recording.lane(lane) {
            side.record(recorder);
        }
    }
    Ok(recording)
}

/// What an input or output error is, and what to do.
fn io_problem(error: &std::io::Error) -> String {
    match remedy(error) {
        Some(remedy) => format!("{error}; {remedy}, or name another directory"),
        None => format!("{error}; name a directory that can be made or is empty"),
    }
}

/// The files that a configuration's models begin with, by job.
pub fn models(config: &NodeConfig) -> impl Iterator<Item = (u16, &str)> {
    let servers = config.server.iter().map(|job| (job.job, job.initial_model.as_deref()));
    let replicas = config.replica.iter().map(|job| (job.job, job.initial_model.as_deref()));
    servers.chain(replicas).filter_map(|(job, model)| Some((job, model?)))
}

/// The file of a job's first model in a recording.
#[must_use]
pub fn model_name(job: u16) -> String {
    format!("model-{job}.f32")
}

/// The file of what a job's former life left, in a recording.
#[must_use]
pub fn checkpoint_name(job: u16) -> String {
    format!("checkpoint-{job}")
}

fn lane_head<P: Port>(port: &mut LanePort<P>) -> LaneHead {
    let info = port.info();
    let buffer_len = port.alloc().map_or(0, |mut frame| frame.buffer_mut().len());
    LaneHead {
        port: info.name,
        driver: info.driver,
        mac: info.mac.to_string(),
        mtu: info.mtu,
        buffer_len,
        recycled_len_max: recycled_len_max(&*port, buffer_len),
        merges: port.merges(),
    }
}

/// A port recycles up to some length.
fn recycled_len_max<P: Port>(port: &P, buffer_len: usize) -> Option<usize> {
    let (mut good, mut bad) = (0, buffer_len + 1);
    if !port.recycles(good) {
        return None;
    }
    while bad - good > 1 {
        let middle = usize::midpoint(good, bad);
        if port.recycles(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Some(good)
}

/// The seed of the engine on a port: what it draws is kept where frames are.
pub(crate) fn seed<P: Port>(value: u64, port: &mut LanePort<P>) -> Seed {
    match port.recorder() {
        None => value.into(),
        Some(recorder) => Seed::from(value).with_tape(Arc::new(DrawTape::new(recorder.draws()))),
    }
}

/// Where to note what an engine met between two breaths.
#[derive(Debug)]
pub struct Notes<'a>(Option<&'a mut LaneRecorder>);

impl<'a> Notes<'a> {
    /// In a lane's recording, if there is one.
    pub fn of(recorder: Option<&'a mut LaneRecorder>) -> Self {
        Self(recorder)
    }

    /// Nowhere.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// A job's records are durable up to here.
    pub fn durable(&mut self, job: JobId, position: u64) {
        self.note(|| Entry::Durable { job: job.0, position });
    }

    /// The engine gave a record.
    pub fn journal(&mut self, job: JobId, position: u64, record: &[u8]) {
        let len = record.len() as u64;
        self.note(|| Entry::Journal { job: job.0, position, len, crc: crc32c(record) });
    }

    /// There was no room for records.
    pub fn journal_full(&mut self) {
        self.note(|| Entry::JournalFull);
    }

    /// A controller's word.
    pub fn command(&mut self, now: Nanos, command: &Command) {
        let octets = || command_to_proto(command).encode_to_vec().into();
        self.note(|| Entry::Command { now, octets: octets() });
    }

    /// A controller came or went.
    pub fn controller(&mut self, now: Nanos, is_there: bool) {
        self.note(|| Entry::Controller { now, is_there });
    }

    /// The box has all that it is to hold.
    pub fn settled(&mut self) {
        self.note(|| Entry::Settled);
    }

    /// The engine told something.
    pub fn event(&mut self, job: JobId, event: &Event) {
        let octets = || event_to_proto(job, event).encode_to_vec().into();
        self.note(|| Entry::Event { octets: octets() });
    }

    fn note<'b>(&mut self, entry: impl FnOnce() -> Entry<'b>) {
        if let Some(recorder) = &mut self.0 {
            recorder.note(&entry());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn a_full_disk_is_not_told_to_be_empty() {
        let problem = |kind: ErrorKind| io_problem(&kind.into());
        assert!(problem(ErrorKind::StorageFull).contains("make room"));
        assert!(problem(ErrorKind::PermissionDenied).contains("let this user write"));
        let of_kernel = |code| io_problem(&std::io::Error::from_raw_os_error(code));
        for code in [nix::libc::EMFILE, nix::libc::ENFILE] {
            assert!(of_kernel(code).contains("open files"), "{}", of_kernel(code));
        }
        assert!(of_kernel(nix::libc::EIO).contains("dmesg"));
        assert!(!of_kernel(nix::libc::EIO).contains("make room"));
    }
}
