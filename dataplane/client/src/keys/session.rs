//! A process's session.

use std::net::UdpSocket;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weft_engine::role::keys::{
    CallError, Op, Presence, Process, ProcessConfig, ProcessStats, TableConfig, TableError,
};
use weft_wire::Nanos;
use weft_wire::frame::UdpAddr;

use super::config::{KeptRow, KeyConfig};
use super::driver::{Driver, Locked};
use super::error::KeyError;
use super::store::{Rows, SharedRows};
use super::ticket::Ticket;

/// One life of one process of a table. Clones share it, and all threads may use it at once.
#[derive(Clone, Debug)]
pub struct KeySession {
    table: TableConfig,
    rows: Arc<Rows>,
    driver: Arc<Driver>,
    timeout: Duration,
    reader: Arc<Reader>,
}

/// The thread that reads the socket; the last clone ends it.
#[derive(Debug)]
struct Reader {
    driver: Arc<Driver>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What happened to a process.
#[derive(Clone, Debug, Default)]
pub struct KeyStatistics {
    /// What its engine counted. Operations of [`ProcessStats::local`] came to the engine; those
    /// that a thread did itself are not counted.
    pub engine: ProcessStats,
}

/// What a call does.
#[derive(Clone, Copy)]
enum Call<'a> {
    Pull,
    Push(&'a [f32]),
    Set(&'a [f32]),
    Localize,
}

impl KeySession {
    /// Joins the table; returns when all its processes have.
    ///
    /// # Errors
    /// [`KeyError::Table`], [`KeyError::Port`], [`KeyError::NotJoined`].
    pub fn connect(config: &KeyConfig) -> Result<Self, KeyError> {
        let local = config.processes.get(usize::from(config.me));
        let local = local.ok_or(KeyError::Table(TableError::Addresses))?;
        let life = getrandom::u64()
            .map_err(|error| KeyError::System { what: "a life", cause: error.to_string() })?;
        config.table.check()?;
        let rows = Arc::new(Rows::new(&config.table));
        let addrs: Vec<UdpAddr> = config.processes.iter().map(|addr| (*addr).into()).collect();
        let nanos = |span: Duration| Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        let process = ProcessConfig {
            table: config.table,
            me: config.me,
            home: config.home.into(),
            processes: &addrs,
            limits: config.limits,
            resend_min: nanos(config.resend.0),
            resend_max: nanos(config.resend.1),
            beat: nanos(config.beat),
        };
        let store = SharedRows(Arc::clone(&rows));
        let engine = Process::new(&process, store, life.max(1), Nanos(0))?;
        let socket = UdpSocket::bind(local).map_err(|error| KeyError::Port(Arc::new(error)))?;
        let (processes, on_loss) = (config.processes.clone(), config.on_loss.clone());
        let start = Instant::now();
        let driver = Driver::new(engine, socket, config.home, processes, on_loss, start);
        let driver = Arc::new(driver);
        let reading = Arc::clone(&driver);
        let thread = thread::Builder::new()
            .name("weft-keys".to_owned())
            .spawn(move || reading.run())
            .map_err(|error| KeyError::System { what: "a thread", cause: error.to_string() })?;
        let thread = Mutex::new(Some(thread));
        let reader = Arc::new(Reader { driver: Arc::clone(&driver), thread });
        let (table, timeout) = (config.table, config.timeout);
        let session = Self { table, rows, driver, timeout, reader };
        session.wait_for_all(start + config.connect_timeout, config.connect_timeout)?;
        Ok(session)
    }

    fn wait_for_all(&self, end: Instant, timeout: Duration) -> Result<(), KeyError> {
        loop {
            let locked = self.driver.lock();
            if let Some(fault) = &locked.fault {
                return Err(fault.clone());
            }
            if locked.engine.presence() == Presence::Present {
                return Ok(());
            }
            drop(locked);
            if Instant::now() >= end {
                return Err(KeyError::NotJoined(timeout));
            }
            thread::sleep(JOIN_POLL);
        }
    }

    /// Pulls rows into `values`, in the order of `keys`.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn pull(&self, keys: &[u64], values: &mut [f32]) -> Result<(), KeyError> {
        self.check_elements(keys, values.len())?;
        let row_len = usize::from(self.table.row_len);
        let mut elsewhere = Vec::new();
        for (place, (key, value)) in keys.iter().zip(values.chunks_exact_mut(row_len)).enumerate() {
            let index = self.index(*key)?;
            if !self.rows.with_held(index, |row| value.copy_from_slice(row)) {
                elsewhere.push(place);
            }
        }
        if elsewhere.is_empty() {
            return Ok(());
        }
        let asked: Vec<u64> = elsewhere.iter().map(|place| keys[*place]).collect();
        let ticket = self.start(&asked, Call::Pull)?;
        ticket.wait_with(|rows| {
            for (place, row) in elsewhere.iter().zip(rows.chunks_exact(row_len)) {
                values[place * row_len..][..row_len].copy_from_slice(row);
            }
        })
    }

    /// Pulls a row if it is here; false if it is not.
    ///
    /// # Errors
    /// [`KeyError::Call`], [`KeyError::Elements`].
    pub fn pull_if_local(&self, key: u64, value: &mut [f32]) -> Result<bool, KeyError> {
        self.check_elements(&[key], value.len())?;
        Ok(self.rows.with_held(self.index(key)?, |row| value.copy_from_slice(row)))
    }

    /// Adds terms to rows.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn push(&self, keys: &[u64], terms: &[f32]) -> Result<(), KeyError> {
        self.start_push(keys, terms)?.wait_with(|_| {})
    }

