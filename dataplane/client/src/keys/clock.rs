//! Intents and clocks: which rows, or copies of them, come before they are used.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::KeyError;
use super::session::KeySession;

impl KeySession {
    /// Says that this process is about to use these keys, from its clock `from` until its clock
    /// `to` begins; asks for them one clock ahead. Where no other process means to use a key, its
    /// row comes; where several do, one has it and the others have copies.
    ///
    /// Meanwhile, of a key whose row is not here:
    ///
    /// - a pull brings the row as it was at its owner at a moment since this process's clock
    ///   `now - staleness` began ([`KeyConfig::staleness`](super::KeyConfig::staleness)), with all
    ///   that this process has done since, and never an older one than an earlier pull of this
    ///   process;
    /// - a push is done at once, counts exactly once, and is at the row when
    ///   [`KeySession::advance_clock`] has returned.
    ///
    /// So where no process begins a clock before all have come back from beginning the last one, a
    /// pull in clock `c` has all pushes of all processes in clocks before `c - staleness - 1`. A
    /// key that nobody means to use is sequentially consistent as ever, and a set always waits for
    /// the row's owner. In a classic table nothing of this happens, and where rows stay
    /// ([`KeyConfig::mode`](super::KeyConfig::mode)) copies come and rows do not.
    ///
    /// # Errors
    /// [`CallError::UnknownKey`](weft_engine::role::keys::CallError::UnknownKey); `Full` when too
    /// many intents wait for their clock; why the session is over.
    pub fn intend(&self, keys: &[u64], from: u32, to: u32) -> Result<(), KeyError> {
        let mut engine = self.shared.lock();
        if let Some(failure) = engine.calls.failure() {
            return Err(failure.clone());
        }
        let intended = keys.iter().try_for_each(|key| engine.process.intend(*key, from, to));
        drop(engine);
        self.shared.ring();
        Ok(intended?)
    }

    /// Begins this process's next clock, and returns its number when all that was pushed in
    /// earlier clocks is at its rows. One thread of a process calls it, once a clock; the first
    /// clock is 1. The last call comes when nothing is pushed any more.
    ///
    /// # Errors
    /// [`KeyError::Unsettled`] after `call_timeout`, or why the session is over. The clock has
    /// begun all the same.
    pub fn advance_clock(&self) -> Result<u32, KeyError> {
        let begun = Instant::now();
        let mut engine = self.shared.lock();
        engine.process.advance_clock();
        let clock = engine.process.clock();
        self.shared.clock.store(clock, Ordering::Relaxed);
        self.shared.ring();
        loop {
            if let Some(failure) = engine.calls.failure() {
                return Err(failure.clone());
            }
            let [adds, _] = engine.process.open_adds();
            let waited = begun.elapsed();
            let rest = self.shared.call_timeout.checked_sub(waited);
            match rest.filter(|rest| !rest.is_zero()) {
                _ if adds == 0 => return Ok(clock),
                None => return Err(engine.calls.explain(KeyError::Unsettled { adds, waited })),
                Some(rest) => {
                    engine.waiting_count += 1;
                    let woken = self.shared.room.wait_timeout(engine, rest);
                    engine = woken.unwrap_or_else(PoisonError::into_inner).0;
                    engine.waiting_count -= 1;
                }
            }
        }
    }

    /// This process's clock.
    #[must_use]
    pub fn clock(&self) -> u32 {
        self.shared.clock.load(Ordering::Relaxed)
    }
}
