//! Makes the engines of a recording, one lane after the other, and has them meet what its log and
//! its frames say, in their order.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message as _;
use weft_engine::random::Seed;
use weft_engine::role::replica::Replica;
use weft_engine::role::server::Server;
use weft_engine::table::Table;
use weft_io::record::Entry;
use weft_io::{Port, PortInfo};
use weft_kernel::{Kernels, crc32c};
use weft_lane::{LaneMap, LanePort, RoleLane, Wrapped, steer};
use weft_node::host::Host;
use weft_node::model;
use weft_node::record::{NodeRole, Notes};
use weft_node::stats::{LaneSnapshot, Report};
use weft_rpc::convert::{command, event, event_to_proto};
use weft_rpc::v1;
use weft_wire::{JobId, Nanos};

use super::difference::Difference;
use super::keeps::Keeps;
use super::load::{Lane, Recording, ReplayError, damaged};
use super::net_pcap::Devices;
use super::options::{Carrier, Options, Outcome, Speed};
use super::port::ScriptPort;
use super::recorded::Recorded;
use super::tape::ReplayTape;

/// Replays all lanes of a recording.
pub(super) fn play(recording: &mut Recording, options: &Options) -> Result<Outcome, ReplayError> {
    let started = Instant::now();
    let mut outcome = Outcome::default();
    let mut snapshots = Vec::new();
    let lanes = recording.lanes.len();
    if lanes > 1 && (options.expect.is_some() || options.write.is_some()) {
        let problem = "--expect and --write are for one lane, and the recording has several";
        return Err(ReplayError::Unfit(problem.to_owned()));
    }
    let table = recording.settings.table_at(recording.mac);
    let mut anew = options.bless.as_deref().map(|path| begin_anew(recording, path)).transpose()?;
    let mut devices = match options.carrier {
        Carrier::Memory => None,
        Carrier::NetPcap => Some(Devices::open(recording)?),
    };
    for (index, lane) in std::mem::take(&mut recording.lanes).into_iter().enumerate() {
        let play = Play { recording, options, table: &table, lane: index, started };
        snapshots.push(play.lane(lane, &mut outcome, anew.as_mut(), devices.as_mut())?);
    }
    if let Some(devices) = devices {
        devices.finish(&mut outcome)?;
    }
    if let (Some(anew), Some(path)) = (anew, &options.bless)
        && anew.finish().ended > 0
    {
        return Err(damaged(path, "the disk is full, or too slow for the replay"));
    }
    outcome.report = Some(Report::new(&recording.settings.config, 0.0, &snapshots));
    Ok(outcome)
}

fn begin_anew(
    recording: &Recording,
    path: &std::path::Path,
) -> Result<weft_io::record::Recording, ReplayError> {
    let infos: Vec<PortInfo> =
        (0..recording.lanes.len()).map(|lane| recording.info(lane)).collect();
    let origin = Nanos(recording.head.clock_origin_ns);
    let program = format!("weft replay of {}", recording.head.version);
    let sizes = (0, u64::MAX);
    weft_io::record::Recording::start(path, &program, &infos, origin, sizes, |_| {})
        .map_err(|source| ReplayError::File { path: path.into(), attempt: "write", source })
}

/// What the lanes of a replay have in common, and which of them is meant.
struct Play<'a> {
    recording: &'a Recording,
    options: &'a Options,
    table: &'a Table,
    lane: usize,
    started: Instant,
}

