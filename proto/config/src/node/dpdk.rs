//! `[dpdk]`: what EAL is started with, and how the device is opened.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// `[dpdk]`. EAL arguments before a `--` on the command line replace all that this section
/// generates for EAL; the keys below `rx_descriptors` still apply.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct DpdkSection {
    /// Virtual devices (`--vdev`), such as `net_af_packet0,iface=veth0`.
    pub vdev: Vec<String>,
    /// PCI devices to use (`--allow`), such as `0000:01:00.0`; naming one turns the PCI bus on.
    pub allow: Vec<String>,
    /// Takes plain pages (`--no-huge`). Virtual devices can; a NIC cannot. Default true.
    pub no_huge: bool,
    /// With hugepages: keep no files (`--in-memory`), so that nothing is left behind. Default true.
    pub in_memory: bool,
    /// Leaves the PCI bus alone (`--no-pci`). Default: true unless `allow` names a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_pci: Option<bool>,
    /// Memory in MiB (`-m`), at most 1048576. Default 256.
    pub memory_mib: u32,
    /// EAL's lcores (`--lcores`). Lanes register themselves and need none. Default: one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lcores: Option<String>,
    /// Name of this process's files (`--file-prefix`). Default: `weft` and the process id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_prefix: Option<String>,
    /// EAL's log level (`--log-level`), written to stderr. Default `notice`.
    pub log_level: String,
    /// Further EAL arguments, passed as they are.
    pub extra: Vec<String>,
    /// Receive descriptors. Default 512.
    pub rx_descriptors: u16,
    /// Transmit descriptors per lane. Default 512.
    pub tx_descriptors: u16,
    /// Buffers per lane; more than the descriptors. Small pools stay in cache. At
    /// most 1048576. Default 2048.
    pub mbuf_count: u32,
    /// Longest frame that a multicast copies whole; longer ones share their payload. Default 2048.
    pub copy_break_bytes: usize,
    /// Receives frames for other Ethernet addresses too. Default false.
    pub promiscuous: bool,
}

impl Default for DpdkSection {
    fn default() -> Self {
        Self {
            vdev: Vec::new(),
            allow: Vec::new(),
            no_huge: true,
            in_memory: true,
            no_pci: None,
            memory_mib: 256,
            lcores: None,
            file_prefix: None,
            log_level: "notice".to_owned(),
            extra: Vec::new(),
            rx_descriptors: 512,
            tx_descriptors: 512,
            mbuf_count: 2048,
            copy_break_bytes: 2048,
            promiscuous: false,
        }
    }
}
