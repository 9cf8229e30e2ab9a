//! Where the threads of a process wait until those of all processes have come.
//!
//! Invariants: a thread passes a gate only when all threads of its process have come to it and
//! whoever keeps the gates has opened it; once the process is stopped, nobody waits any more.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The gates of a process, one after the other.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    threads: u32,
}

#[derive(Debug, Default)]
struct State {
    /// The gate that threads come to.
    next: u32,
    waiting: u32,
    /// Gates that are open.
    open: u32,
    is_stopped: bool,
}

/// Another thread has failed, or whoever keeps the gates is gone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stopped;

impl Gate {
    pub(super) fn new(threads: u32) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), threads }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for all. The last of this process's threads has `arrived` tell of the gate.
    pub(super) fn pass(&self, arrived: impl FnOnce(u32)) -> Result<(), Stopped> {
        let mut state = self.lock();
        let gate = state.next;
        state.waiting += 1;
        if state.waiting == self.threads {
            (state.waiting, state.next) = (0, gate + 1);
            arrived(gate);
        }
        while state.open <= gate && !state.is_stopped {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_stopped { Err(Stopped) } else { Ok(()) }
    }

    /// The next gate is open.
    pub(super) fn open(&self) {
        self.lock().open += 1;
        self.changed.notify_all();
    }

    /// Nobody waits any more.
    pub(super) fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn threads_pass_together_when_the_gate_is_opened() {
        let (gate, arrived) = (Gate::new(3), AtomicU32::new(0));
        let passed = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 0..50 {
                        let told = |number| {
                            assert_eq!(number, round);
                            assert_eq!(passed.load(Ordering::SeqCst), 3 * round, "all came first");
                            arrived.fetch_add(1, Ordering::SeqCst);
                        };
                        gate.pass(told).unwrap();
                        passed.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            for round in 0..50 {
                while arrived.load(Ordering::SeqCst) == round {
                    thread::yield_now();
                }
                assert_eq!(passed.load(Ordering::SeqCst), 3 * round, "it was shut");
                gate.open();
            }
        });
        assert_eq!(passed.into_inner(), 150);
    }

    #[test]
    fn nobody_waits_at_a_gate_that_is_stopped() {
        let gate = Gate::new(2);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.pass(|_| ()));
            gate.stop();
            assert_eq!(waiting.join().unwrap(), Err(Stopped));
        });
        assert_eq!(gate.pass(|_| ()), Err(Stopped));
    }
}
