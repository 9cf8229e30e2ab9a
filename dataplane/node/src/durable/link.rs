//! Between a server's lane and the writer: bounded queues and a fixed number of buffers, so that
//! the lane neither waits nor allocates. When all buffers are on their way, decisions wait and that
//! is counted (I8).

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use weft_engine::role::model::journal::record_len_max;
use weft_engine::role::server::Server;

use super::Stored;
use super::writer::{Parcel, Writer, start_thread};
use crate::error::NodeError;
use crate::record::Notes;

/// Keeps what an engine must not tell before it is kept. Called by the lane between two breaths.
pub trait Keeper<E> {
    /// Takes records, and says what has become durable; notes both.
    fn exchange(&mut self, engine: &mut E, notes: &mut Notes<'_>);

    /// True while something may become durable.
    fn is_waiting(&self) -> bool;

    /// The lane has ended; its counters are taken next.
    fn end(&mut self, _engine: &mut E) {}
}

/// Keeps nothing.
impl<E> Keeper<E> for () {
    fn exchange(&mut self, _engine: &mut E, _notes: &mut Notes<'_>) {}

    fn is_waiting(&self) -> bool {
        false
    }
}

/// The lane's end of the way to the disk.
#[derive(Debug)]
pub struct JournalLink {
    parcels: Option<Sender<Parcel>>,
    done: Receiver<Parcel>,
    free: Vec<Vec<u8>>,
    buffers: usize,
    thread: Option<JoinHandle<Result<(), NodeError>>>,
}

impl JournalLink {
    /// Starts the writer; `None` when no job keeps anything. `stop` is set when it fails.
    ///
    /// # Errors
    /// [`NodeError::State`].
    pub fn start(stored: Stored, stop: Arc<AtomicBool>) -> Result<Option<Self>, NodeError> {
        let lens = stored.jobs.iter().map(|job| record_len_max(&job.config.model));
        let Some(len) = lens.max() else { return Ok(None) };
        let buffers = (BUFFERS_BYTES_MAX / len).clamp(BUFFERS_MIN, BUFFERS_MAX);
        let (parcels, to_write) = bounded(buffers);
        let (written, done) = bounded(buffers);
        let writer = Writer::new(stored.jobs, start_thread);
        let work = move || {
            let result = writer.run(&to_write, &written);
            if result.is_err() {
                // What cannot be kept cannot be told: the node ends with the reason.
                stop.store(true, Ordering::Relaxed);
            }
            result
        };
        let thread = std::thread::Builder::new().name("weft-journal".to_owned()).spawn(work);
        let thread = thread.map_err(|source| NodeError::Thread { lane: 0, source })?;
        let free = std::iter::repeat_with(|| Vec::with_capacity(len)).take(buffers).collect();
        Ok(Some(Self { parcels: Some(parcels), done, free, buffers, thread: Some(thread) }))
    }

    /// Waits, for a bounded time, until everything is durable that the engine has decided; ends the
    /// writer.
    ///
    /// # Errors
    /// Why the writer has failed.
    pub fn finish(mut self, server: &mut Server) -> Result<(), NodeError> {
        let until = Instant::now() + FINISH_TIMEOUT;
        loop {
            self.exchange(server, &mut Notes::none());
            let is_over = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            if !server.awaits_journal() || is_over || Instant::now() >= until {
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        self.parcels = None;
        let thread = self.thread.take().expect("it is joined once");
        thread.join().unwrap_or_else(|_| {
            Err(NodeError::Environment("the journal's thread died; see above".to_owned()))
        })
    }
}

impl Keeper<Server> for JournalLink {
    fn exchange(&mut self, server: &mut Server, notes: &mut Notes<'_>) {
        while let Ok(parcel) = self.done.try_recv() {
            if parcel.is_durable {
                notes.durable(parcel.job, parcel.position);
                server.handle_durable(parcel.job, parcel.position);
            }
            self.free.push(parcel.record);
        }
        let Some(parcels) = &self.parcels else { return };
        while let Some(mut record) = self.free.pop() {
            let Some((job, position)) = server.poll_journal(&mut record) else {
                self.free.push(record);
                return;
            };
            notes.journal(job, position, &record);
            // There are as many places as buffers; a writer that is gone has set the stop flag.
            if parcels.try_send(Parcel { job, position, record, is_durable: false }).is_err() {
                return;
            }
        }
        notes.journal_full();
        server.handle_journal_full();
    }

    fn is_waiting(&self) -> bool {
        self.free.len() < self.buffers
    }
}

impl<E, K: Keeper<E>> Keeper<E> for Option<K> {
    fn exchange(&mut self, engine: &mut E, notes: &mut Notes<'_>) {
        if let Some(keeper) = self {
            keeper.exchange(engine, notes);
        }
    }

    fn is_waiting(&self) -> bool {
        self.as_ref().is_some_and(Keeper::is_waiting)
    }

    fn end(&mut self, engine: &mut E) {
        if let Some(keeper) = self {
            keeper.end(engine);
        }
    }
}

/// Records that may be on their way, and the memory that they may take.
const BUFFERS_MAX: usize = 32;
const BUFFERS_MIN: usize = 2;
const BUFFERS_BYTES_MAX: usize = 64 << 20;
/// How long an ending node waits for its disk.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);
