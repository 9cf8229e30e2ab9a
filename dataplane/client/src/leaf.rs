//! A leaf aggregator in a worker's own process: the workers of one host sum in memory that they
//! share, and one contribution leaves the host.
//!
//! It is the box that `weft-node` is with the same file, in a thread of its own: its rows have the
//! workers of this host as members and a `parent`, the box above, which counts the host's sum for
//! as many workers as its `weight` says. So engines, wire and arithmetic are those of every tree of
//! boxes, and the bits are those of the row's mode (PROTOCOL section 9): of integers those of one
//! box for all, of f32 in rank order those of the tree, the same at every worker and in every run;
//! bf16 is rounded once per level.
//!
//! Does I/O: opens sockets and the rendezvous, runs the lane. What a file may not say here,
//! `problem_of` decides. Invariants: [`Leaf::open`] returns when workers can be let in; the thread
//! ends with the handle.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weft_config::node::{IdleSection, Io, NodeConfig, RowSection};
use weft_config::{ConfigError, ConfigFile, Problem};
use weft_io::shm::{ShmCounts, ShmError, ShmHost};
use weft_io::udp::{UdpConfig, UdpError, UdpPort};
use weft_io::{Port, Waker};
use weft_kernel::Kernels;
use weft_lane::{AggregatorLane, Idle, LaneEngine, Settings, Wrapped, buffers};
use weft_wire::Nanos;
use weft_wire::header::{ElementType, Operation};

use crate::config::{Config, Numbers};
use crate::error::Chain;

type Lane = AggregatorLane<Wrapped<ShmHost<UdpPort>>>;

/// A box for the workers of this host, at work in a thread. Dropping it without [`Leaf::close`]
/// ends it at once, and the workers find out by their timeouts.
#[derive(Debug)]
pub struct Leaf {
    addr: SocketAddr,
    counts: ShmCounts,
    warning: Option<String>,
    orders: Arc<Orders>,
    waker: Option<Waker>,
    thread: Option<JoinHandle<bool>>,
}

/// What the thread is told.
#[derive(Debug, Default)]
struct Orders {
    /// End when nobody needs it any more.
    close: AtomicBool,
    /// End.
    stop: AtomicBool,
}

/// Why there is no leaf.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum LeafError {
    /// The file could not be read.
    #[error("could not read the leaf's file {}: {cause}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        cause: std::io::Error,
    },
    /// The file makes no sense, or not in a worker's process.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The same of a configuration that was in no file.
    #[error("the leaf's configuration: {0}")]
    Problem(Problem),
    /// The leaf's UDP port could not be opened.
    #[error("could not open the leaf's port: {}", Chain(.0))]
    Port(UdpError),
    /// Memory could not be shared.
    #[error("could not share memory with this host's workers: {}", Chain(.0))]
    Shm(ShmError),
    /// The operating system gave no random seed.
    #[error("could not get a random seed from the operating system: {0}")]
    Random(getrandom::Error),
    /// There is no thread for it.
    #[error("could not start a thread for the leaf: {0}")]
    Thread(std::io::Error),
}

/// Reads the file of a leaf, for [`worker`].
///
/// # Errors
/// [`LeafError::File`] and [`LeafError::Config`].
pub fn read(path: &Path) -> Result<NodeConfig, LeafError> {
    Ok(file_at(path)?.read()?)
}

