//! What an operation on rows that move costs: sessions of several processes over UDP on the
//! loopback, and the box of their table, all in this program (SPEC#keys).
//!
//! The first process is measured. A call is timed alone, but for calls on one row that is here: of
//! those, a thousand in a row are timed together. Rows are checked: an add that is not in the sum
//! fails the bench.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use weft_client::keys::{KeyConfig, KeyError, KeyHome, KeyHomeConfig, KeySession};

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Processes.
    pub nodes: u8,
    /// Elements of a row.
    pub row_len: u16,
    /// Calls of each kind.
    pub calls: u32,
    /// Keys of a call on many.
    pub many: u32,
}

/// One operation.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was called.
    pub operation: &'static str,
    /// Keys of a call.
    pub keys: u32,
    /// Processes.
    pub nodes: u8,
    /// Time of a call.
    pub median_us: f64,
    /// See above.
    pub p99_us: f64,
    /// Calls in a second.
    pub operations_per_sec: f64,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// There is no port for a process.
    #[error("no free port on the loopback")]
    Port(#[source] std::io::Error),
    /// A call failed.
    #[error(transparent)]
    Call(#[from] KeyError),
    /// What was added is not what is there.
    #[error("{there} was pulled of key {key}, and {added} had been added to it")]
    WrongValue {
        /// The key.
        key: u64,
        /// Pulled.
        there: f32,
        /// Added.
        added: f32,
    },
}

/// Keys of one process.
const KEYS_OF_EACH: u32 = 4_096;
/// Calls on one local row that are timed together.
const LOCAL_BATCH: u32 = 1_000;

struct Bench {
    settings: Settings,
    sessions: Vec<KeySession>,
    _home: KeyHome,
    value: Vec<f32>,
}

/// Measures all operations.
///
/// # Errors
/// [`KeysError`].
pub fn run(settings: &Settings) -> Result<Vec<Row>, KeysError> {
    let mut bench = Bench::start(settings)?;
    let (here, many) = (1, settings.many.min(KEYS_OF_EACH / 2));
    let mine: Vec<u64> = (0..u64::from(many)).map(|key| key + 8).collect();
    let mut rows = vec![
        bench.time_local("local_pull", here, |session, key, value| session.pull(&[key], value))?,
        bench.time_local("local_push", here, |session, key, value| session.push(&[key], value))?,
        bench.time("local_pull", &mine, |session, keys, values| session.pull(keys, values))?,
    ];
    bench.check(here)?;
    if settings.nodes > 1 {
        let far = u64::from(KEYS_OF_EACH);
        let theirs: Vec<u64> = (0..u64::from(many)).map(|key| far + 8 + key).collect();
        rows.push(
            bench
                .time("remote_pull", &[far], |session, keys, values| session.pull(keys, values))?,
        );
        rows.push(
            bench.time("remote_push", &[far + 1], |session, keys, values| {
                session.push(keys, values)
            })?,
        );
        rows.push(bench.time_moves(&[far + 2])?);
        rows.push(
            bench
                .time("remote_pull", &theirs, |session, keys, values| session.pull(keys, values))?,
        );
        rows.push(bench.time_moves(&theirs)?);
        bench.check(far + 1)?;
    }
    Ok(rows)
}

impl Bench {
    fn start(settings: &Settings) -> Result<Self, KeysError> {
        let bind = |_| UdpSocket::bind("127.0.0.1:0");
        let sockets: Result<Vec<_>, _> = (0..=settings.nodes).map(bind).collect();
        let sockets = sockets.map_err(KeysError::Port)?;
        let addrs: Result<Vec<SocketAddr>, _> = sockets.iter().map(UdpSocket::local_addr).collect();
        let addrs = addrs.map_err(KeysError::Port)?;
        drop(sockets);
        let keys = KEYS_OF_EACH * u32::from(settings.nodes);
        let config = |me| KeyConfig::new(me, addrs[0], &addrs[1..]).rows(keys, settings.row_len);
        let home = KeyHome::start(&KeyHomeConfig::of(&config(0)))?;
        let joining: Vec<_> = (0..settings.nodes)
            .map(config)
            .map(|config| thread::spawn(move || KeySession::connect(&config)))
            .collect();
        let sessions = joining.into_iter().map(|thread| thread.join().expect("it does not panic"));
        let sessions = sessions.collect::<Result<Vec<_>, _>>()?;
        let value = vec![1.0; usize::from(settings.row_len)];
        Ok(Self { settings: *settings, sessions, _home: home, value })
    }

    /// Times a call on one row that is here.
    fn time_local(
        &mut self,
        operation: &'static str,
        key: u64,
        call: impl Fn(&KeySession, u64, &mut [f32]) -> Result<(), KeyError>,
    ) -> Result<Row, KeysError> {
        let mut spans = Vec::new();
        for _ in 0..self.settings.calls.div_ceil(LOCAL_BATCH).max(50) {
            let mut value = self.value.clone();
            let start = Instant::now();
            for _ in 0..LOCAL_BATCH {
                call(&self.sessions[0], key, std::hint::black_box(&mut value))?;
            }
            spans.push(start.elapsed() / LOCAL_BATCH);
            // What is pulled replaces the value; what is pushed is all ones.
        }
        Ok(self.row(operation, 1, spans))
    }

    /// Times calls on these keys.
    fn time(
        &mut self,
        operation: &'static str,
        keys: &[u64],
        call: impl Fn(&KeySession, &[u64], &mut [f32]) -> Result<(), KeyError>,
    ) -> Result<Row, KeysError> {
        let mut values = self.value.repeat(keys.len());
        let mut spans = Vec::new();
        for _ in 0..self.calls_on(keys) {
            let start = Instant::now();
            call(&self.sessions[0], keys, &mut values)?;
            spans.push(start.elapsed());
        }
        Ok(self.row(operation, keys.len(), spans))
    }

    /// Times localizes of these keys, which another process takes back in between.
    fn time_moves(&mut self, keys: &[u64]) -> Result<Row, KeysError> {
        let mut spans = Vec::new();
        for _ in 0..self.calls_on(keys) {
            let start = Instant::now();
            self.sessions[0].localize(keys)?;
            spans.push(start.elapsed());
            self.sessions[1].localize(keys)?;
        }
        Ok(self.row("localize", keys.len(), spans))
    }

    /// Calls on many keys are fewer.
    fn calls_on(&self, keys: &[u64]) -> u32 {
        if keys.len() > 1 { self.settings.calls.div_ceil(20) } else { self.settings.calls }
    }

    /// Adds to a key from every process, and compares.
    fn check(&self, key: u64) -> Result<(), KeysError> {
        let (mut before, mut after) = (self.value.clone(), self.value.clone());
        self.sessions[0].pull(&[key], &mut before)?;
        for session in &self.sessions {
            session.push(&[key], &self.value)?;
        }
        self.sessions[0].pull(&[key], &mut after)?;
        let (added, there) = (f32::from(self.settings.nodes), after[0] - before[0]);
        if (there - added).abs() < 0.5 {
            Ok(())
        } else {
            Err(KeysError::WrongValue { key, there, added })
        }
    }

    fn row(&self, operation: &'static str, keys: usize, mut spans: Vec<Duration>) -> Row {
        spans.sort_unstable();
        let at = |share: usize| spans[(spans.len() - 1) * share / 100].as_secs_f64() * 1e6;
        let total: Duration = spans.iter().sum();
        let calls = f64::from(u32::try_from(spans.len()).unwrap_or(u32::MAX));
        Row {
            operation,
            keys: u32::try_from(keys).unwrap_or(u32::MAX),
            nodes: self.settings.nodes,
            median_us: at(50),
            p99_us: at(99),
            operations_per_sec: calls / total.as_secs_f64().max(1e-9),
        }
    }
}
