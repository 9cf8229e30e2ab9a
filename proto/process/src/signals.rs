//! What a process does at signals, and what it was started with that concerns them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{fs, io};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// A flag that the first SIGINT, SIGTERM or SIGHUP sets; the second ends the process at once, with
/// [`INTERRUPTED`]. SIGHUP stays ignored where it was (`nohup`).
///
/// # Errors
/// The kernel's.
pub fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let is_heard = |signal: &i32| *signal != SIGHUP || !ignores_hangup();
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(is_heard) {
        flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// The exit status of a process that signals have ended.
pub const INTERRUPTED: u8 = 130;

/// Whether SIGHUP was ignored when this process was started, as by `nohup`: it is to stay so.
#[must_use]
pub fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    masks_hangup(&status)
}

/// SIGHUP is the first signal.
fn masks_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_hangup_is_read_from_the_mask() {
        assert!(masks_hangup("Name:\tx\nSigIgn:\t0000000000001001\n"));
        assert!(!masks_hangup("SigIgn:\t0000000000001000\nSigCgt:\t0000000000000001\n"));
        assert!(!masks_hangup(""));
    }
}
