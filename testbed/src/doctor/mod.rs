//! Decides from facts about this machine what Weft can run here, and how to fix what it cannot.
//! No I/O: `gather` collects the [`Facts`].
//!
//! Invariant: every finding that is not `ok` carries its fix, and [`Diagnosis::can_run`] says
//! whether the demo runs here in some mode: DPDK on veth, else DPDK on memif, else UDP on
//! loopback (degraded, DESIGN section 6).

mod facts;
mod gather;

use std::fmt;

use serde::Serialize;
use weft_control::figures::OFFLOADS_OFF;

pub use facts::{Facts, Hugepages, NodeBinary, Qdisc, QdiscState, UserNamespaces};
pub use gather::{find_program, find_weft_bench, find_weft_node, gather, try_qdisc};

/// What was found, and what follows from it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Diagnosis {
    /// Whether the demo runs here in some mode.
    pub can_run: bool,
    /// The modes in which it runs, best first.
    pub modes: Vec<Mode>,
    /// One entry for each thing that was looked at.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// Judges a machine.
    #[must_use]
    pub fn new(facts: &Facts) -> Self {
        let modes = modes(facts);
        let mut findings = vec![
            hugepages(facts),
            iommu(facts),
            driver(facts),
            numa(facts),
            capabilities(facts),
            user_namespaces(facts),
        ];
        findings.extend(facts.qdiscs.iter().map(|(qdisc, state)| self::qdisc(*qdisc, *state)));
        findings.extend([offloads(facts), libdpdk(facts), weft_node(facts)]);
        findings.extend(tools(facts));
        findings.push(demo(&modes));
        Self { can_run: !modes.is_empty(), modes, findings }
    }
}

/// A way to run the demo.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub enum Mode {
    /// Workers and aggregator in namespaces, the aggregator on DPDK over veth.
    #[serde(rename = "dpdk_veth")]
    DpdkVeth,
    /// Workers and aggregator as two processes that share memory through memif.
    #[serde(rename = "dpdk_memif")]
    DpdkMemif,
    /// Sockets on loopback; no network is shaped and no DPDK runs.
    #[serde(rename = "udp_loopback")]
    UdpLoopback,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DpdkVeth => "DPDK on veth",
            Self::DpdkMemif => "DPDK on memif",
            Self::UdpLoopback => "UDP on loopback (degraded)",
        })
    }
}

/// How good a finding is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Something is not possible, but the demo does not need it.
    Warn,
    /// The demo, or its best mode, is not possible.
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Finding {
    /// How good it is.
    pub level: Level,
    /// What was looked at.
    pub name: &'static str,
    /// What was found.
    pub what: String,
    /// What to do about it.
    pub fix: Option<String>,
}

impl Finding {
    fn ok(name: &'static str, what: impl Into<String>) -> Self {
        Self { level: Level::Ok, name, what: what.into(), fix: None }
    }

    fn bad(
        level: Level,
        name: &'static str,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { level, name, what: what.into(), fix: Some(fix.into()) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "fail",
        };
        write!(f, "{level} {}: {}", self.name, self.what)?;
        self.fix.as_ref().map_or(Ok(()), |fix| write!(f, " — {fix}"))
    }
}

fn hugepages(facts: &Facts) -> Finding {
    let name = "hugepages";
    let Hugepages { total, free, size_kib } = facts.hugepages;
    if free > 0 {
        return Finding::ok(name, format!("{free} of {total} pages of {size_kib} KiB are free"));
    }
    let what = if total == 0 { "none reserved" } else { "all in use" };
    let fix = "only real NICs need them: `sudo sysctl -w vm.nr_hugepages=1024`, or run with \
               --no-huge as the demo does";
    Finding::bad(Level::Warn, name, what, fix)
}

fn iommu(facts: &Facts) -> Finding {
    match facts.iommu_groups {
        0 => Finding::bad(
            Level::Warn,
            "iommu",
            "no IOMMU groups",
            "only real NICs need it: enable VT-d or AMD-Vi in the firmware and boot with \
             `intel_iommu=on iommu=pt` (AMD: `amd_iommu=on`)",
        ),
        groups => Finding::ok("iommu", format!("{groups} groups")),
    }
}

