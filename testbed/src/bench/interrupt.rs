//! SIGINT and SIGTERM end a bench as its own end does: processes, labs and folders are taken down
//! by their handles.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use super::BenchError;

/// Makes the signals end the bench in order from now on; a second one ends it at once.
///
/// # Errors
/// The kernel's.
pub fn listen() -> std::io::Result<()> {
    let raised = RAISED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(raised))?;
        signal_hook::flag::register(signal, Arc::clone(raised))?;
    }
    Ok(())
}

/// True when a signal came.
#[must_use]
pub fn is_raised() -> bool {
    RAISED.get().is_some_and(|raised| raised.load(Ordering::Relaxed))
}

/// Sleeps.
///
/// # Errors
/// [`BenchError::Interrupted`].
pub(super) fn sleep(time: Duration) -> Result<(), BenchError> {
    let begun = Instant::now();
    while let Some(left) = time.checked_sub(begun.elapsed()) {
        if is_raised() {
            return Err(BenchError::Interrupted);
        }
        thread::sleep(left.min(Duration::from_millis(20)));
    }
    Ok(())
}

/// A signal is the whole process's.
static RAISED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
