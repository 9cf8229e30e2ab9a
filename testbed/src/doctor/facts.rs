//! What the doctor looks at: plain data, so that every judgement can be tested.

use std::path::PathBuf;

/// Facts about a machine and about this process.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Facts {
    /// Hugepages of the default size.
    pub hugepages: Hugepages,
    /// IOMMU groups.
    pub iommu_groups: usize,
    /// Whether the vfio-pci driver is there.
    pub vfio_pci_loaded: bool,
    /// PCI addresses of devices that it holds.
    pub vfio_pci_devices: Vec<String>,
    /// NUMA nodes that are online.
    pub numa_nodes: usize,
    /// Logical processors that this process may use.
    pub cpus: usize,
    /// Effective capabilities, one bit each.
    pub capabilities: u64,
    /// Whether an unprivileged process may create user namespaces.
    pub user_namespaces: UserNamespaces,
    /// Queueing disciplines.
    pub qdiscs: Vec<(Qdisc, QdiscState)>,
    /// Ends of veth pairs in this network namespace that send frames joined or without checksums.
    pub offloaded: Vec<String>,
    /// Version of libdpdk that pkg-config finds.
    pub dpdk_version: Option<String>,
    /// Version of this program.
    pub weft_version: String,
    /// The dataplane's daemon.
    pub weft_node: Option<NodeBinary>,
    /// Programs on PATH, of those that Weft runs.
    pub tools: Vec<&'static str>,
}

impl Facts {
    /// Whether this process may create network namespaces as it is.
    #[must_use]
    pub const fn can_build_labs(&self) -> bool {
        const NEEDED: u64 = 1 << 12 | 1 << 21;
        self.capabilities & NEEDED == NEEDED
    }
}

/// Hugepages of the default size.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Hugepages {
    /// Reserved pages.
    pub total: u64,
    /// Those that nobody uses.
    pub free: u64,
    /// Size of a page.
    pub size_kib: u64,
}

/// Whether user namespaces can be had.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum UserNamespaces {
    /// Yes.
    Allowed,
    /// No.
    Forbidden {
        /// What would allow them.
        fix: String,
    },
}

/// A queueing discipline that Weft or its users may want.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Qdisc {
    /// Hierarchical token bucket: rates of links, priorities of jobs.
    Htb,
    /// Token bucket filter: rates of links.
    Tbf,
    /// Delays of links; `weft run` does without.
    Netem,
}

impl Qdisc {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Htb, Self::Tbf, Self::Netem];

    /// The kernel's name.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Htb => "htb",
            Self::Tbf => "tbf",
            Self::Netem => "netem",
        }
    }

    /// The finding's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Htb => "qdisc htb",
            Self::Tbf => "qdisc tbf",
            Self::Netem => "qdisc netem",
        }
    }
}

/// What became of trying a queueing discipline.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QdiscState {
    /// The kernel took it.
    Works,
    /// The kernel does not have it.
    Missing,
    /// It could not be tried.
    Unknown,
}

/// The daemon that a run starts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeBinary {
    /// Where it is.
    pub path: PathBuf,
    /// What it says that it is.
    pub version: Option<String>,
    /// Whether it was built with DPDK.
    pub dpdk: bool,
}
