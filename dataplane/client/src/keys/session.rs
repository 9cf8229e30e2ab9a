//! A process of a table: what its worker threads call.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::bounded;
use weft_engine::role::keys::{CallError, Op, Process, ProcessStats, TableConfig};
use weft_io::Port;
use weft_wire::Nanos;
use weft_wire::frame::UdpAddr;

use super::KeyError;
use super::calls::{Calls, KeyTicket, Pending};
use super::capture::Capture;
use super::config::KeyConfig;
use super::driver::Driver;
use super::latency::{KeyLatencies, Latencies, Timed};
use super::shared::{Engine, Shared};
use super::store::SharedStore;
use crate::port::WorkerPort;

/// A process of a table of rows; its worker threads share it by reference. Rows that are here when
/// it is dropped are lost with it: drop it when all processes are done.
pub struct KeySession {
    pub(super) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for KeySession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySession").field("table", &self.shared.table).finish_non_exhaustive()
    }
}

/// Counters of a process.
#[derive(Clone, Debug)]
pub struct KeyStatistics {
    /// Operations that ran without a message, on rows or copies that were here, by key.
    pub local: u64,
    /// How long operations took.
    pub latencies: KeyLatencies,
    /// What the engine counted.
    pub process: ProcessStats,
}

impl KeyStatistics {
    /// The share of operations that ran on a row that was here, 0 to 1; 1 of none.
    #[must_use]
    pub fn local_share(&self) -> f64 {
        let all = self.local + self.process.remote;
        if all == 0 { 1.0 } else { self.local as f64 / all as f64 }
    }
}

/// What is called, with the values of all keys.
#[derive(Clone, Copy)]
pub(super) enum Wish<'a> {
    Pull,
    Push(&'a [f32]),
    Set(&'a [f32]),
    Localize,
}

impl Wish<'_> {
    /// What it counts as, here and elsewhere.
    pub(super) fn timed(self) -> (Timed, Timed) {
        match self {
            Self::Pull => (Timed::PullLocal, Timed::PullRemote),
            Self::Push(_) | Self::Set(_) => (Timed::PushLocal, Timed::PushRemote),
            Self::Localize => (Timed::Localize, Timed::Localize),
        }
    }
}

impl KeySession {
    /// Joins the table over a UDP socket at this process's address, or over its interface
    /// ([`KeyConfig::io`]). Returns when all processes have joined.
    ///
    /// # Errors
    /// [`KeyError`], within `connect_timeout`.
    pub fn connect(config: &KeyConfig) -> Result<Self, KeyError> {
        config.check()?;
        Self::over(WorkerPort::open_to_many(&config.of_port())?, config)
    }