/// What worker `rank` of the leaf's first row that sums connects with: its addresses, its numbers,
/// and memory that the leaf shares.
///
/// # Errors
/// [`LeafError::Problem`] when the file has no such worker.
pub fn worker(config: &NodeConfig, rank: u8) -> Result<Config, LeafError> {
    let of = |field: &str, problem| LeafError::Problem(Problem::new(field, problem));
    let mut rows = config.row.iter();
    let row = rows.find(|row| row.operation == Operation::Sum);
    let row = row.ok_or_else(|| of("row", "has none that sums"))?;
    let member = row.members.get(usize::from(rank));
    let member = member.ok_or_else(|| of("row.members", "has no member of this rank"))?;
    let exponents = || {
        let is_theirs = |of: &&RowSection| of.operation == Operation::Max && of.job == row.job;
        let found = config.row.iter().find(is_theirs).map(|of| of.row);
        found.ok_or_else(|| of("row.exponent", "is missing, and so is a row that agrees by `max`"))
    };
    let numbers = match (row.element_type, row.exponent) {
        (ElementType::F32, _) => Numbers::F32,
        (ElementType::Bf16, _) => Numbers::Bf16,
        (_, Some(_)) => Numbers::Fixed,
        (_, None) => Numbers::Block { exponent_row: exponents()? },
    };
    let port = &config.port;
    let aggregator = SocketAddr::new(port.ip.ip, port.udp_port);
    Ok(Config {
        job: row.job,
        row: row.row,
        rank,
        numbers,
        io: crate::Io::Shm,
        mtu: port.mtu,
        ..Config::new(member.addr, aggregator)
    })
}

impl Leaf {
    /// Opens the box of a file of `weft-node`'s.
    ///
    /// # Errors
    /// [`LeafError`]: file, line and key of what cannot be, or what the system refused.
    pub fn read(path: &Path) -> Result<Self, LeafError> {
        let file = file_at(path)?;
        match Self::open(file.read()?) {
            Err(LeafError::Problem(problem)) => Err(file.refuse(&problem).into()),
            other => other,
        }
    }

    /// Opens the box. It shares memory whatever `port.shm` says.
    ///
    /// # Errors
    /// As [`Leaf::read`].
    pub fn open(mut config: NodeConfig) -> Result<Self, LeafError> {
        config.port.shm = true;
        if let Some(problem) = problem_of(&config) {
            return Err(LeafError::Problem(problem));
        }
        let settings = Settings::new(config).map_err(LeafError::Problem)?;
        let section = &settings.config.port;
        let asked = buffers::asked(&settings.table, section.socket_buffer_bytes);
        let port = UdpPort::open(&UdpConfig {
            socket_count: settings.udp_sockets,
            mtu: usize::from(section.mtu),
            frame_count: section.frame_count,
            socket_buffer_bytes: asked,
            offload: section.offload,
            ipv4_checksum: settings.has_checksums(),
            ..UdpConfig::new(settings.table.local.addr)
        });
        let port = port.map_err(LeafError::Port)?;
        let warning = buffers::shortfall(port.granted(), asked);
        let addr = settings.table.local.addr;
        let port = ShmHost::open(port, addr).map_err(LeafError::Shm)?;
        let port = port.with_multicast(section.multicast).recycling(true);
        let counts = port.counts();
        let mut port = settings.wrap(port, None).expect("nothing is written");
        let waker = port.waker();
        let seed = match settings.config.node.seed {
            Some(seed) => seed,
            None => getrandom::u64().map_err(LeafError::Random)?,
        };
        let table = settings.table_at(port.info().mac);
        let lane = Lane::new(port, settings.aggregator(&table, 0, seed, Kernels::detect()));
        let orders = Arc::new(Orders::default());
        let run = {
            let (orders, counts, idle) = (Arc::clone(&orders), counts.clone(), idle(&settings));
            move || run(lane, idle, &counts, &orders)
        };
        let thread = thread::Builder::new().name("weft-leaf".to_owned()).spawn(run);
        let thread = Some(thread.map_err(LeafError::Thread)?);
        Ok(Self { addr, counts, warning, orders, waker, thread })
    }

    /// Where this host's workers find it: their `aggregator`.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Who shares memory with it.
    #[must_use]
    pub fn shm(&self) -> &ShmCounts {
        &self.counts
    }

