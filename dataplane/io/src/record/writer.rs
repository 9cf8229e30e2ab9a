//! The thread that writes a recording's files, and their largest size.
//!
//! Per lane `lane-N.pcapng` and `lane-N.log`. A parcel is written whole or not at all: the first
//! that has no room, or that the disk refuses, ends the recording; files are cut back to the parcel
//! before, and the log says why in its last line.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use weft_wire::Nanos;

use super::{DrawLog, Entry, LaneRecorder, Parcel, pcapng};
use crate::port::PortInfo;

/// The file of a lane's frames.
#[must_use]
pub fn frames_name(lane: usize) -> String {
    format!("lane-{lane}.pcapng")
}

/// The file of a lane's log.
#[must_use]
pub fn log_name(lane: usize) -> String {
    format!("lane-{lane}.log")
}

/// What lanes and writer know of a recording: what it holds, and whether it has ended before its
/// node, and why.
#[derive(Debug, Default)]
pub(super) struct Shared {
    over: AtomicU8,
    frames: AtomicU64,
    bytes: AtomicU64,
}

impl Shared {
    /// The largest size was reached.
    pub(super) const FULL: u8 = 1;
    /// The disk refused.
    pub(super) const DISK: u8 = 2;
    /// The disk was slower than the lanes.
    pub(super) const SLOW: u8 = 3;

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed) != 0
    }

    /// The first reason stays.
    pub(super) fn end(&self, reason: u8) {
        let _ = self.over.compare_exchange(0, reason, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Why, in one word; `None` while the recording goes on.
    fn reason(&self) -> Option<&'static str> {
        match self.over.load(Ordering::Relaxed) {
            Self::FULL => Some("full"),
            Self::DISK => Some("disk"),
            Self::SLOW => Some("slow"),
            _ => None,
        }
    }

    pub(super) fn counts(&self) -> RecordCounts {
        RecordCounts {
            frames: self.frames.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            ended: u64::from(self.is_over()),
        }
    }
}

/// What a recording holds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RecordCounts {
    /// Frames written.
    pub frames: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// 1 when it ended before its node.
    pub ended: u64,
}

/// A recording that is being made.
#[derive(Debug)]
pub struct Recording {
    parcels: SyncSender<Parcel>,
    /// What remains for each lane that was not asked for yet.
    lanes: Vec<Option<(SyncSender<Parcel>, Receiver<Parcel>)>>,
    shared: Arc<Shared>,
    clock_origin: Nanos,
    thread: JoinHandle<()>,
}

impl Recording {
    /// Creates the files of so many lanes in `directory`, which is there, and starts the writer.
    /// `clock_origin` is the Unix time of the origin of the lanes' clock. All files together have
    /// at most `bytes_max` bytes, of which `bytes_used` are taken. `warn` is told once when the
    /// recording ends before its node.
    ///
    /// # Errors
    /// What the disk says to the first bytes.
    pub fn start(
        directory: &Path,
        program: &str,
        lanes: &[PortInfo],
        clock_origin: Nanos,
        (bytes_used, bytes_max): (u64, u64),
        warn: impl FnOnce(&str) + Send + 'static,
    ) -> io::Result<Self> {
        let (parcels, to_write) = sync_channel(PARCELS_MAX);
        let shared = Arc::new(Shared::default());
        let mut files = Vec::new();
        let mut ways = Vec::new();
        for (lane, info) in lanes.iter().enumerate() {
            let mut head = Vec::new();
            pcapng::write_head(&mut head, program, &info.name, &info.driver);
            let mut frames = LaneFile::create(directory.join(frames_name(lane)))?;
            frames.append(&head)?;
            shared.bytes.fetch_add(head.len() as u64, Ordering::Relaxed);
            let log = LaneFile::create(directory.join(log_name(lane)))?;
            // As many as may be under way, so that giving back never waits.
            let (back, free) = sync_channel(PARCELS_MAX);
            files.push(LaneFiles { frames, log, back: back.clone() });
            ways.push(Some((back, free)));
        }
        shared.bytes.fetch_add(bytes_used, Ordering::Relaxed);
        let writer = Writer { files, shared: Arc::clone(&shared), bytes_max };
        let thread = std::thread::Builder::new()
            .name("weft-record".to_owned())
            .spawn(move || writer.run(&to_write, warn))?;
        Ok(Self { parcels, lanes: ways, shared, clock_origin, thread })
    }

    /// The recorder of a lane; `None` for a lane that has one or that there is not.
    pub fn lane(&mut self, lane: usize) -> Option<LaneRecorder> {
        let (_, free) = self.lanes.get_mut(lane)?.take()?;
        Some(LaneRecorder {
            parcels: self.parcels.clone(),
            free,
            shared: Arc::clone(&self.shared),
            draws: Arc::new(DrawLog::default()),
            clock_origin: self.clock_origin,
            parcel: Parcel { lane, ..Parcel::default() },
            breath: None,
            asked: 0,
            oldest: Nanos(0),
        })
    }

