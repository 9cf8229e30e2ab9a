//! Collects the doctor's facts: reads `/proc` and `/sys`, and tries things in namespaces of their
//! own that end with the attempt. Changes nothing outside them; decides nothing.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::TOOLS;
use super::facts::{Facts, Hugepages, NodeBinary, Qdisc, QdiscState, UserNamespaces};
use crate::lab::{rootless, tc};
use crate::report::dpdk_version;
use crate::run::offload_on;

/// Looks at this machine.
#[must_use]
pub fn gather() -> Facts {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let entries = |path: &str| names(Path::new(path));
    let vfio = "/sys/bus/pci/drivers/vfio-pci";
    let mut vfio_pci_devices = entries(vfio);
    vfio_pci_devices.retain(|name| name.contains(':'));
    Facts {
        hugepages: hugepages(&text("/proc/meminfo")),
        iommu_groups: entries("/sys/kernel/iommu_groups").len(),
        vfio_pci_loaded: Path::new(vfio).exists(),
        vfio_pci_devices,
        numa_nodes: numa_nodes(&entries("/sys/devices/system/node")),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        capabilities: rootless::capabilities(),
        user_namespaces: user_namespaces(),
        qdiscs: Qdisc::ALL.map(|qdisc| (qdisc, try_qdisc(qdisc))).to_vec(),
        offloaded: offloaded(),
        dpdk_version: dpdk_version(),
        weft_version: env!("CARGO_PKG_VERSION").to_owned(),
        weft_node: weft_node(),
        tools: TOOLS.iter().map(|tool| tool.0).filter(|tool| on_path(tool).is_some()).collect(),
    }
}

/// Finds the dataplane's daemon: `WEFT_NODE`, else beside this program, else on PATH.
#[must_use]
pub fn find_weft_node() -> Option<PathBuf> {
    find_program("weft-node", "WEFT_NODE")
}

/// Finds what measures the dataplane: `WEFT_BENCH`, else beside this program, else on PATH.
#[must_use]
pub fn find_weft_bench() -> Option<PathBuf> {
    find_program("weft-bench", "WEFT_BENCH")
}

/// A program of Weft's: where the variable says, else beside this one, else on PATH.
#[must_use]
pub fn find_program(name: &str, variable: &str) -> Option<PathBuf> {
    if let Some(path) = env::var_os(variable).map(PathBuf::from) {
        return path.is_file().then_some(path);
    }
    let beside = env::current_exe().ok().map(|this| this.with_file_name(name));
    beside.filter(|path| path.is_file()).or_else(|| on_path(name))
}

fn weft_node() -> Option<NodeBinary> {
    let path = find_weft_node()?;
    let output = run(Command::new(&path).arg("--version"));
    let text = output.as_ref().map(stdout).unwrap_or_default();
    // Its version names the features that it was built with.
    Some(NodeBinary { path, version: version_in(&text), dpdk: text.contains("dpdk") })
}

/// The word after the program's name: `weft-node 0.1.0 (commit …)`.
fn version_in(text: &str) -> Option<String> {
    text.split_whitespace().nth(1).map(str::to_owned)
}

fn hugepages(meminfo: &str) -> Hugepages {
    let number = |key: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim_start_matches(':').split_whitespace().next()?.parse().ok()
    };
    Hugepages {
        total: number("HugePages_Total").unwrap_or(0),
        free: number("HugePages_Free").unwrap_or(0),
        size_kib: number("Hugepagesize").unwrap_or(0),
    }
}

fn numa_nodes(entries: &[String]) -> usize {
    let number =
        |name: &String| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok());
    entries.iter().filter(|name| number(name)).count()
}

/// Asks the kernel by trying, in a process of its own; what its settings say explains a refusal.
fn user_namespaces() -> UserNamespaces {
    let script = "mount -t tmpfs weft /run && mount -t sysfs weft /sys";
    let tried = run(Command::new("unshare").args(["-Urnm", "sh", "-c", script]));
    // Root may create them even where others may not, so the settings count as well.
    let setting = rootless::Limits::read().forbids();
    match (tried, setting) {
        (Some(output), None) if output.status.success() => UserNamespaces::Allowed,
        (_, Some(error)) => UserNamespaces::Forbidden { fix: error.to_string() },
        (Some(_), None) => UserNamespaces::Forbidden {
            fix: "a container's seccomp profile usually forbids it: start it with \
                  `--security-opt seccomp=unconfined` or `--privileged`"
                .to_owned(),
        },
        (None, None) => UserNamespaces::Forbidden {
            fix: "cannot tell without `unshare`: `sudo apt install util-linux`".to_owned(),
        },
    }
}

/// Tries a queueing discipline in a network namespace that is gone afterwards.
#[must_use]
pub fn try_qdisc(qdisc: Qdisc) -> QdiscState {
    let options: &[&str] = match qdisc {
        Qdisc::Htb => &[],
        Qdisc::Tbf => &["rate", "1mbit", "burst", "1600", "limit", "3000"],
        Qdisc::Netem => &["loss", "1%"],
    };
    let user = if rootless::is_privileged() { "-n" } else { "-Urn" };
    let mut command = Command::new("unshare");
    command.args([user, "tc", "qdisc", "add", "dev", "lo", "root", qdisc.kind()]).args(options);
    match run(&mut command) {
        Some(output) if output.status.success() => QdiscState::Works,
        Some(output) if tc::lacks_discipline(&String::from_utf8_lossy(&output.stderr)) => {
            QdiscState::Missing
        }
        _ => QdiscState::Unknown,
    }
}

/// Returns the ends of veth pairs in this namespace that leave cutting and checksums to hardware.
fn offloaded() -> Vec<String> {
    let veths = run(Command::new("ip").args(["-o", "link", "show", "type", "veth"]));
    let text = veths.as_ref().map(stdout).unwrap_or_default();
    let has_one_on = |name: &&str| {
        let said = run(Command::new("ethtool").args(["-k", name]));
        said.is_some_and(|said| offload_on(&stdout(&said)).is_some())
    };
    veth_names(&text).filter(has_one_on).map(str::to_owned).collect()
}

/// The interfaces of `ip -o link`: `7: w0@if6: <BROADCAST…`.
fn veth_names(text: &str) -> impl Iterator<Item = &str> {
    let names = text.lines().filter_map(|line| line.split(": ").nth(1));
    names.filter_map(|name| name.split('@').next())
}

fn run(command: &mut Command) -> Option<Output> {
    command.stdin(Stdio::null()).output().ok()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Searches PATH, and the directories of system tools, which are not on every user's PATH.
fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut files = env::split_paths(&path).chain(system).map(|directory| directory.join(program));
    files.find(|file| file.is_file())
}

fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_files_are_read() {
        let text = "HugePages_Total:     512\nHugePages_Free:      500\nHugepagesize:  2048 kB\n";
        assert_eq!(hugepages(text), Hugepages { total: 512, free: 500, size_kib: 2048 });
        assert_eq!(hugepages(""), Hugepages::default());
        let entries = ["node0", "node1", "online", "nodes"].map(str::to_owned);
        assert_eq!(numa_nodes(&entries), 2);
        let links = "2: w0@if6: <BROADCAST> mtu 1500\n8: v1@v2: <BROADCAST> mtu 1500\n";
        assert_eq!(veth_names(links).collect::<Vec<_>>(), ["w0", "v1"]);
        assert_eq!(version_in("weft-node 0.1.0 (commit abc)\n").as_deref(), Some("0.1.0"));
    }
}
