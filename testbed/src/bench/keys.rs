//! What an operation on rows that move costs: here, elsewhere, and to have the row come.
//!
//! A home beside an aggregator and the processes are threads of this program, each with a UDP
//! socket of its own on loopback; one thread at a time calls. All pushes are counted and the sums
//! compared in the end.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use serde::Serialize;
use weft_client::keys::{KeyConfig, KeyError, KeySession};
use weft_config::node::{HostAddr, Io, KeysSection, NodeConfig, PortSection};
use weft_engine::random::Seed;
use weft_io::Port;
use weft_io::udp::{UdpConfig, UdpError, UdpPort};
use weft_kernel::Kernels;
use weft_lane::{Keyed, RoleLane};
use weft_wire::Nanos;

use super::interrupt;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Processes, 2 to 16, for each table of rows.
    pub nodes: Vec<u8>,
    /// Keys of one call.
    pub keys: Vec<u32>,
    /// Elements of a row.
    pub row_len: u16,
    /// Samples of each row of results.
    pub samples: u32,
    /// Largest IP packet.
    pub mtu: u16,
}

/// A row of results.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the columns are explained in `weft bench keys --help`")]
pub struct Row {
    pub operation: &'static str,
    pub keys: u32,
    pub nodes: u8,
    pub median_us: f64,
    pub p99_us: f64,
    pub operations_per_sec: f64,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// No ports on loopback.
    #[error("choosing ports on loopback: {0}")]
    Ports(std::io::Error),
    /// The home's port.
    #[error("could not open the home's port: {0}")]
    Home(UdpError),
    /// The home's configuration.
    #[error("{0}")]
    Config(weft_config::Problem),
    /// A process could not join, or a call failed.
    #[error("{0}")]
    Session(#[from] KeyError),
    /// Pushes were lost or counted twice.
    #[error("a row is {found} after pushes of {expected} in all")]
    WrongSum {
        /// What is there.
        found: f64,
        /// What should be.
        expected: f64,
    },
    /// SIGINT or SIGTERM.
    #[error("the bench was broken off")]
    Interrupted,
}

/// Measures, and hands each row to `take` as it comes.
///
/// # Errors
/// [`KeysError`], or what `take` says.
pub fn run<E: From<KeysError>>(
    settings: &Settings,
    mut take: impl FnMut(&Row) -> Result<(), E>,
) -> Result<(), E> {
    for nodes in &settings.nodes {
        let key_count = settings.keys.iter().max().copied().unwrap_or(1) * u32::from(*nodes);
        let site = Site::new(*nodes, settings, key_count)?;
        site.serve::<_, E>(|sessions| {
            let mut bench = Bench::new(sessions, settings, *nodes);
            for keys in &settings.keys {
                for operation in Operation::ALL {
                    take(&bench.measure(operation, *keys)?)?;
                }
            }
            Ok(bench.check()?)
        })?;
    }
    Ok(())
}

/// Addresses, and what runs at them.
struct Site {
    home: SocketAddr,
    processes: Vec<SocketAddr>,
    row_len: u16,
    key_count: u32,
    mtu: u16,
}

impl Site {
    fn new(nodes: u8, settings: &Settings, key_count: u32) -> Result<Self, KeysError> {
        let bind = |_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        let sockets: Result<Vec<_>, _> = (0..=nodes).map(bind).collect();
        let sockets = sockets.map_err(KeysError::Ports)?;
        let addrs: Result<Vec<_>, _> = sockets.iter().map(UdpSocket::local_addr).collect();
        let mut processes = addrs.map_err(KeysError::Ports)?;
        let home = processes.remove(0);
        let Settings { row_len, mtu, .. } = *settings;
        Ok(Self { home, processes, row_len, key_count, mtu })
    }

