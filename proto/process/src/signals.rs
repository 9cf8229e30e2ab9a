//! What a process does at signals, and what it was started with that concerns them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{fs, io, thread};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// A flag that the first SIGINT, SIGTERM or SIGHUP sets; the second ends the process at once, with
/// [`INTERRUPTED`]. SIGHUP stays ignored where it was (`nohup`).
///
/// # Errors
/// The kernel's.
pub fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let is_heard = |signal: &i32| *signal != SIGHUP || !ignores_hangup();
    flag_of([SIGINT, SIGTERM, SIGHUP].into_iter().filter(is_heard))
}

/// The same for a daemon: a flag of SIGINT and SIGTERM, and [`note_hangups`].
///
/// # Errors
/// The kernel's.
pub fn daemon_stop_flag(program: &'static str) -> io::Result<Arc<AtomicBool>> {
    note_hangups(program)?;
    flag_of([SIGINT, SIGTERM].into_iter())
}

/// Answers each SIGHUP with a line of the log and nothing else: by custom it has a daemon read its
/// files again, and a program that does not do so must not end of it. SIGHUP stays ignored where
/// it was (`nohup`).
///
/// # Errors
/// The kernel's.
pub fn note_hangups(program: &'static str) -> io::Result<()> {
    if ignores_hangup() {
        return Ok(());
    }
    let mut signals = Signals::new([SIGHUP])?;
    let note = move || {
        for _ in signals.forever() {
            crate::say!(
                "{program}: SIGHUP is not used: certificates are read again by themselves, and the \
                 configuration at the next start; SIGTERM ends the program"
            );
        }
    };
    thread::Builder::new().name("weft-hangups".to_owned()).spawn(note).map(drop)
}

fn flag_of(signals: impl Iterator<Item = i32>) -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in signals {
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