    /// Joins the table over a port of the caller's.
    ///
    /// # Errors
    /// As [`KeySession::connect`].
    pub fn over<P: Port + Send + 'static>(
        mut port: P,
        config: &KeyConfig,
    ) -> Result<Self, KeyError> {
        let table = config.check()?;
        let life = match config.seed {
            Some(seed) => seed,
            None => getrandom::u64().map_err(KeyError::Random)?,
        };
        let addrs: Vec<UdpAddr> = config.processes.iter().map(|addr| (*addr).into()).collect();
        let store = SharedStore::new(&table, config.mode.is_fast());
        let of_process = config.of_process(table, &addrs);
        let process = Process::new(&of_process, store.clone(), life.max(1), Nanos(0));
        let process = process.map_err(KeyError::Table)?;
        let latencies = Arc::new(Latencies::new());
        let calls = Calls::new(Arc::clone(&latencies));
        let waker = port.waker();
        let is_woken = waker.is_some();
        let shared = Arc::new(Shared {
            table,
            me: config.me,
            read: Mutex::new(None),
            is_static: config.mode.is_static(),
            clock: AtomicU32::new(process.clock()),
            store,
            engine: Mutex::new(Engine {
                process,
                calls,
                waiting_count: 0,
                capture: Capture::default(),
                restored: BTreeSet::new(),
            }),
            latencies,
            room: Condvar::new(),
            is_called: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            waker,
            stop: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            origin: Instant::now(),
            call_timeout: config.call_timeout,
        });
        let (ready, is_ready) = bounded(1);
        let (seen, given) = (Arc::clone(&shared), config.clone());
        let thread = std::thread::Builder::new()
            .name(format!("weft-keys-{}", config.me))
            .spawn(move || Driver::new(port, &given, life, is_woken, ready).run(&seen))
            .map_err(|error| KeyError::Thread(Arc::new(error)))?;
        let session = Self { shared, thread: Some(thread) };
        match is_ready.recv_timeout(config.connect_timeout) {
            Ok(()) => Ok(session),
            Err(_) => {
                let (home, waited) = (config.home, config.connect_timeout);
                let calls = &session.shared.lock().calls;
                let failure = calls.failure().cloned();
                Err(failure.unwrap_or_else(|| calls.explain(KeyError::NoHome { home, waited })))
            }
        }
    }

    /// Copies the rows of these keys into `values`, one after the other.
    ///
    /// # Errors
    /// [`KeyError`], within `call_timeout`.
    pub fn pull(&self, keys: &[u64], values: &mut [f32]) -> Result<(), KeyError> {
        self.check_len(keys, values.len())?;
        let row_len = usize::from(self.shared.table.row_len);
        let rows = values.chunks_exact_mut(row_len);
        let mut far = Vec::new();
        for ((position, key), room) in keys.iter().enumerate().zip(rows) {
            if !self.pull_if_local(*key, room)? {
                far.push(position);
            }
        }
        if far.is_empty() {
            return Ok(());
        }
        let found = self.submit(keys, &far, Wish::Pull)?.wait(self.shared.call_timeout)?;
        for (position, row) in far.iter().zip(found.chunks_exact(row_len)) {
            values[position * row_len..][..row_len].copy_from_slice(row);
        }
        Ok(())
    }

    /// Copies a row if it, or a copy that is new enough, is here; false if not. In a classic table
    /// it is never: every operation is a frame.
    ///
    /// # Errors
    /// [`CallError::UnknownKey`], a wrong length, or why the session is over.
    #[inline]
    pub fn pull_if_local(&self, key: u64, value: &mut [f32]) -> Result<bool, KeyError> {
        self.check_len(&[key], value.len())?;
        let index = self.index(key)?;
        let Shared { latencies, store, .. } = &*self.shared;
        let clock = self.shared.clock.load(Ordering::Relaxed);
        let copy = || store.with_readable(index, clock, |row| value.copy_from_slice(row));
        Ok(latencies.time(Timed::PullLocal, copy).is_some())
    }

    /// Adds to the rows of these keys. Each value counts exactly once.
    ///
    /// # Errors
    /// As [`KeySession::pull`].
    pub fn push(&self, keys: &[u64], values: &[f32]) -> Result<(), KeyError> {
        self.run(keys, Wish::Push(values))
    }

    /// Sets the rows of these keys.
    ///
    /// # Errors
    /// As [`KeySession::pull`].
    pub fn set(&self, keys: &[u64], values: &[f32]) -> Result<(), KeyError> {
        self.run(keys, Wish::Set(values))
    }

    /// Has the rows of these keys come here. They stay until another process asks for them. In a
    /// table whose rows do not move ([`KeyConfig::mode`]) this is done at once, and moves nothing.
    ///
    /// # Errors
    /// As [`KeySession::pull`].
    pub fn localize(&self, keys: &[u64]) -> Result<(), KeyError> {
        self.run(keys, Wish::Localize)
    }

    /// As [`KeySession::pull`], without waiting: the ticket has the values in the end.
    ///
    /// # Errors
    /// [`KeyError::Full`] within `call_timeout`, or what is wrong with the call.
    pub fn start_pull(&self, keys: &[u64]) -> Result<KeyTicket, KeyError> {
        let call = Pending::new(keys.to_vec(), self.shared.table.row_len, true);
        let clock = self.shared.clock.load(Ordering::Relaxed);
        let mut far = Vec::new();
        for (position, key) in keys.iter().enumerate() {
            let index = self.index(*key)?;
            let take = |row: &[f32]| call.complete(position, Some(row));
            if self.shared.store.with_readable(index, clock, take).is_none() {
                far.push(position);
            }
        }
        self.enter(&call, keys, &far, Wish::Pull, true)?;
        Ok(self.ticket(call))
    }

    /// As [`KeySession::push`], without waiting. What one thread calls for one key happens in the
    /// order of its calls, unless [`KeyConfig::in_flight`] is above 1: then what is called while
    /// another ticket is open may come before it.
    ///
    /// # Errors
    /// As [`KeySession::start_pull`].
    pub fn start_push(&self, keys: &[u64], values: &[f32]) -> Result<KeyTicket, KeyError> {
        self.start(keys, Wish::Push(values))
    }

    /// As [`KeySession::set`], without waiting.
    ///
    /// # Errors
    /// As [`KeySession::start_pull`].
    pub fn start_set(&self, keys: &[u64], values: &[f32]) -> Result<KeyTicket, KeyError> {
        self.start(keys, Wish::Set(values))
    }

    /// As [`KeySession::localize`], without waiting.
    ///
    /// # Errors
    /// As [`KeySession::start_pull`].
    pub fn start_localize(&self, keys: &[u64]) -> Result<KeyTicket, KeyError> {
        self.start(keys, Wish::Localize)
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &TableConfig {
        &self.shared.table
    }

    /// What has happened.
    #[must_use]
    pub fn statistics(&self) -> KeyStatistics {
        let process = self.shared.lock().process.stats().clone();
        KeyStatistics {
            local: self.shared.store.local_count() + process.local + process.copied,
            latencies: self.shared.latencies.read(),
            process,
        }
    }

    fn run(&self, keys: &[u64], wish: Wish<'_>) -> Result<(), KeyError> {
        let far = self.run_local(keys, wish)?;
        if far.is_empty() {
            return Ok(());
        }
        self.submit(keys, &far, wish)?.wait(self.shared.call_timeout).map(drop)
    }

    fn start(&self, keys: &[u64], wish: Wish<'_>) -> Result<KeyTicket, KeyError> {
        let far = self.run_local(keys, wish)?;
        Ok(self.ticket(self.submit(keys, &far, wish)?))
    }

    fn ticket(&self, call: Arc<Pending>) -> KeyTicket {
        KeyTicket { call, timeout: self.shared.call_timeout }
    }

    /// Runs what can run here and now; returns which keys are elsewhere.
    fn run_local(&self, keys: &[u64], wish: Wish<'_>) -> Result<Vec<usize>, KeyError> {
        if let Wish::Push(values) | Wish::Set(values) = wish {
            self.check_len(keys, values.len())?;
        }
        let is_idle = matches!(wish, Wish::Localize) && self.shared.is_static;
        // All or nothing of a call that cannot be.
        for key in keys {
            self.index(*key)?;
        }
        let mut far = Vec::new();
        if is_idle {
            return Ok(far);
        }
        for (position, key) in keys.iter().enumerate() {
            let index = self.index(*key)?;
            let op = self.op(wish, position);
            let work = |row: &mut [f32]| match op {
                Op::Set(value) => row.copy_from_slice(value),
                Op::Add(value) => {
                    row.iter_mut().zip(value).for_each(|(element, term)| *element += term);
                }
                Op::Pull => {}
            };
            let Shared { latencies, store, .. } = &*self.shared;
            let is_here = match wish {
                Wish::Localize => store.is_held(index),
                _ => latencies.time(wish.timed().0, || store.with_held(index, work)).is_some(),
            };
            if !is_here {
                far.push(position);
            }
        }
        Ok(far)
    }

    pub(super) fn op<'a>(&self, wish: Wish<'a>, position: usize) -> Op<'a> {
        let row_len = usize::from(self.shared.table.row_len);
        let row = |values: &'a [f32]| &values[position * row_len..][..row_len];
        match wish {
            Wish::Pull | Wish::Localize => Op::Pull,
            Wish::Push(values) => Op::Add(row(values)),
            Wish::Set(values) => Op::Set(row(values)),
        }
    }

    #[inline]
    fn index(&self, key: u64) -> Result<u32, KeyError> {
        if self.shared.is_over.load(Ordering::Relaxed) {
            return Err(self.failure());
        }
        self.shared.table.index(key).ok_or(KeyError::Call(CallError::UnknownKey(key)))
    }

    #[cold]
    fn failure(&self) -> KeyError {
        let failure = self.shared.lock().calls.failure().cloned();
        failure.unwrap_or(KeyError::Call(CallError::Lost))
    }

    /// One key's values are as long as a row, or that is the engine's error; several keys' are as
    /// long as all their rows.
    #[inline]
    fn check_len(&self, keys: &[u64], given: usize) -> Result<(), KeyError> {
        let row_len = self.shared.table.row_len;
        if given == keys.len() * usize::from(row_len) {
            return Ok(());
        }
        Err(match keys.len() {
            1 => KeyError::Call(CallError::RowLen { given, row_len }),
            keys => KeyError::Values { given, keys, row_len },
        })
    }
}

impl Drop for KeySession {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
