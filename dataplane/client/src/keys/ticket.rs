//! Calls under way: who waits for them, and what they bring.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::KeyError;

/// A call under way. Dropping it does not undo the call.
#[derive(Debug)]
#[must_use = "the call is done when `wait` returns"]
pub struct Ticket {
    state: Arc<State>,
    timeout: Duration,
    first_key: u64,
}

/// What all parts of a call share.
#[derive(Debug)]
struct State {
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Debug)]
struct Progress {
    /// Keys that are not done.
    left: usize,
    /// Of a pull, row by row.
    values: Vec<f32>,
    error: Option<KeyError>,
}

impl Ticket {
    /// Waits until all of it is done; returns the rows of a pull, in the order of its keys.
    ///
    /// # Errors
    /// [`KeyError::Silent`] when nothing came in time, [`KeyError::Lost`], [`KeyError::Closed`].
    pub fn wait(self) -> Result<Vec<f32>, KeyError> {
        self.wait_until_done()?;
        Ok(std::mem::take(&mut self.state.lock().values))
    }

    /// True once all of it is done, or never will be: then [`Ticket::wait`] returns at once.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let progress = self.state.lock();
        progress.left == 0 || progress.error.is_some()
    }

    /// Waits, and shows the rows of a pull.
    pub(super) fn wait_with(&self, show: impl FnOnce(&[f32])) -> Result<(), KeyError> {
        self.wait_until_done()?;
        show(&self.state.lock().values);
        Ok(())
    }

    fn wait_until_done(&self) -> Result<(), KeyError> {
        let end = Instant::now() + self.timeout;
        let mut progress = self.state.lock();
        loop {
            if progress.left == 0 {
                return Ok(());
            }
            if let Some(error) = &progress.error {
                return Err(error.clone());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(KeyError::Silent { key: self.first_key, timeout: self.timeout });
            }
            let waited = self.state.changed.wait_timeout(progress, left);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All calls under way, by number.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    slots: Vec<Option<Arc<State>>>,
    free: Vec<u32>,
}

impl Tickets {
    /// A ticket for a call with so many keys to be done, and its number.
    pub(super) fn begin(
        &mut self,
        first_key: u64,
        left: usize,
        values: Vec<f32>,
        timeout: Duration,
    ) -> (Ticket, u32) {
        let progress = Mutex::new(Progress { left, values, error: None });
        let state = Arc::new(State { progress, changed: Condvar::new() });
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer calls than memory has bytes")
        });
        if left > 0 {
            self.slots[number as usize] = Some(Arc::clone(&state));
        } else {
            self.free.push(number);
        }
        (Ticket { state, timeout, first_key }, number)
    }

    /// A key of a call is done; `value` is at this place among its rows.
    pub(super) fn done(&mut self, number: u32, place: u32, value: Option<&[f32]>) {
        let Some(Some(state)) = self.slots.get(number as usize) else { return };
        let mut progress = state.lock();
        if let Some(value) = value {
            let at = place as usize * value.len();
            if let Some(to) = progress.values.get_mut(at..at + value.len()) {
                to.copy_from_slice(value);
            }
        }
        progress.left = progress.left.saturating_sub(1);
        if progress.left == 0 {
            state.changed.notify_all();
            drop(progress);
            self.slots[number as usize] = None;
            self.free.push(number);
        }
    }

    /// Nothing of this is done any more.
    pub(super) fn fail_all(&mut self, error: &KeyError) {
        for state in self.slots.iter_mut().filter_map(Option::take) {
            state.lock().error = Some(error.clone());
            state.changed.notify_all();
        }
    }
}