fn driver(facts: &Facts) -> Finding {
    let name = "driver";
    if !facts.vfio_pci_devices.is_empty() {
        return Finding::ok(name, format!("vfio-pci holds {}", facts.vfio_pci_devices.join(", ")));
    }
    let fix = "only real NICs need it: `sudo modprobe vfio-pci`, then \
               `sudo dpdk-devbind.py -b vfio-pci <PCI address>` (mlx5 keeps its kernel driver)";
    let what = if facts.vfio_pci_loaded {
        "vfio-pci is loaded and holds no device"
    } else {
        "vfio-pci is not loaded"
    };
    Finding::bad(Level::Warn, name, what, fix)
}

fn numa(facts: &Facts) -> Finding {
    let nodes = facts.numa_nodes.max(1);
    let plural = if nodes == 1 { "" } else { "s" };
    let what = format!("{nodes} node{plural}, {} CPUs", facts.cpus);
    if facts.cpus < CPUS_WANTED {
        let fix = format!(
            "workers and aggregator share cores, so times are not those of a network; use a \
             machine with at least {CPUS_WANTED}"
        );
        return Finding::bad(Level::Warn, "numa", what, fix);
    }
    if facts.numa_nodes > 1 {
        let fix = "keep lcores, hugepages and NIC on one node: `-l` with CPUs of the node in \
                   /sys/bus/pci/devices/<PCI address>/numa_node";
        return Finding::bad(Level::Warn, "numa", what, fix);
    }
    Finding::ok("numa", what)
}

fn capabilities(facts: &Facts) -> Finding {
    let name = "capabilities";
    let held = |(bit, _): &&(u32, &str)| facts.capabilities & (1 << bit) == 0;
    let missing: Vec<&str> = CAPABILITIES.iter().filter(held).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        let names: Vec<&str> = CAPABILITIES.iter().map(|(_, name)| *name).collect();
        return Finding::ok(name, names.join(" "));
    }
    let what = format!("without {}", missing.join(" "));
    let fix = "run as root for labs that stay up and for real NICs; the demo uses a user \
               namespace instead";
    Finding::bad(Level::Warn, name, what, fix)
}

fn user_namespaces(facts: &Facts) -> Finding {
    let name = "user namespaces";
    match (&facts.user_namespaces, facts.can_build_labs()) {
        (UserNamespaces::Allowed, _) => Finding::ok(name, "unprivileged ones are allowed"),
        (UserNamespaces::Forbidden { fix }, true) => {
            Finding::bad(Level::Warn, name, "forbidden, and not needed with these rights", fix)
        }
        (UserNamespaces::Forbidden { fix }, false) => {
            Finding::bad(Level::Fail, name, "forbidden, so there is no lab without root", fix)
        }
    }
}

fn qdisc(qdisc: Qdisc, state: QdiscState) -> Finding {
    let (name, kind) = (qdisc.name(), qdisc.kind());
    match state {
        QdiscState::Works => Finding::ok(name, "works"),
        QdiscState::Unknown => Finding::bad(
            Level::Warn,
            name,
            "cannot be tried without a network namespace",
            "run `weft doctor` as root",
        ),
        QdiscState::Missing if qdisc == Qdisc::Netem => Finding::bad(
            Level::Warn,
            name,
            "the kernel has no netem",
            "not needed: `weft run` makes delays and [faults] in user space",
        ),
        QdiscState::Missing => Finding::bad(
            Level::Warn,
            name,
            format!("the kernel has no {kind}"),
            format!(
                "`sudo modprobe sch_{kind}`, or leave `rate_mbit` out of the scenario: links \
                 then run unshaped"
            ),
        ),
    }
}

fn offloads(facts: &Facts) -> Finding {
    let name = "offloads";
    if facts.offloaded.is_empty() {
        return Finding::ok(name, "no veth here passes on joined frames");
    }
    let what = format!(
        "{} passes on joined frames, and none of their checksums",
        facts.offloaded.join(", ")
    );
    let fix = format!(
        "only a box at its other end needs it, on DPDK or with `offload = false`: `{OFFLOADS_OFF}`"
    );
    Finding::bad(Level::Warn, name, what, fix)
}