    /// What may make it slow, in words for people, if anything.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Ends it when every worker of this host has closed its session, or after `linger`. True when
    /// all had by then. Close this process's own session first.
    #[must_use]
    pub fn close(mut self, linger: Duration) -> bool {
        let end = Instant::now() + linger;
        self.orders.close.store(true, Ordering::Relaxed);
        self.wake();
        while Instant::now() < end && self.thread.as_ref().is_some_and(|it| !it.is_finished()) {
            thread::sleep(LOOK);
        }
        self.end()
    }

    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    /// Ends the thread; true when it had ended because nobody needed it.
    fn end(&mut self) -> bool {
        self.orders.stop.store(true, Ordering::Relaxed);
        self.wake();
        self.thread.take().is_some_and(|thread| thread.join().unwrap_or(false))
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        self.end();
    }
}

fn file_at(path: &Path) -> Result<ConfigFile, LeafError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|cause| LeafError::File { path: path.to_owned(), cause })?;
    Ok(ConfigFile::new(path.display().to_string(), text))
}

/// Breathes until told otherwise; true when it ended because nobody needed it.
fn run(mut lane: Lane, mut idle: Idle, counts: &ShmCounts, orders: &Orders) -> bool {
    let origin = Instant::now();
    let now = || Nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let mut heard_at = Nanos(0);
    while !orders.stop.load(Ordering::Relaxed) && lane.port().is_open() {
        let breath = now();
        let frames = lane.breathe(breath, &mut ());
        while lane.engine_mut().poll_event().is_some() {}
        if frames > 0 {
            heard_at = breath;
        }
        if orders.close.load(Ordering::Relaxed)
            && counts.links() == 0
            && breath.since(heard_at) >= QUIET
            && lane.engine().leases().all(|lease| lease.present().is_empty())
        {
            return true;
        }
        let due = lane.engine().poll_timeout();
        if let Some(pause_ns) = idle.after_breath(frames, due.since(breath).0) {
            lane.port_mut().wait(pause_ns);
        }
    }
    false
}

/// Polls a little, for a lane that polls long takes the CPU of those that it waits for.
fn idle(settings: &Settings) -> Idle {
    let section = settings.config.idle;
    let breaths = section.breaths.or(Some(IDLE_BREATHS));
    Idle::new(IdleSection { breaths, ..section }.on(true))
}

/// What this box's file says that only a program of its own can do, or does not say.
fn problem_of(config: &NodeConfig) -> Option<Problem> {
    let of_node = [
        ("switch", config.switch.is_some()),
        ("controller", config.controller.is_some()),
        ("bands", config.bands.is_some()),
        ("trace", config.trace.is_some()),
        ("record", config.record.is_some()),
        ("bench", config.bench.is_some()),
        ("push", !config.push.is_empty()),
        ("server", !config.server.is_empty()),
        ("replica", !config.replica.is_empty()),
        ("keys", !config.keys.is_empty()),
    ];
    let all_else = "needs weft-node: a leaf in a worker's process has jobs and rows alone";
    if let Some((section, _)) = of_node.into_iter().find(|(_, is_there)| *is_there) {
        return Some(Problem::new(section, all_else));
    }
    if config.port.io != Io::Udp {
        let problem = "is udp for a leaf in a worker's process: run weft-node for another port";
        return Some(Problem::new("port.io", problem));
    }
    if config.lcores.shards != 1 {
        let problem = "is 1 for a leaf in a worker's process: run weft-node for more lanes";
        return Some(Problem::new("lcores.shards", problem));
    }
    if config.row.is_empty() {
        return Some(Problem::new("row", "is missing: a leaf has a row with a parent"));
    }
    let of_row = |(index, row): (usize, &RowSection)| {
        let place = |key, problem| Some(Problem::of_entry("row", index, key, problem));
        if row.parent.is_none() {
            return place("parent", "is missing: where does this host's sum go?");
        }
        if row.fan_in.is_none() {
            return place("fan_in", "is missing: how many workers has the job, over all hosts?");
        }
        None
    };
    config.row.iter().enumerate().find_map(of_row)
}

/// Empty bursts before a sleep.
const IDLE_BREATHS: u32 = 8;
/// How long nobody has said anything when nobody needs the box any more.
const QUIET: Nanos = Nanos(100_000_000);
/// Between two looks at a thread that is to end.
const LOOK: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
