//! Keeps a table while it is used, and has rows come back from what was kept.
//!
//! A round has two phases. In the first a process goes through all keys, and keeps the rows that
//! are here and its copies of those that are on their way; from its beginning until all processes
//! are through, a row that comes is kept as well. So whatever moves meanwhile, each row is kept by
//! somebody: at the moment in which the last process is through it is where it was seen, or came
//! after that process began, or is on its way from one that has kept it. It is no cut through the
//! table: two rows are as they were at two moments of the round, and each by itself is as it was,
//! with the numbers of the pushes that are in it.

use std::path::Path;
use std::time::{Duration, Instant};

use weft_engine::role::keys::Slot;
use weft_wire::Members;
use weft_wire::keys::Number;

use super::KeyError;
use super::capture::Capture;
use super::part::{KeptRow, Part, Phase};
use super::parts::Parts;
use super::session::KeySession;

impl KeySession {
    /// Keeps this process's part of round `round` in a folder that all processes see; each of them
    /// calls this for the same rounds, which grow. Other threads may use the table meanwhile.
    /// Returns when the round is whole, and then removes what this process had of earlier ones.
    ///
    /// # Errors
    /// [`KeyError::Checkpoint`], [`KeyError::RoundOpen`] after `call_timeout` or when a process
    /// died on the way, or why the session is over. What was whole before still is.
    pub fn checkpoint(&self, folder: &Path, round: u64) -> Result<(), KeyError> {
        let (life, living, run) = {
            let mut engine = self.shared.lock();
            if let Some(failure) = engine.calls.failure() {
                return Err(failure.clone());
            }
            engine.capture = Capture::open();
            (engine.process.life(), engine.process.living(), engine.process.run())
        };
        let parts = Parts::new(folder, *self.table(), run);
        let kept = self.keep(&parts, round, life, living);
        self.shared.lock().capture = Capture::default();
        kept
    }

    fn keep(&self, parts: &Parts, round: u64, life: u16, living: Members) -> Result<(), KeyError> {
        let begun = Instant::now();
        let process = self.shared.me;
        let (table, run) = (*self.table(), parts.run());
        let part = |phase, rows| Part { table, round, phase, process, run, living, rows };
        parts.write(&part(Phase::Swept, self.sweep()))?;
        self.wait_for_all(parts, round, Phase::Swept, (life, living), begun)?;
        let came = self.shared.lock().capture.rows();
        parts.write(&part(Phase::Came, came))?;
        self.wait_for_all(parts, round, Phase::Came, (life, living), begun)?;
        parts.forget_before(round, process);
        Ok(())
    }

    /// Goes through all keys, some at a time, so that calls come between.
    fn sweep(&self) -> Vec<KeptRow> {
        let table = *self.table();
        let mut rows = Vec::new();
        for first in (0..table.key_count).step_by(KEYS_AT_A_TIME) {
            let mut engine = self.shared.lock();
            let end = first.saturating_add(u32::try_from(KEYS_AT_A_TIME).unwrap_or(u32::MAX));
            for key in (first..end.min(table.key_count)).map(|index| table.key(index)) {
                let mut keep = |epoch, is_copy, value: &[f32], lasts: &[Number]| {
                    let (value, lasts) = (value.to_vec(), lasts.to_vec());
                    rows.push(KeptRow { key, epoch, is_copy, lasts, value });
                };
                let held = engine.process.with_row(key, |slot: Slot<'_>| {
                    if slot.is_held() {
                        keep(*slot.epoch, false, slot.value, slot.lasts);
                    }
                    slot.is_held()
                });
                if held == Ok(false) {
                    engine.process.with_kept(key, |epoch, value, lasts| {
                        keep(epoch, true, value, lasts);
                    });
                }
            }
        }
        rows
    }

    fn wait_for_all(
        &self,
        parts: &Parts,
        round: u64,
        phase: Phase,
        (life, living): (u16, Members),
        begun: Instant,
    ) -> Result<(), KeyError> {
        while !parts.has_all(round, phase, living) {
            let waited = begun.elapsed();
            let engine = self.shared.lock();
            if let Some(failure) = engine.calls.failure() {
                return Err(failure.clone());
            }
            // A restart of the home begins a life as well, with the same processes.
            let is_other = engine.process.life() != life && engine.process.living() != living;
            drop(engine);
            if is_other || waited > self.shared.call_timeout {
                return Err(KeyError::RoundOpen { round, waited });
            }
            std::thread::sleep(LOOK_PERIOD);
        }
        Ok(())
    }

    /// Sets the rows that are here to what the newest whole round in a folder has of them, and
    /// returns that round's number; all processes do so before any of them uses the table. The
    /// round may be of another number of processes.
    ///
    /// # Errors
    /// [`KeyError::Checkpoint`], also when no round is whole, or when the round lacks a row.
    pub fn load(&self, folder: &Path) -> Result<u64, KeyError> {
        let round = Parts::new(folder, *self.table(), 0).newest()?;
        let table = *self.table();
        for key in (0..table.key_count).map(|index| table.key(index)) {
            let mut engine = self.shared.lock();
            let is_set = engine.process.with_row(key, |slot| {
                if !slot.is_held() {
                    return true;
                }
                let row = round.rows.get(&key);
                row.inspect(|row| slot.value.copy_from_slice(&row.value)).is_some()
            });
            if is_set == Ok(false) {
                return Err(KeyError::RowsLost { keys: vec![key] });
            }
        }
        Ok(round.number)
    }

    /// The keys whose rows came back from a checkpoint, in their order: what was pushed to them
    /// since is lost.
    #[must_use]
    pub fn restored(&self) -> Vec<u64> {
        self.shared.lock().restored.iter().copied().collect()
    }
}

/// Keys that are gone through in one turn of the engine's lock.
const KEYS_AT_A_TIME: usize = 64;
/// How often it is looked whether others have written their parts.
const LOOK_PERIOD: Duration = Duration::from_millis(2);
