//! SIGINT, SIGTERM and SIGHUP, the same for every command: one that has made nothing ends at once,
//! one that has made namespaces, folders or processes takes them down first. Either way the exit
//! status is [`STATUS`].
//!
//! Invariant: after [`listen`] a signal, however often it comes, only sets a flag: what takes
//! things down waits for nothing without bound. SIGHUP stays ignored where it was (`nohup`).

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use weft_process::signals::{INTERRUPTED, ignores_hangup};

/// The exit status of an interrupted command.
pub const STATUS: u8 = INTERRUPTED;

/// Makes the signals end this process at once, with [`STATUS`]. One that came while they were only
/// noted has not ended it: ask [`is_raised`] afterwards.
///
/// # Errors
/// The kernel's.
pub fn end_at_once() -> io::Result<()> {
    if let Some(state) = STATE.get() {
        state.at_once.store(true, Ordering::Relaxed);
        return Ok(());
    }
    let state = State::default();
    state.at_once.store(true, Ordering::Relaxed);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if signal == SIGHUP && ignores_hangup() {
            continue;
        }
        flag::register_conditional_shutdown(signal, STATUS.into(), Arc::clone(&state.at_once))?;
        flag::register(signal, Arc::clone(&state.raised))?;
    }
    // Nobody else can have registered in between: commands begin on one thread.
    let _ = STATE.set(state);
    Ok(())
}

/// From now on a signal is only noted, for there is something to take down.
///
/// # Errors
/// The kernel's.
pub fn listen() -> io::Result<()> {
    end_at_once()?;
    if let Some(state) = STATE.get() {
        state.at_once.store(false, Ordering::Relaxed);
    }
    Ok(())
}

/// True when a signal came.
#[must_use]
pub fn is_raised() -> bool {
    STATE.get().is_some_and(|state| state.raised.load(Ordering::Relaxed))
}

#[derive(Debug, Default)]
struct State {
    at_once: Arc<AtomicBool>,
    raised: Arc<AtomicBool>,
}

/// A signal is the whole process's.
static STATE: OnceLock<State> = OnceLock::new();
