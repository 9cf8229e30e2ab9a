//! What the worker threads of a session and its port's thread share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weft_engine::role::keys::{Process, TableConfig};
use weft_io::Waker;
use weft_wire::Nanos;

use super::KeyError;
use super::calls::Calls;
use super::capture::Capture;
use super::config::nanos;
use super::latency::Latencies;
use super::parts::Round;
use super::store::SharedStore;

/// What the worker threads and the port's thread share.
pub(super) struct Shared {
    pub(super) table: TableConfig,
    pub(super) me: u8,
    /// A round that was read for rows to come back from, until they have.
    pub(super) read: Mutex<Option<Result<Round, KeyError>>>,
    /// Rows stay where they are.
    pub(super) is_static: bool,
    /// The process's clock.
    pub(super) clock: AtomicU32,
    pub(super) store: SharedStore,
    pub(super) engine: Mutex<Engine>,
    pub(super) latencies: Arc<Latencies>,
    /// Something may have become free.
    pub(super) room: Condvar,
    /// A call waits to be sent.
    pub(super) is_called: AtomicBool,
    /// The port's thread sleeps, or is about to.
    pub(super) is_asleep: AtomicBool,
    pub(super) waker: Option<Waker>,
    pub(super) stop: AtomicBool,
    /// No call is taken any more.
    pub(super) is_over: AtomicBool,
    pub(super) origin: Instant,
    pub(super) call_timeout: Duration,
}

/// What one thread at a time uses.
pub(super) struct Engine {
    pub(super) process: Process<SharedStore>,
    pub(super) calls: Calls,
    /// Callers that wait for room.
    pub(super) waiting_count: usize,
    pub(super) capture: Capture,
    /// Keys whose rows came back from a checkpoint.
    pub(super) restored: BTreeSet<u64>,
}

impl Shared {
    pub(super) fn now(&self) -> Nanos {
        nanos(self.origin.elapsed())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all calls, and those to come.
    pub(super) fn fail(&self, engine: &mut Engine, failure: &KeyError) {
        self.is_over.store(true, Ordering::Release);
        engine.calls.fail(failure);
        self.room.notify_all();
    }

    /// Has the port's thread send what was called.
    pub(super) fn ring(&self) {
        self.is_called.store(true, Ordering::SeqCst);
        if self.is_asleep.swap(false, Ordering::SeqCst)
            && let Some(waker) = &self.waker
        {
            waker.wake();
        }
    }
}
