//! Calls that wait for others: what the engine knows them by, and what their tickets are worth.
//!
//! Invariants: a call's place is given to another only when the engine has told of all its keys; a
//! call that has failed stays so; whoever waits is told of every end.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weft_wire::Nanos;

use super::KeyError;
use super::latency::{Latencies, Timed};

/// Calls by the number that the engine has for them.
#[derive(Debug)]
pub(super) struct Calls {
    latencies: Arc<Latencies>,
    places: Vec<Place>,
    free: Vec<u32>,
    /// Why the session can take no more calls.
    failure: Option<KeyError>,
    /// What the port knew last that may keep answers away.
    complaint: Option<String>,
}

#[derive(Debug)]
struct Place {
    call: Option<Arc<Pending>>,
    /// Keys that the engine has not told of.
    left: u32,
    what: Timed,
    begun_at: Nanos,
}

/// The number of a key of a call.
pub(super) fn number(place: u32, position: u32) -> u64 {
    u64::from(place) << 32 | u64::from(position)
}

impl Calls {
    pub(super) fn new(latencies: Arc<Latencies>) -> Self {
        Self { latencies, places: Vec::new(), free: Vec::new(), failure: None, complaint: None }
    }

    /// Takes a call of so many keys, which begins now.
    pub(super) fn insert(
        &mut self,
        call: &Arc<Pending>,
        key_count: u32,
        what: Timed,
        begun_at: Nanos,
    ) -> Result<u32, KeyError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let entry = Place { call: Some(Arc::clone(call)), left: key_count, what, begun_at };
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = entry;
            return Ok(place);
        }
        let place = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        self.places.push(entry);
        Ok(place)
    }

    /// One key is done.
    pub(super) fn complete(&mut self, number: u64, value: Option<&[f32]>, now: Nanos) {
        let [place, position] = [number >> 32, number & u64::from(u32::MAX)]
            .map(|half| usize::try_from(half).unwrap_or(usize::MAX));
        if let Some(Place { call: Some(call), what, begun_at, .. }) = self.places.get(place) {
            self.latencies.count(*what, now.since(*begun_at));
            call.complete(position, value);
        }
        self.count_down(place, 1);
    }

    /// The engine was not told of the last `count` keys of a call.
    pub(super) fn withdraw(&mut self, place: u32, count: u32) {
        self.count_down(place as usize, count);
    }

    fn count_down(&mut self, place: usize, count: u32) {
        let Some(entry) = self.places.get_mut(place) else { return };
        entry.left = entry.left.saturating_sub(count);
        if entry.left == 0 && entry.call.take().is_some() {
            self.free.push(u32::try_from(place).unwrap_or(u32::MAX));
        }
    }

    /// All that wait end so, and what comes later.
    pub(super) fn fail(&mut self, failure: &KeyError) {
        self.failure = Some(failure.clone());
        for call in self.places.iter().filter_map(|place| place.call.as_ref()) {
            call.fail(failure);
        }
    }

    /// What the port knows now that may keep answers away: calls that get none say it.
    pub(super) fn complain(&mut self, complaint: Option<String>) {
        if complaint.is_none() && self.complaint.is_none() {
            return;
        }
        for call in self.places.iter().filter_map(|place| place.call.as_ref()) {
            call.lock().complaint.clone_from(&complaint);
        }
        self.complaint = complaint;
    }

    /// A failure for want of answers, with what the port has said.
    pub(super) fn explain(&self, failure: KeyError) -> KeyError {
        with(failure, self.complaint.clone())
    }

    /// Why no call is taken any more.
    pub(super) fn failure(&self) -> Option<&KeyError> {
        self.failure.as_ref()
    }
}

fn with(failure: KeyError, complaint: Option<String>) -> KeyError {
    match complaint {
        Some(complaint) => KeyError::Link { error: Box::new(failure), complaint },
        None => failure,
    }
}

/// A call under way.
#[derive(Debug)]
pub(super) struct Pending {
    state: Mutex<State>,
    ended: Condvar,
    row_len: usize,
}

#[derive(Debug)]
struct State {
    keys: Vec<(u64, bool)>,
    left: usize,
    values: Vec<f32>,
    failure: Option<KeyError>,
    complaint: Option<String>,
}

impl Pending {
    /// A call for these keys; one that pulls has room for their values.
    pub(super) fn new(keys: Vec<u64>, row_len: u16, pulls: bool) -> Arc<Self> {
        let row_len = if pulls { usize::from(row_len) } else { 0 };
        let state = State {
            left: keys.len(),
            values: vec![0.0; keys.len() * row_len],
            keys: keys.into_iter().map(|key| (key, false)).collect(),
            failure: None,
            complaint: None,
        };
        Arc::new(Self { state: Mutex::new(state), ended: Condvar::new(), row_len })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One key is done.
    pub(super) fn complete(&self, position: usize, value: Option<&[f32]>) {
        let mut state = self.lock();
        let row = position * self.row_len..(position + 1) * self.row_len;
        if let Some(room) = state.values.get_mut(row)
            && let Some(value) = value.filter(|value| value.len() == room.len())
        {
            room.copy_from_slice(value);
        }
        if let Some((_, is_done)) = state.keys.get_mut(position)
            && !core::mem::replace(is_done, true)
        {
            state.left -= 1;
        }
        if state.left == 0 {
            self.ended.notify_all();
        }
    }

    fn fail(&self, failure: &KeyError) {
        self.lock().failure.get_or_insert_with(|| failure.clone());
        self.ended.notify_all();
    }

    pub(super) fn is_finished(&self) -> bool {
        let state = self.lock();
        state.left == 0 || state.failure.is_some()
    }

    /// Waits for the end and returns the values of a call that pulls.
    pub(super) fn wait(&self, timeout: Duration) -> Result<Vec<f32>, KeyError> {
        let begun = Instant::now();
        let mut state = self.lock();
        loop {
            if state.left == 0 {
                return Ok(core::mem::take(&mut state.values));
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            let waited = begun.elapsed();
            let Some(rest) = timeout.checked_sub(waited).filter(|rest| !rest.is_zero()) else {
                let open = state.keys.iter().filter(|(_, is_done)| !is_done);
                let keys = open.map(|(key, _)| *key).collect();
                let failure = KeyError::Unanswered { keys, waited };
                return Err(with(failure, state.complaint.take()));
            };
            let woken = self.ended.wait_timeout(state, rest);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A call that goes on while the program does something else. Dropping it leaves the call alone:
/// what it asks for still happens.
#[derive(Debug)]
#[must_use = "a call may fail; its ticket says so"]
pub struct KeyTicket {
    pub(super) call: Arc<Pending>,
    pub(super) timeout: Duration,
}

impl KeyTicket {
    /// True once [`KeyTicket::wait`] does not wait.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.call.is_finished()
    }

    /// Waits for the end, at most for the session's `call_timeout` from now. A pull's values are
    /// in the order of its keys; other calls have none.
    ///
    /// # Errors
    /// [`KeyError::Unanswered`], [`KeyError::RowsLost`], [`KeyError::PortClosed`], or that this
    /// process was declared dead.
    pub fn wait(self) -> Result<Vec<f32>, KeyError> {
        self.call.wait(self.timeout)
    }
}
