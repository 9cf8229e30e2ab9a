//! The descriptors of a process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Lets this process have as many descriptors as it may, and returns how many that are.
pub fn raise() -> usize {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((FILES_MIN, FILES_MIN));
    let is_raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    usize::try_from(if is_raised { hard } else { soft }).unwrap_or(usize::MAX)
}

/// The limit that is assumed of a kernel without an answer.
const FILES_MIN: u64 = 256;