    /// What it holds.
    #[must_use]
    pub fn counts(&self) -> RecordCounts {
        self.shared.counts()
    }

    /// Completes the files. All lanes' recorders are gone by now, or their last breaths are lost.
    #[must_use]
    pub fn finish(self) -> RecordCounts {
        let Self { parcels, lanes, shared, thread, .. } = self;
        drop((parcels, lanes));
        // A writer that panicked has left files without an end, which says so.
        let _ = thread.join();
        shared.counts()
    }
}

/// A file, and how much of it is whole.
#[derive(Debug)]
struct LaneFile {
    file: File,
    len: u64,
}

impl LaneFile {
    fn create(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Self { file, len: 0 })
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Forgets what was written of an append that failed.
    fn cut_to(&mut self, len: u64) -> io::Result<()> {
        self.len = len;
        self.file.set_len(len)?;
        self.file.seek(SeekFrom::Start(len)).map(|_| ())
    }
}

#[derive(Debug)]
struct LaneFiles {
    frames: LaneFile,
    log: LaneFile,
    back: SyncSender<Parcel>,
}

#[derive(Debug)]
struct Writer {
    files: Vec<LaneFiles>,
    shared: Arc<Shared>,
    bytes_max: u64,
}

impl Writer {
    fn run(mut self, parcels: &Receiver<Parcel>, warn: impl FnOnce(&str)) {
        let mut warn = Some(warn);
        while let Ok(mut parcel) = parcels.recv() {
            // What is under way when a lane is too fast for the disk came before the gap.
            if self.shared.reason().is_none_or(|reason| reason == "slow")
                && let Err(reason) = self.write(&parcel)
            {
                self.shared.end(reason);
            }
            if let Some(reason) = self.shared.reason()
                && let Some(warn) = warn.take()
            {
                warn(reason);
            }
            parcel.clear();
            if let Some(files) = self.files.get(parcel.lane) {
                let _ = files.back.try_send(parcel);
            }
        }
        let reason = self.shared.reason().unwrap_or("stopped");
        let mut line = Vec::new();
        Entry::End { reason }.write(&mut line);
        for files in &mut self.files {
            let len = files.log.len;
            if files.log.append(&line).is_err() {
                // It has no end then, which says that it was cut off.
                let _ = files.log.cut_to(len);
            }
        }
    }

    fn write(&mut self, parcel: &Parcel) -> Result<(), u8> {
        let bytes = (parcel.frames.len() + parcel.log.len()) as u64;
        let held = self.shared.bytes.load(Ordering::Relaxed);
        if held.saturating_add(bytes).saturating_add(END_LEN_MAX) > self.bytes_max {
            return Err(Shared::FULL);
        }
        let Some(files) = self.files.get_mut(parcel.lane) else { return Ok(()) };
        let lens = (files.frames.len, files.log.len);
        let written =
            files.frames.append(&parcel.frames).and_then(|()| files.log.append(&parcel.log));
        if written.is_err() {
            let _ = files.frames.cut_to(lens.0);
            let _ = files.log.cut_to(lens.1);
            return Err(Shared::DISK);
        }
        self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.shared.frames.fetch_add(parcel.frame_count, Ordering::Relaxed);
        Ok(())
    }
}

/// Parcels that may be on their way: some 16 MiB.
const PARCELS_MAX: usize = 64;
/// Bytes of the last lines of all logs, for which there is always room.
const END_LEN_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk without space.
    fn full() -> LaneFile {
        let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        LaneFile { file, len: 0 }
    }

    #[test]
    fn a_disk_that_refuses_ends_the_recording_with_one_word_to_people() {
        let (back, free) = sync_channel(8);
        let files = LaneFiles { frames: full(), log: full(), back };
        let shared = Arc::new(Shared::default());
        let writer =
            Writer { files: vec![files], shared: Arc::clone(&shared), bytes_max: u64::MAX };
        let (parcels, to_write) = sync_channel(8);
        for _ in 0..3 {
            let log = b"journal_full\n".to_vec();
            parcels.send(Parcel { log, frames: vec![1], ..Parcel::default() }).unwrap();
        }
        drop(parcels);
        let mut told = Vec::new();
        writer.run(&to_write, |reason| told.push(reason.to_owned()));
        assert_eq!(told, ["disk"]);
        assert_eq!(shared.reason(), Some("disk"));
        assert_eq!(free.iter().count(), 3, "the memory comes back");
    }
}