impl Play<'_> {
    fn lane(
        &self,
        lane: Lane,
        outcome: &mut Outcome,
        anew: Option<&mut weft_io::record::Recording>,
        devices: Option<&mut Devices>,
    ) -> Result<LaneSnapshot, ReplayError> {
        let Lane { capture, log, log_path, frames_path, end } = lane;
        let file = |path: &std::path::Path, line, source| ReplayError::Line {
            path: path.to_owned(),
            line,
            source,
        };
        let mut draws = Vec::new();
        for (index, line) in log.lines().enumerate().filter(|(_, line)| line.starts_with("draw ")) {
            match Entry::parse(line) {
                Ok(Entry::Draw { label, word }) => draws.push((label, word)),
                Ok(_) => {}
                Err(error) => return Err(file(&log_path, index + 1, error)),
            }
        }
        match (end.as_deref(), capture.cut_at()) {
            (Some("stopped"), None) => {}
            (Some(reason), None) => outcome
                .notes
                .push(format!("lane {}: the recording ended before its node: {reason}", self.lane)),
            (_, Some(offset)) => {
                outcome.notes.push(format!("{}: cut off at byte {offset}", frames_path.display()))
            }
            (None, None) => outcome.notes.push(format!("{}: has no end", log_path.display())),
        }
        let recorded = Recorded::new(capture, self.lane, self.options, &self.recording.head)?;
        let script = Rc::new(RefCell::new(recorded));
        let head = &self.recording.head.lanes[self.lane];
        let info = self.recording.info(self.lane);
        let log = Log { text: &log, path: &log_path, frames_path: &frames_path };
        let (snapshot, missing) = match devices {
            None => {
                let (len, recycled) = (head.buffer_len, head.recycled_len_max);
                let port = ScriptPort::new(Rc::clone(&script), info, len, recycled, head.merges);
                self.on(port, &script, &log, draws, anew)?
            }
            Some(devices) => {
                let port = devices.port(self.lane, &script, info, head.merges);
                self.on(port, &script, &log, draws, anew)?
            }
        };
        let mut script = script.borrow_mut();
        script.finish();
        script.outcome.draws_missing = missing;
        if let Some(path) = self.options.write.as_ref().filter(|_| script.output_failed) {
            return Err(damaged(path, "the disk is full"));
        }
        outcome.add(std::mem::take(&mut script.outcome));
        Ok(snapshot)
    }

    /// Puts the engine of the recording's role on a port, and has it meet all; what it counted, and
    /// how many numbers it drew that the recording does not have.
    fn on<P: Port>(
        &self,
        port: P,
        script: &RefCell<Recorded>,
        log: &Log<'_>,
        draws: Vec<(&str, u64)>,
        anew: Option<&mut weft_io::record::Recording>,
    ) -> Result<(LaneSnapshot, u64), ReplayError> {
        let mut port = alone(port, &self.recording.settings.lanes);
        if let Some(recorder) = anew.and_then(|anew| anew.lane(self.lane)) {
            port.record(recorder);
        }
        let noted = port.recorder().map(|recorder| recorder.draws());
        let tape = Arc::new(ReplayTape::new(draws.into_iter(), noted));
        // Another seed than any: what is not drawn by a label shows.
        let seed = Seed::from(0).with_tape(Arc::<ReplayTape>::clone(&tape));
        let (settings, kernels) = (&self.recording.settings, Kernels::detect());
        let (local, mtu) = (self.table.config().local, self.table.config().mtu);
        let snapshot = match self.recording.head.role {
            NodeRole::Aggregator => {
                let lane = u16::try_from(self.lane).expect("the table bounds the shards");
                let engine = settings.aggregator(self.table, lane, seed, kernels);
                self.follow(RoleLane::new(port, engine), script, log)?
            }
            NodeRole::Server => {
                let jobs = model::server_jobs(settings)?;
                let engine = Server::of_seed(local, mtu, &jobs, seed, kernels);
                let mut engine = engine.expect("it was judged when the configuration was read");
                for (job, state) in &self.recording.states {
                    engine.restore(*job, state).map_err(|error| {
                        let problem = format!("the checkpoint of job {}: {error}", job.0);
                        damaged(&self.recording.directory, &problem)
                    })?;
                }
                self.follow(RoleLane::new(port, engine), script, log)?
            }
            NodeRole::Replica => {
                let jobs = model::replica_jobs(settings)?;
                let engine = Replica::of_seed(local, mtu, &jobs, seed, kernels);
                let engine = engine.expect("it was judged when the configuration was read");
                self.follow(RoleLane::new(port, engine), script, log)?
            }
        };
        Ok((snapshot, tape.missing()))
    }

    fn host(&self) -> Host {
        let section = &self.recording.settings.config.port;
        match self.recording.head.host_seed {
            None => Host::silent(),
            Some(seed) => {
                let mac = section.mac.unwrap_or(self.recording.mac);
                Host::answering(section.ip, mac, section.mtu, seed)
            }
        }
    }

    /// Has a lane meet all that is in its log.
    fn follow<P: Port, E: Keeps>(
        &self,
        mut lane: RoleLane<LanePort<P>, E>,
        script: &RefCell<Recorded>,
        log: &Log<'_>,
    ) -> Result<LaneSnapshot, ReplayError> {
        let mut host = self.host();
        let mut record = Vec::new();
        let mut now = Nanos(0);
        let mut lines = log.text.lines().enumerate().peekable();
        while let Some((index, line)) = lines.next() {
            let entry = match Entry::parse(line) {
                Ok(entry) => entry,
                // A log without an end may stop within a line.
                Err(_) if self.options.partial && lines.peek().is_none() => break,
                Err(source) => {
                    let path = log.path.to_owned();
                    return Err(ReplayError::Line { path, line: index + 1, source });
                }
            };
            match entry {
                Entry::Breath(breath) => {
                    if breath.now < now {
                        let problem = format!("line {}: its time goes backwards", index + 1);
                        return Err(damaged(log.path, &problem));
                    }
                    now = breath.now;
                    self.settle(&mut lane, script, now);
                    if self.options.speed == Speed::Realtime {
                        let due = Duration::from_nanos(now.0);
                        std::thread::sleep(due.saturating_sub(self.started.elapsed()));
                    }
                    if let Err(problem) = script.borrow_mut().begin(breath) {
                        if self.options.partial {
                            break;
                        }
                        let problem = format!("{problem} in line {}", index + 1);
                        return Err(damaged(log.frames_path, &problem));
                    }
                    lane.breathe(now, &mut host);
                    script.borrow_mut().end();
                }
                entry => {
                    self.meet(&entry, &mut lane, script, now, &mut record).map_err(|problem| {
                        damaged(log.path, &format!("line {}: {problem}", index + 1))
                    })?
                }
            }
        }
        self.settle(&mut lane, script, now);
        Ok(LaneSnapshot::take(self.lane, &lane, &host))
    }

    /// What was told and is not in the log.
    fn settle<P: Port, E: Keeps>(
        &self,
        lane: &mut RoleLane<LanePort<P>, E>,
        script: &RefCell<Recorded>,
        now: Nanos,
    ) {
        let (port, engine) = lane.parts_mut();
        while let Some((job, told)) = engine.poll_event() {
            Notes::of(port.recorder()).event(job, &told);
            let got = format!("{told:?}");
            self.differ(script, now, "event", "none", &got);
        }
        if self.recording.head.has_controller {
            while engine.poll_train().is_some() {}
        }
    }

    fn differ(
        &self,
        script: &RefCell<Recorded>,
        now: Nanos,
        what: &str,
        expected: &str,
        got: &str,
    ) {
        script.borrow_mut().outcome.differ(|| Difference {
            lane: self.lane,
            packet: 0,
            at_ns: now.0,
            field: what.to_owned(),
            expected: expected.to_owned(),
            got: got.to_owned(),
        });
    }

    /// Has the engine meet what happened between two breaths.
    fn meet<P: Port, E: Keeps>(
        &self,
        entry: &Entry<'_>,
        lane: &mut RoleLane<LanePort<P>, E>,
        script: &RefCell<Recorded>,
        now: Nanos,
        record: &mut Vec<u8>,
    ) -> Result<(), String> {
        let (port, engine) = lane.parts_mut();
        let mut notes = Notes::of(port.recorder());
        match entry {
            Entry::Breath(_) | Entry::Draw { .. } | Entry::End { .. } => {}
            Entry::Command { now, octets } => {
                let message =
                    v1::Command::decode(&octets[..]).map_err(|error| error.to_string())?;
                let command = command(&message).map_err(|error| error.to_string())?;
                let command = command.ok_or("a command that this weft does not know")?;
                notes.command(*now, &command);
                engine.handle_command(*now, command);
            }
            Entry::Controller { now, is_there } => {
                notes.controller(*now, *is_there);
                engine.handle_controller(*now, *is_there);
            }
            Entry::Settled => {
                notes.settled();
                engine.handle_settled();
            }
            Entry::Durable { job, position } => {
                notes.durable(JobId(*job), *position);
                engine.durable(JobId(*job), *position);
            }
            Entry::JournalFull => {
                notes.journal_full();
                engine.journal_full();
            }
            Entry::Journal { job, position, len, crc } => {
                let taken = engine.journal(record);
                let got = taken.map(|(job, at)| (job.0, at, record.len() as u64, crc32c(record)));
                if let Some((job, at)) = taken {
                    notes.journal(job, at, record);
                }
                if got != Some((*job, *position, *len, *crc)) {
                    let show = |(job, at, len, crc)| {
                        format!("record {at} of job {job}, {len} octets, CRC {crc:08x}")
                    };
                    let expected = show((*job, *position, *len, *crc));
                    let got = got.map_or_else(|| "none".to_owned(), show);
                    self.differ(script, now, "journal", &expected, &got);
                }
            }
            Entry::Event { octets } => {
                let told = engine.poll_event();
                if let Some((job, told)) = &told {
                    notes.event(*job, told);
                }
                let got = told.map(|(job, told)| event_to_proto(job, &told).encode_to_vec());
                if got.as_deref() != Some(&octets[..]) {
                    let (expected, got) = (show_event(octets), got.map(|got| show_event(&got)));
                    self.differ(script, now, "event", &expected, got.as_deref().unwrap_or("none"));
                }
            }
        }
        Ok(())
    }
}

fn show_event(octets: &[u8]) -> String {
    let message = v1::Event::decode(octets).map_err(|error| error.to_string());
    let told = message.and_then(|message| event(&message).map_err(|error| error.to_string()));
    match told {
        Ok((job, told)) => format!("job {}: {told:?}", job.0),
        Err(problem) => problem,
    }
}

/// The one lane of a node on this port.
pub(super) fn alone<P: Port>(port: P, map: &LaneMap) -> LanePort<P> {
    let port = Wrapped::without_capture(port, None);
    let (port, _) = steer(port, Vec::<Wrapped<P>>::new(), false, map, 1, None);
    weft_io::record::Recorded::new(port)
}

struct Log<'a> {
    text: &'a str,
    path: &'a std::path::Path,
    frames_path: &'a std::path::Path,
}
