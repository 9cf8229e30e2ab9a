//! Finds out, before anything is started, what about this machine would make a start fail late or
//! fail silently. Each finding is one line that says what to do.

use std::net::IpAddr;

use weft_io::nic::interface_with;

/// What is wrong with answering for `ip` on a port that the kernel shares.
#[must_use]
pub fn kernel_answers(ip: IpAddr) -> Option<String> {
    if ip.is_loopback() {
        // The kernel answers for it to nobody but itself; a memif's peer may still use it.
        return None;
    }
    let interface = interface_with(ip)?;
    Some(format!(
        "the kernel has {ip} on {interface} and would answer as well: `ip address flush dev \
         {interface}`, or choose another port.ip"
    ))
}

/// True if this machine (this network namespace) has the interface.
#[must_use]
pub fn has_interface(name: &str) -> bool {
    // Unlike /sys, /proc/net follows the network namespace without a new mount.
    let Ok(table) = std::fs::read_to_string("/proc/net/dev") else { return true };
    table.lines().filter_map(|line| line.split_once(':')).any(|(known, _)| known.trim() == name)
}

/// MTU of an interface, if it can be known.
#[must_use]
pub fn interface_mtu(name: &str) -> Option<usize> {
    if !has_interface(name) {
        return None;
    }
    std::fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok()?.trim().parse().ok()
}

/// What is wrong with sending packets of `mtu` bytes through an interface: one that is too long
/// would be lost without a word.
#[must_use]
pub fn mtu_problem(interface: &str, mtu: u16) -> Option<String> {
    let limit = interface_mtu(interface).filter(|limit| *limit < usize::from(mtu))?;
    Some(format!(
        "port.mtu = {mtu}: interface {interface} has an MTU of {limit}; set port.mtu = {limit} or \
         less, or `ip link set {interface} mtu {mtu}`"
    ))
}

/// True unless this process is known to lack CAP_NET_RAW.
#[must_use]
pub fn may_open_packet_sockets() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    bits.is_none_or(|bits| bits >> CAP_NET_RAW & 1 == 1)
}

/// Free hugepages of any size, if the kernel says.
#[must_use]
pub fn free_hugepages() -> Option<u64> {
    let sizes = std::fs::read_dir("/sys/kernel/mm/hugepages").ok()?;
    let free = sizes.filter_map(|size| {
        let text = std::fs::read_to_string(size.ok()?.path().join("free_hugepages")).ok()?;
        text.trim().parse::<u64>().ok()
    });
    Some(free.sum())
}

/// A seed that differs from start to start.
///
/// # Errors
/// If the operating system's random device cannot be read.
pub fn random_seed() -> std::io::Result<u64> {
    use std::io::Read;
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

const CAP_NET_RAW: u32 = 13;
