//! Keeps what a lane's engine met, so that it can meet it again: a recording.
//!
//! [`Recorded`] is the outermost port of a lane, outside faults and hand-over. It keeps each frame
//! as the engine got it, each frame that the engine offered, and a line for every breath in which
//! either happened (`log.rs`). Between breaths its owner adds commands and the like. Frames and
//! lines collect in memory of the lane; a thread writes them (`writer.rs`), so the lane never waits
//! for a disk.
//!
//! Invariants: nothing here disturbs the port; what is on disk ends at the end of a breath; files
//! and queues have a largest size, and at either the recording ends, not the node (I8). Without a
//! recorder each call is the wrapped port's and a branch.

mod log;
mod pcapng;
mod writer;

use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex};

use weft_wire::Nanos;

use crate::forward_port;
use crate::port::{Burst, Port};

pub use log::{Breath, Entry, LogError};
pub use pcapng::Direction;
use writer::Shared;
pub use writer::{RecordCounts, Recording, frames_name, log_name};

/// What an engine drew since it was asked last. Its text is ready to be logged.
#[derive(Debug, Default)]
pub struct DrawLog(Mutex<Vec<u8>>);

impl DrawLog {
    /// Notes what was drawn under a label.
    pub fn note(&self, label: impl std::fmt::Display, word: u64) {
        let Ok(mut text) = self.0.lock() else { return };
        Entry::Draw { label: &label.to_string(), word }.write(&mut text);
    }
}

/// Some breaths of a lane on their way to the disk.
#[derive(Debug, Default)]
struct Parcel {
    lane: usize,
    frames: Vec<u8>,
    frame_count: u64,
    log: Vec<u8>,
}

impl Parcel {
    fn is_empty(&self) -> bool {
        self.log.is_empty() && self.frames.is_empty()
    }

    fn clear(&mut self) {
        self.frames.clear();
        self.log.clear();
        self.frame_count = 0;
    }
}

/// Keeps what one lane meets.
#[derive(Debug)]
pub struct LaneRecorder {
    parcels: SyncSender<Parcel>,
    /// Memory of parcels that were written.
    free: Receiver<Parcel>,
    shared: Arc<Shared>,
    draws: Arc<DrawLog>,
    clock_origin: Nanos,
    parcel: Parcel,
    /// The present breath, until something else is noted.
    breath: Option<Breath>,
    /// Calls of the present breath that asked for a frame.
    asked: u32,
    /// When the oldest line of the parcel was noted.
    oldest: Nanos,
}

impl LaneRecorder {
    /// What is drawn is to be noted here.
    #[must_use]
    pub fn draws(&self) -> Arc<DrawLog> {
        Arc::clone(&self.draws)
    }

    /// Notes something that happened between two breaths.
    pub fn note(&mut self, entry: &Entry<'_>) {
        self.close_breath();
        entry.write(&mut self.parcel.log);
    }

    fn begin_breath(&mut self, now: Nanos) {
        self.close_breath();
        let is_due = now.since(self.oldest) >= PARCEL_AGE_MAX && !self.parcel.is_empty();
        if is_due || self.parcel.frames.len() + self.parcel.log.len() >= PARCEL_BYTES {
            self.hand_over(now);
        }
        if self.parcel.is_empty() {
            self.oldest = now;
        }
        self.breath = Some(Breath { now, ..Breath::default() });
        self.asked = 0;
    }

    /// Writes the present breath's line, unless nothing happened in it.
    fn close_breath(&mut self) {
        if let Ok(mut draws) = self.draws.0.lock()
            && !draws.is_empty()
        {
            self.parcel.log.append(&mut draws);
        }
        let Some(breath) = self.breath.take() else { return };
        if breath.is_effective() {
            Entry::Breath(breath).write(&mut self.parcel.log);
        }
    }

    fn hand_over(&mut self, now: Nanos) {
        let next = self.free.try_recv().unwrap_or_default();
        let mut parcel = std::mem::replace(&mut self.parcel, next);
        self.parcel.lane = parcel.lane;
        self.oldest = now;
        if self.shared.is_over() {
            parcel.clear();
            return;
        }
        if let Err(TrySendError::Full(_)) = self.parcels.try_send(parcel) {
            self.shared.end(Shared::SLOW);
        }
    }

    fn frame(&mut self, at: Nanos, direction: Direction, bytes: &[u8]) {
        let at = self.clock_origin.saturating_add(at);
        pcapng::write_packet(&mut self.parcel.frames, at, direction, bytes);
        self.parcel.frame_count += 1;
    }

    fn received<F: AsRef<[u8]>>(&mut self, now: Nanos, frames: &[F]) {
        for frame in frames {
            self.frame(now, Direction::In, frame.as_ref());
        }
        let Some(breath) = &mut self.breath else { return };
        breath.rx += u32::try_from(frames.len()).unwrap_or(u32::MAX);
    }

