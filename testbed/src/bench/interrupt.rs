//! A bench that is interrupted ends as by itself: processes, labs and folders are taken down by
//! their handles. The signals are those of every command ([`crate::interrupt`]).

use std::thread;
use std::time::{Duration, Instant};

use super::BenchError;

pub use crate::interrupt::{is_raised, listen};

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