    /// Sets rows.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn set(&self, keys: &[u64], values: &[f32]) -> Result<(), KeyError> {
        self.start_set(keys, values)?.wait_with(|_| {})
    }

    /// Has rows move to this process; returns when all are here, or were.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn localize(&self, keys: &[u64]) -> Result<(), KeyError> {
        self.start_localize(keys)?.wait_with(|_| {})
    }

    /// Begins [`KeySession::pull`].
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn start_pull(&self, keys: &[u64]) -> Result<Ticket, KeyError> {
        self.start(keys, Call::Pull)
    }

    /// Begins [`KeySession::push`].
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn start_push(&self, keys: &[u64], terms: &[f32]) -> Result<Ticket, KeyError> {
        self.check_elements(keys, terms.len())?;
        self.start(keys, Call::Push(terms))
    }

    /// Begins [`KeySession::set`].
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn start_set(&self, keys: &[u64], values: &[f32]) -> Result<Ticket, KeyError> {
        self.check_elements(keys, values.len())?;
        self.start(keys, Call::Set(values))
    }

    /// Begins [`KeySession::localize`].
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn start_localize(&self, keys: &[u64]) -> Result<Ticket, KeyError> {
        self.start(keys, Call::Localize)
    }

    /// A row as it is here, for a checkpoint; nothing if it is elsewhere.
    ///
    /// # Errors
    /// [`KeyError::Call`].
    pub fn kept_row(&self, key: u64) -> Result<Option<KeptRow>, KeyError> {
        Ok(self.rows.with(self.index(key)?, |slot| {
            let row = || KeptRow { value: slot.value.to_vec(), lasts: slot.lasts.to_vec() };
            slot.is_held().then(row)
        }))
    }

    /// What happened to this process.
    #[must_use]
    pub fn statistics(&self) -> KeyStatistics {
        KeyStatistics { engine: self.driver.lock().engine.stats().clone() }
    }

    /// Leaves the table. Clones are of no use any more. What others ask of this process afterwards
    /// is not answered: they find it dead.
    pub fn close(self) {
        self.reader.end();
    }

    fn index(&self, key: u64) -> Result<u32, KeyError> {
        self.table.index(key).ok_or(KeyError::Call(CallError::UnknownKey(key)))
    }

    fn check_elements(&self, keys: &[u64], given: usize) -> Result<(), KeyError> {
        let row_len = self.table.row_len;
        if keys.len() * usize::from(row_len) == given {
            return Ok(());
        }
        Err(KeyError::Elements { given, keys: keys.len(), row_len })
    }

    /// Runs a call where the rows are here, and sends the rest.
    fn start(&self, keys: &[u64], call: Call<'_>) -> Result<Ticket, KeyError> {
        for key in keys {
            self.index(*key)?;
        }
        let row_len = usize::from(self.table.row_len);
        let is_pull = matches!(call, Call::Pull);
        let mut values = if is_pull { vec![0.0; keys.len() * row_len] } else { Vec::new() };
        let mut elsewhere = Vec::new();
        for (place, key) in keys.iter().enumerate() {
            let index = self.index(*key)?;
            let at = place * row_len;
            let is_done = self.rows.with_held(index, |row| match call {
                Call::Pull => values[at..at + row_len].copy_from_slice(row),
                Call::Push(terms) => {
                    let pairs = row.iter_mut().zip(&terms[at..at + row_len]);
                    pairs.for_each(|(element, term)| *element += term);
                }
                Call::Set(values) => row.copy_from_slice(&values[at..at + row_len]),
                Call::Localize => {}
            });
            if !is_done {
                elsewhere.push(place);
            }
        }
        let first_key = elsewhere.first().map_or(0, |place| keys[*place]);
        let mut locked = self.driver.lock();
        if let (Some(fault), false) = (&locked.fault, elsewhere.is_empty()) {
            return Err(fault.clone());
        }
        let (ticket, number) =
            locked.tickets.begin(first_key, elsewhere.len(), values, self.timeout);
        for place in elsewhere {
            let op = match call {
                Call::Pull => Some(Op::Pull),
                Call::Push(terms) => Some(Op::Add(&terms[place * row_len..][..row_len])),
                Call::Set(values) => Some(Op::Set(&values[place * row_len..][..row_len])),
                Call::Localize => None,
            };
            let name = u64::from(number) << 32 | place as u64;
            locked = self.call_one(locked, keys[place], op, name)?;
        }
        let now = self.driver.now();
        self.driver.with_engine(&mut locked, |engine, wire| engine.flush(now, wire));
        drop(locked);
        Ok(ticket)
    }

    /// Gives one key of a call to the engine; waits while that is full.
    fn call_one<'a>(
        &'a self,
        mut locked: std::sync::MutexGuard<'a, Locked>,
        key: u64,
        op: Option<Op<'_>>,
        name: u64,
    ) -> Result<std::sync::MutexGuard<'a, Locked>, KeyError> {
        let end = Instant::now() + self.timeout;
        loop {
            let now = self.driver.now();
            let result = self.driver.with_engine(&mut locked, |engine, wire| {
                let result = match op {
                    Some(op) => engine.call(key, op, name, wire),
                    None => engine.localize(key, name, wire),
                };
                if result.is_err() {
                    engine.flush(now, wire);
                }
                result
            });
            match result {
                Ok(()) => return Ok(locked),
                Err(CallError::Full) if Instant::now() < end => {}
                Err(CallError::Full) => {
                    return Err(KeyError::Silent { key, timeout: self.timeout });
                }
                Err(error) => return Err(error.into()),
            }
            drop(locked);
            thread::sleep(FULL_PAUSE);
            locked = self.driver.lock();
            if let Some(fault) = &locked.fault {
                return Err(fault.clone());
            }
        }
    }
}

impl Reader {
    fn end(&self) {
        self.driver.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It ends within one pause of its socket.
            let _panicked = thread.join();
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.end();
    }
}

const JOIN_POLL: Duration = Duration::from_millis(1);
/// Until something that waits is done, maybe.
const FULL_PAUSE: Duration = Duration::from_micros(50);
