//! How a call of many keys comes to the engine: what has no room waits for it, in bounded time.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weft_engine::role::keys::{CallError, Outbox, Sink, To};
use weft_wire::Nanos;

use super::KeyError;
use super::calls::{Calls, Pending, number};
use super::session::{KeySession, Wish};
use super::shared::Engine;

impl KeySession {
    /// Hands the keys at these positions to the engine, as a call of their own.
    pub(super) fn submit(
        &self,
        keys: &[u64],
        far: &[usize],
        wish: Wish<'_>,
    ) -> Result<Arc<Pending>, KeyError> {
        let asked = far.iter().map(|position| keys[*position]).collect();
        let pulls = matches!(wish, Wish::Pull);
        let call = Pending::new(asked, self.shared.table.row_len, pulls);
        self.enter(&call, keys, far, wish, false)?;
        Ok(call)
    }

    /// Hands the keys at these positions to the engine. In the call they have the places of `keys`
    /// or (not `is_whole`) those of `far`.
    pub(super) fn enter(
        &self,
        call: &Arc<Pending>,
        keys: &[u64],
        far: &[usize],
        wish: Wish<'_>,
        is_whole: bool,
    ) -> Result<(), KeyError> {
        if far.is_empty() {
            return Ok(());
        }
        let key_count = u32::try_from(far.len()).unwrap_or(u32::MAX);
        let begun = Instant::now();
        let now = self.shared.now();
        let mut engine = self.shared.lock();
        let place = engine.calls.insert(call, key_count, wish.timed().1, now)?;
        let mut entered = 0;
        let failure = loop {
            let Some(position) = far.get(entered) else { break None };
            let at = if is_whole { *position } else { entered };
            let number = number(place, u32::try_from(at).unwrap_or(u32::MAX));
            let Engine { process, calls, .. } = &mut *engine;
            let mut ears = Ears { calls, now };
            let key = keys[*position];
            let result = match wish {
                Wish::Localize => process.localize(key, number, &mut ears),
                _ => process.call(key, self.op(wish, *position), number, &mut ears),
            };
            match result {
                Ok(()) => entered += 1,
                Err(CallError::Full) => match self.wait_for_room(engine, begun) {
                    Ok(again) => engine = again,
                    Err((again, None)) => {
                        engine = again;
                        let keys = far[entered..].iter().map(|position| keys[*position]);
                        let waited = begun.elapsed();
                        break Some(KeyError::Full { keys: keys.collect(), waited });
                    }
                    Err((again, Some(failure))) => {
                        engine = again;
                        break Some(failure);
                    }
                },
                Err(error) => break Some(error.into()),
            }
        };
        let missing = far.len() - entered;
        engine.calls.withdraw(place, u32::try_from(missing).unwrap_or(u32::MAX));
        drop(engine);
        self.shared.ring();
        failure.map_or(Ok(()), Err)
    }

    /// Lets the port's thread go on until something may have become free.
    fn wait_for_room<'a>(
        &'a self,
        mut engine: MutexGuard<'a, Engine>,
        begun: Instant,
    ) -> Result<MutexGuard<'a, Engine>, (MutexGuard<'a, Engine>, Option<KeyError>)> {
        self.shared.ring();
        let rest = self.shared.call_timeout.checked_sub(begun.elapsed());
        let Some(rest) = rest.filter(|rest| !rest.is_zero()) else { return Err((engine, None)) };
        engine.waiting_count += 1;
        let woken = self.shared.room.wait_timeout(engine, rest.min(ROOM_WAIT_MAX));
        engine = woken.unwrap_or_else(PoisonError::into_inner).0;
        engine.waiting_count -= 1;
        match engine.calls.failure().cloned() {
            Some(failure) => Err((engine, Some(failure))),
            None => Ok(engine),
        }
    }
}

/// What the engine says while a worker thread calls it: nothing leaves before the port's thread
/// has its turn.
struct Ears<'a> {
    calls: &'a mut Calls,
    now: Nanos,
}

impl Outbox for Ears<'_> {
    fn send(&mut self, _: To, _: &[u8]) {
        debug_assert!(false, "calls leave with the next flush");
    }
}

impl Sink for Ears<'_> {
    fn done(&mut self, call: u64, _key: u64, value: Option<&[f32]>) {
        self.calls.complete(call, value, self.now);
    }

    fn lost(&mut self, _: u64) {
        debug_assert!(false, "only a frame of the box says so");
    }
}

/// A caller that waits for room looks this often at least.
const ROOM_WAIT_MAX: Duration = Duration::from_millis(20);
