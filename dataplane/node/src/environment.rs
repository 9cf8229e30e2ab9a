//! Finds out, before anything is started, what about this machine would make a start fail late or
//! fail silently. Each finding is one line that says what to do.

use std::net::IpAddr;

use weft_io::nic::{has_interface, interface_with};

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
