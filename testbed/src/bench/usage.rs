//! What a process has used so far: CPU time, and bytes that its network namespace has sent.

use std::fs;
use std::path::PathBuf;

/// A process of this machine, by its folder in `/proc`.
#[derive(Clone, Debug)]
pub(super) struct Process {
    folder: PathBuf,
}

/// Counters of a process; what cannot be read is 0.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Usage {
    /// CPU time of all threads that live.
    pub(super) cpu_ns: u64,
    /// Bytes that the interfaces of its network namespace have sent, but for the loopback.
    pub(super) sent_bytes: u64,
}

impl Usage {
    /// What was used since `before`; nothing where threads have ended meanwhile and took more
    /// along.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
        }
    }
}

impl Process {
    /// This one.
    pub(super) fn own() -> Self {
        Self { folder: PathBuf::from("/proc/self") }
    }

    /// Another one.
    pub(super) fn of(pid: u32) -> Self {
        Self { folder: PathBuf::from(format!("/proc/{pid}")) }
    }

    /// What it has used.
    pub(super) fn used(&self) -> Usage {
        let tasks = fs::read_dir(self.folder.join("task")).into_iter().flatten().flatten();
        let cpu_ns = tasks
            .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
            .filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok())
            .sum();
        let interfaces = fs::read_to_string(self.folder.join("net/dev")).unwrap_or_default();
        Usage { cpu_ns, sent_bytes: sent_bytes(&interfaces) }
    }
}

/// The sum over all lines of a `/proc/net/dev`, whose ninth figure behind the name are the bytes
/// sent.
fn sent_bytes(interfaces: &str) -> u64 {
    let lines = interfaces.lines().filter_map(|line| line.split_once(':'));
    lines
        .filter(|(name, _)| name.trim() != "lo")
        .filter_map(|(_, figures)| figures.split_whitespace().nth(8)?.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_and_the_heading_do_not_count() {
        let text = "Inter-|   Receive    |  Transmit\n face |bytes packets|bytes packets\n\
                    \x20   lo: 1 1 0 0 0 0 0 0 5000 1 0 0 0 0 0 0\n\
                    \x20 eth0: 2 1 0 0 0 0 0 0 700 1 0 0 0 0 0 0\n\
                    \x20 eth1:3 1 0 0 0 0 0 0 50 1 0 0 0 0 0 0\n";
        assert_eq!(sent_bytes(text), 750);
    }

    #[test]
    fn work_takes_cpu_time() {
        let before = Process::own().used();
        let begun = std::time::Instant::now();
        while begun.elapsed().as_millis() < 20 {
            std::hint::spin_loop();
        }
        assert!(Process::own().used().cpu_ns > before.cpu_ns);
    }
}
