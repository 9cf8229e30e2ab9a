//! Reads what a measurement depends on: processor, kernel, DPDK, network devices, load. I/O only.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The machine of a run.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Machine {
    /// Model name of the processor.
    pub cpu: String,
    /// Logical processors that this process may use.
    pub cpus: usize,
    /// Release of the kernel.
    pub kernel: String,
    /// Version of the installed libdpdk, as pkg-config knows it.
    pub dpdk: Option<String>,
    /// Network devices with their drivers.
    pub nics: Vec<String>,
    /// Load averages over 1, 5 and 15 minutes when the run started.
    pub load_average: [f64; 3],
}

impl Machine {
    /// Reads this machine. What cannot be read is `unknown`, absent or zero.
    #[must_use]
    pub fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let or_unknown = |text: &str| {
            if text.is_empty() { "unknown".to_owned() } else { text.to_owned() }
        };
        Self {
            cpu: or_unknown(cpu_model(&text("/proc/cpuinfo"))),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: or_unknown(text("/proc/sys/kernel/osrelease").trim()),
            dpdk: dpdk_version(),
            nics: nics(Path::new("/sys/class/net")),
            load_average: load_average(&text("/proc/loadavg")),
        }
    }
}

/// The version of libdpdk that pkg-config finds.
pub(crate) fn dpdk_version() -> Option<String> {
    let output = Command::new("pkg-config").args(["--modversion", "libdpdk"]).output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !version.is_empty()).then_some(version)
}

fn cpu_model(cpuinfo: &str) -> &str {
    let value = |line: &'_ str| line.split_once(':').map_or("", |(_, value)| value.trim()).len();
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    line.map_or("", |line| &line[line.len() - value(line)..])
}

fn load_average(text: &str) -> [f64; 3] {
    let mut numbers = text.split_whitespace().map(|word| word.parse().unwrap_or(0.0));
    [(); 3].map(|()| numbers.next().unwrap_or(0.0))
}

/// `eth0 (virtio_net)`, in order of names; devices without hardware are left out.
fn nics(class: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(class) else { return Vec::new() };
    let describe = |entry: fs::DirEntry| {
        let driver = fs::read_link(entry.path().join("device/driver")).ok()?;
        let driver = driver.file_name()?.to_string_lossy().into_owned();
        Some(format!("{} ({driver})", entry.file_name().to_string_lossy()))
    };
    let mut nics: Vec<String> = entries.flatten().filter_map(describe).collect();
    nics.sort_unstable();
    nics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read() {
        assert_eq!(
            cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2.0GHz\n"),
            "Some CPU @ 2.0GHz"
        );
        assert_eq!(cpu_model("processor : 0\n"), "");
        assert_eq!(load_average("0.50 1.25 2.00 1/100 7\n"), [0.5, 1.25, 2.0]);
        assert_eq!(load_average(""), [0.0; 3]);
        let here = Machine::read();
        assert!(here.cpus > 0 && here.kernel != "unknown", "{here:?}");
    }
}
