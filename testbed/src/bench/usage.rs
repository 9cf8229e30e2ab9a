//! Counters of a process: CPU time, and bytes that its network namespace has sent. And the CPU time
//! of other programs of this machine beside a bench.

use std::fs;
use std::path::{Path, PathBuf};

use crate::proc::{CpuTimes, machine_busy_ns, threads_ns};
use crate::run::monotonic_ns;

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
        let cpu_ns = threads_ns(&self.folder).sum();
        let interfaces = fs::read_to_string(self.folder.join("net/dev")).unwrap_or_default();
        Usage { cpu_ns, sent_bytes: sent_bytes(&interfaces) }
    }
}

/// Counters of this machine and of this process at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    at_ns: u64,
    /// CPU time of the whole machine; `None` where the kernel has no figure.
    busy_ns: Option<u64>,
    /// CPU time of this process and of the children that it has waited for.
    ours_ns: u64,
}

impl Moment {
    /// Reads the counters. Every child of the bench has been waited for by now: before, its time is
    /// not in `ours_ns`.
    pub(super) fn now() -> Self {
        let ours = CpuTimes::of(Path::new("/proc/self"));
        let (at_ns, busy_ns) = (monotonic_ns(), machine_busy_ns());
        Self { at_ns, busy_ns, ours_ns: ours.own_ns + ours.waited_ns }
    }
}

/// CPU time that other programs of this machine used during some stretches of time.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Others {
    cpu_ns: u64,
    wall_ns: u64,
}

impl Others {
    /// Between two moments.
    pub(super) fn between(before: &Moment, after: &Moment) -> Self {
        let (Some(busy_before), Some(busy)) = (before.busy_ns, after.busy_ns) else {
            return Self::default();
        };
        let ours_ns = after.ours_ns.saturating_sub(before.ours_ns);
        Self {
            // In whole ticks a part can be more than the whole.
            cpu_ns: busy.saturating_sub(busy_before).saturating_sub(ours_ns),
            wall_ns: after.at_ns.saturating_sub(before.at_ns),
        }
    }

    /// Both stretches.
    pub(super) fn and(self, other: Self) -> Self {
        Self { cpu_ns: self.cpu_ns + other.cpu_ns, wall_ns: self.wall_ns + other.wall_ns }
    }

    /// True at more than one CPU on average; `None` where the kernel has no figure.
    pub(super) fn disturb(self) -> Option<bool> {
        (self.wall_ns > 0).then_some(self.cpu_ns > self.wall_ns)
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
    fn what_this_process_did_not_use_disturbs_it_from_one_cpu_on() {
        let moment = |at_ns, busy_ns, ours_ns| Moment { at_ns, busy_ns: Some(busy_ns), ours_ns };
        let before = moment(1_000, 5_000, 3_000);
        // Ten units of time: 25 of CPU, of which 15 or 14 are ours.
        let beside =
            |ours_ns: u64| Others::between(&before, &moment(1_010, 5_025, 3_000 + ours_ns));
        assert_eq!(beside(15).disturb(), Some(false), "one CPU");
        assert_eq!(beside(14).disturb(), Some(true), "more than one");
        assert_eq!(beside(99), Others { cpu_ns: 0, wall_ns: 10 });
        let quiet = Others { cpu_ns: 1, wall_ns: 10 };
        assert_eq!(beside(14).and(quiet).disturb(), Some(false), "12 of CPU in 20 of time");
        let unknown = Moment { busy_ns: None, ..before };
        assert_eq!(Others::between(&unknown, &before).disturb(), None);
    }

    #[test]
    fn a_child_that_was_waited_for_is_no_other_program() {
        let before = CpuTimes::of(Path::new("/proc/self")).waited_ns;
        let work = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done";
        assert!(std::process::Command::new("sh").args(["-c", work]).status().unwrap().success());
        assert!(CpuTimes::of(Path::new("/proc/self")).waited_ns > before);
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