    /// Runs the home and connects the processes while `work` uses them.
    fn serve<R, E: From<KeysError>>(
        &self,
        work: impl FnOnce(&[KeySession]) -> Result<R, E>,
    ) -> Result<R, E> {
        let settings = self.settings()?;
        let mtu = usize::from(self.mtu);
        let port = UdpPort::open(&UdpConfig { offload: true, mtu, ..UdpConfig::new(self.home) });
        let port = port.map_err(KeysError::Home)?;
        let table = settings.table_at(port.info().mac);
        let homes = settings.homes(&table, &Seed::from(1));
        let engine = settings.aggregator(&table, 0, 1, Kernels::detect());
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut lane = RoleLane::new(port, Keyed::new(engine, homes));
                let origin = Instant::now();
                while !stop.load(Ordering::Relaxed) {
                    let elapsed = origin.elapsed().as_nanos();
                    let now = Nanos(u64::try_from(elapsed).unwrap_or(u64::MAX));
                    if lane.breathe(now, &mut ()) == 0 {
                        lane.port_mut().wait(IDLE_NS);
                    }
                }
            });
            let result = self.connect().map_err(E::from).and_then(|sessions| work(&sessions));
            stop.store(true, Ordering::Relaxed);
            result
        })
    }

    fn settings(&self) -> Result<weft_lane::Settings, KeysError> {
        let addr = HostAddr { ip: IpAddr::from(Ipv4Addr::LOCALHOST), prefix_len: 8 };
        let mut port = PortSection::new(Io::Udp, addr.ip);
        (port.udp_port, port.ip, port.mtu) = (self.home.port(), addr, self.mtu);
        let mut config = NodeConfig::new(port);
        let (row_len, key_count) = (self.row_len, self.key_count);
        config.keys.push(KeysSection::new(0, row_len, key_count, self.processes.clone()));
        weft_lane::Settings::new(config).map_err(KeysError::Config)
    }

    fn connect(&self) -> Result<Vec<KeySession>, KeysError> {
        let connect = |me| {
            let processes = self.processes.clone();
            let config = KeyConfig::new(self.home, processes, me, self.row_len, self.key_count);
            KeySession::connect(&config.mtu(self.mtu))
        };
        thread::scope(|scope| {
            let count = u8::try_from(self.processes.len()).unwrap_or(u8::MAX);
            let threads: Vec<_> = (0..count).map(|me| scope.spawn(move || connect(me))).collect();
            let joined = threads.into_iter().map(|thread| thread.join().expect("none panics"));
            Ok(joined.collect::<Result<_, _>>()?)
        })
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Operation {
    PullLocal,
    PushLocal,
    PullRemote,
    PushRemote,
    Localize,
}

impl Operation {
    const ALL: [Self; 5] =
        [Self::PullLocal, Self::PushLocal, Self::PullRemote, Self::PushRemote, Self::Localize];

    fn name(self) -> &'static str {
        match self {
            Self::PullLocal => "pull local",
            Self::PushLocal => "push local",
            Self::PullRemote => "pull remote",
            Self::PushRemote => "push remote",
            Self::Localize => "localize",
        }
    }

    fn is_push(self) -> bool {
        matches!(self, Self::PushLocal | Self::PushRemote)
    }
}

struct Bench<'a> {
    sessions: &'a [KeySession],
    row_len: usize,
    samples: u32,
    nodes: u8,
    /// Per key what was pushed to each of its elements.
    pushed: Vec<f64>,
}

impl<'a> Bench<'a> {
    fn new(sessions: &'a [KeySession], settings: &Settings, nodes: u8) -> Self {
        let key_count = sessions[0].table().key_count as usize;
        let row_len = usize::from(settings.row_len);
        let samples = settings.samples;
        Self { sessions, row_len, samples, nodes, pushed: vec![0.0; key_count] }
    }

    fn measure(&mut self, operation: Operation, key_count: u32) -> Result<Row, KeysError> {
        let keys: Vec<u64> = (0..u64::from(key_count)).collect();
        let mut values = vec![1.0; keys.len() * self.row_len];
        // Where the rows are when it begins: at the caller or at another process.
        let is_local = matches!(operation, Operation::PullLocal | Operation::PushLocal);
        self.sessions[usize::from(!is_local)].localize(&keys)?;
        // A clock takes longer to read than a local call takes.
        let calls = if is_local { (BATCH_KEYS / key_count).max(1) } else { 1 };
        let mut times = Vec::new();
        for sample in 0..WARM_UP + self.samples {
            if interrupt::is_raised() {
                return Err(KeysError::Interrupted);
            }
            let caller = match operation {
                Operation::Localize => sample as usize % self.sessions.len(),
                _ => 0,
            };
            let session = &self.sessions[caller];
            let begun = Instant::now();
            for _ in 0..calls {
                match operation {
                    Operation::PullLocal | Operation::PullRemote => {
                        session.pull(&keys, &mut values)?;
                    }
                    Operation::PushLocal | Operation::PushRemote => session.push(&keys, &values)?,
                    Operation::Localize => session.localize(&keys)?,
                }
            }
            if sample >= WARM_UP {
                times.push(begun.elapsed().as_secs_f64() * 1e6 / f64::from(calls));
            }
        }
        if operation.is_push() {
            let count = f64::from(calls) * f64::from(WARM_UP + self.samples);
            self.pushed[..keys.len()].iter_mut().for_each(|sum| *sum += count);
        }
        Ok(self.row(operation, key_count, times))
    }

    fn row(&self, operation: Operation, keys: u32, mut times: Vec<f64>) -> Row {
        times.sort_by(f64::total_cmp);
        let at = |share: usize| times[(times.len() * share).div_ceil(100).max(1) - 1];
        let all_s = times.iter().sum::<f64>() / 1e6;
        Row {
            operation: operation.name(),
            keys,
            nodes: self.nodes,
            median_us: at(50),
            p99_us: at(99),
            operations_per_sec: f64::from(keys) * times.len() as f64 / all_s,
        }
    }

    /// Every push counts once.
    fn check(&self) -> Result<(), KeysError> {
        let keys: Vec<u64> = (0..self.pushed.len() as u64).collect();
        let mut values = vec![0.0; keys.len() * self.row_len];
        self.sessions[self.sessions.len() - 1].pull(&keys, &mut values)?;
        for (row, expected) in values.chunks_exact(self.row_len).zip(&self.pushed) {
            if let Some(found) = row.iter().find(|value| f64::from(**value) != *expected) {
                let found = f64::from(*found);
                return Err(KeysError::WrongSum { found, expected: *expected });
            }
        }
        Ok(())
    }
}

/// Keys of local calls that are timed together.
const BATCH_KEYS: u32 = 2_000;
/// Samples before the measured ones.
const WARM_UP: u32 = 20;
/// The home looks at its timers this often at least.
const IDLE_NS: u64 = 5_000_000;
