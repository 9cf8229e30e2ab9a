//! CPU time as `/proc` counts it: of this machine, of a process, of its threads. Reads and parses;
//! decides nothing.

use std::fs;
use std::path::Path;

/// CPU time of a process, user and system, to the kernel's 10 ms.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct CpuTimes {
    /// Of its threads, those that have ended included.
    pub(crate) own_ns: u64,
    /// Of children that it has waited for, and of their children.
    pub(crate) waited_ns: u64,
}

impl CpuTimes {
    /// Reads them from a process's folder in `/proc`; what cannot be read is 0.
    pub(crate) fn of(folder: &Path) -> Self {
        Self::parse(&fs::read_to_string(folder.join("stat")).unwrap_or_default())
    }

    /// The name in parentheses may hold anything; utime, stime, cutime and cstime are the 12th to
    /// 15th field after it.
    fn parse(stat: &str) -> Self {
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        let ticks: Vec<u64> = fields.skip(11).take(4).filter_map(|it| it.parse().ok()).collect();
        let &[user, system, waited_user, waited_system] = &ticks[..] else {
            return Self::default();
        };
        Self {
            own_ns: (user + system) * TICK_NS,
            waited_ns: (waited_user + waited_system) * TICK_NS,
        }
    }
}

/// CPU time of each thread of a process that lives.
pub(crate) fn threads_ns(folder: &Path) -> impl Iterator<Item = u64> {
    let tasks = fs::read_dir(folder.join("task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    })
}

/// CPU time of this machine that went to user, nice and system, or was stolen from it; `None` where
/// the kernel has no figure.
pub(crate) fn machine_busy_ns() -> Option<u64> {
    busy_ns(&fs::read_to_string("/proc/stat").ok()?)
}

/// The first line of a `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
fn busy_ns(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().filter_map(|it| it.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, _irq, _softirq, steal, ..] = ticks[..] else {
        return None;
    };
    Some((user + nice + system + steal) * TICK_NS)
}

/// USER_HZ is 100 on every Linux.
const TICK_NS: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_moves_no_field() {
        let stat = "16204 (a) b (c) R 1 2 3 0 -1 4194304 97 0 0 0 5 7 11 13 20 0 1 0 1832298";
        let times = CpuTimes::parse(stat);
        assert_eq!(times, CpuTimes { own_ns: 120_000_000, waited_ns: 240_000_000 });
        assert_eq!(CpuTimes::parse(""), CpuTimes::default());
    }

    #[test]
    fn a_machine_is_busy_with_programs_and_with_its_neighbours() {
        let stat = "cpu  1 20 300 7000 5000 90000 90000 4000 1 0\ncpu0 9 9 9 9 9 9 9 9 0 0\n";
        assert_eq!(busy_ns(stat), Some(4321 * TICK_NS), "neither idle nor interrupts");
        assert_eq!(busy_ns("cpu  1 2 3\n"), None);
        assert_eq!(busy_ns("intr 1\n"), None);
    }
}