fn libdpdk(facts: &Facts) -> Finding {
    // Building needs it; a daemon that is there already has what it was linked to.
    let built = facts.weft_node.as_ref().is_some_and(|node| node.dpdk);
    let level = if built { Level::Warn } else { Level::Fail };
    facts.dpdk_version.as_ref().map_or_else(
        || {
            let fix = "`sudo apt install libdpdk-dev pkg-config`, then build weft-node with \
                       `--features dpdk`";
            Finding::bad(level, "libdpdk", "pkg-config finds none", fix)
        },
        |version| Finding::ok("libdpdk", version),
    )
}

fn weft_node(facts: &Facts) -> Finding {
    let name = "weft-node";
    let Some(node) = &facts.weft_node else {
        return Finding::bad(
            Level::Fail,
            name,
            "not beside weft, not on PATH, and WEFT_NODE is not set",
            "`cargo build --release -p weft-node --features dpdk`",
        );
    };
    let path = node.path.display();
    match &node.version {
        Some(version) if *version == facts.weft_version => {
            let what = format!("{path}, version {version}");
            if node.dpdk {
                return Finding::ok(name, what + ", with DPDK");
            }
            let fix = "`cargo build --release -p weft-node --features dpdk`";
            Finding::bad(Level::Warn, name, what + ", without DPDK", fix)
        }
        other => {
            let found = other.as_deref().unwrap_or("unknown");
            let what = format!("{path} has version {found}, weft has {}", facts.weft_version);
            Finding::bad(Level::Fail, name, what, "build both from one commit, or set WEFT_NODE")
        }
    }
}

fn tools(facts: &Facts) -> Vec<Finding> {
    let judge = |(name, level, source, purpose): &(&'static str, Level, &str, &str)| {
        if facts.tools.contains(name) {
            return Finding::ok(name, "found");
        }
        let fix = format!("{purpose}: {source}");
        Finding::bad(*level, name, "not on PATH", fix)
    };
    TOOLS.iter().map(judge).collect()
}

/// The ways in which the demo runs, best first.
fn modes(facts: &Facts) -> Vec<Mode> {
    let same = |node: &&NodeBinary| node.version.as_ref() == Some(&facts.weft_version);
    let Some(node) = facts.weft_node.as_ref().filter(same) else { return Vec::new() };
    let dpdk = node.dpdk;
    let namespaces = facts.can_build_labs() || facts.user_namespaces == UserNamespaces::Allowed;
    let lab = namespaces && facts.tools.contains(&"ip") && facts.tools.contains(&"tc");
    let mut modes = Vec::new();
    if dpdk && lab {
        modes.push(Mode::DpdkVeth);
    }
    if dpdk {
        modes.push(Mode::DpdkMemif);
    }
    modes.push(Mode::UdpLoopback);
    modes
}

fn demo(modes: &[Mode]) -> Finding {
    match modes {
        [] => Finding::bad(Level::Fail, "demo", "cannot run here", "mend what failed above"),
        [Mode::UdpLoopback] => Finding::bad(
            Level::Warn,
            "demo",
            Mode::UdpLoopback.to_string(),
            "install DPDK as above for the real data path",
        ),
        [best, ..] => Finding::ok("demo", format!("runs with {best}")),
    }
}

/// The programs that Weft runs, what their absence means, where they are from, and what they are
/// for.
pub(crate) const TOOLS: [(&str, Level, &str, &str); 6] = [
    ("ip", Level::Fail, "`sudo apt install iproute2`", "labs need it"),
    ("tc", Level::Fail, "`sudo apt install iproute2`", "labs need it"),
    (
        "ethtool",
        Level::Warn,
        "`sudo apt install ethtool`",
        "without it captures show offloaded checksums",
    ),
    ("tshark", Level::Warn, "`sudo apt install tshark`", "reads captures with Weft's dissector"),
    ("mn", Level::Warn, "`sudo apt install mininet`", "weft-mininet runs in Mininet's topologies"),
    (
        "simple_switch_grpc",
        Level::Warn,
        "BMv2 is in no Debian package, docs/switch.md says where it is",
        "`--switch bmv2` needs it",
    ),
];

/// Capabilities by number, as `capability.h` has them.
const CAPABILITIES: [(u32, &str); 4] =
    [(12, "CAP_NET_ADMIN"), (13, "CAP_NET_RAW"), (14, "CAP_IPC_LOCK"), (21, "CAP_SYS_ADMIN")];

/// One for the aggregator's lcore, one for the workers, and one for everything else.
const CPUS_WANTED: usize = 3;

#[cfg(test)]
mod tests;
