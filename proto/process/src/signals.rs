//! What a process was started with that concerns signals.

use std::fs;

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