    fn offered<F: AsRef<[u8]>>(&mut self, now: Nanos, frames: &[F]) {
        for frame in frames {
            self.frame(now, Direction::Out, frame.as_ref());
        }
        let Some(breath) = &mut self.breath else { return };
        breath.tx += u32::try_from(frames.len()).unwrap_or(u32::MAX);
    }

    fn refused(&mut self, count: usize) {
        let Some(breath) = &mut self.breath else { return };
        breath.refused += u32::try_from(count).unwrap_or(u32::MAX);
    }

    /// Notes how a call that asked for a frame ended; `by_timer`: the engine asked by itself.
    fn asked(&mut self, is_given: bool, by_timer: bool) {
        let Some(breath) = &mut self.breath else { return };
        breath.timers += u32::from(by_timer);
        if !is_given {
            breath.nombuf.push(self.asked);
        }
        self.asked += 1;
    }
}

impl Drop for LaneRecorder {
    /// What was not handed over yet is still written.
    fn drop(&mut self) {
        self.close_breath();
        if !self.shared.is_over() {
            // The lane is at its end and may wait.
            let _ = self.parcels.send(std::mem::take(&mut self.parcel));
        }
    }
}

/// A port whose frames may be kept.
#[derive(Debug)]
pub struct Recorded<P: Port> {
    port: P,
    recorder: Option<Box<LaneRecorder>>,
    /// Of the recording that there is, or was.
    shared: Option<Arc<Shared>>,
    /// Runs in one piece are wanted; while frames are kept there are none.
    joins: bool,
}

impl<P: Port> Recorded<P> {
    /// Wraps a port; nothing is kept yet.
    pub fn new(port: P) -> Self {
        Self { port, recorder: None, shared: None, joins: false }
    }

    /// Begins to keep what comes from now on.
    pub fn record(&mut self, recorder: LaneRecorder) {
        self.port.join_runs(false);
        self.shared = Some(Arc::clone(&recorder.shared));
        self.recorder = Some(Box::new(recorder));
    }

    /// The wrapped port.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The recorder, if what happens is kept.
    pub fn recorder(&mut self) -> Option<&mut LaneRecorder> {
        self.recorder.as_deref_mut()
    }

    /// What the recording of all lanes holds, if there is or was one.
    #[must_use]
    pub fn record_counts(&self) -> Option<RecordCounts> {
        self.shared.as_ref().map(|shared| shared.counts())
    }

    /// Ends the recording of this lane.
    pub fn end_recording(&mut self) {
        self.recorder = None;
        self.port.join_runs(self.joins);
    }

    fn begin_breath(&mut self, now: Nanos) {
        let Some(recorder) = &mut self.recorder else { return };
        recorder.begin_breath(now);
        if recorder.shared.is_over() {
            self.end_recording();
        }
    }
}

impl<P: Port> Port for Recorded<P> {
    type Frame = P::Frame;

    #[inline]
    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<P::Frame>) -> usize {
        if self.recorder.is_none() {
            return self.port.rx_burst(now, rx);
        }
        self.begin_breath(now);
        let before = rx.len();
        let count = self.port.rx_burst(now, rx);
        if let Some(recorder) = &mut self.recorder {
            recorder.received(now, &rx[before..]);
        }
        count
    }

    #[inline]
    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
        let Some(recorder) = &mut self.recorder else { return self.port.tx_burst(now, tx) };
        recorder.offered(now, tx);
        let count = self.port.tx_burst(now, tx);
        recorder.refused(tx.len());
        count
    }

    #[inline]
    fn alloc(&mut self) -> Option<P::Frame> {
        let frame = self.port.alloc();
        if let Some(recorder) = &mut self.recorder {
            recorder.asked(frame.is_some(), true);
        }
        frame
    }

    #[inline]
    fn copy(&mut self, frame: &P::Frame, header_len: usize) -> Option<P::Frame> {
        let copy = self.port.copy(frame, header_len);
        if let Some(recorder) = &mut self.recorder {
            recorder.asked(copy.is_some(), false);
        }
        copy
    }

    fn join_runs(&mut self, is_on: bool) -> bool {
        self.joins = is_on;
        self.port.join_runs(is_on && self.recorder.is_none())
    }

    forward_port!(port: recycles, free, info, stats, carried, is_open, wait, waker);
    forward_port!(port: merges, multicast_base, hears, complaint);
}

/// A parcel goes to the disk when it has so many bytes, or is so old.
const PARCEL_BYTES: usize = 256 << 10;
const PARCEL_AGE_MAX: Nanos = Nanos(50_000_000);

#[cfg(test)]
mod tests;
