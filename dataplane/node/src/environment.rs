//! Finds out, before anything is started, what about this machine would make a start fail late or
//! fail silently. Each finding is one line that says what to do.

use std::net::{IpAddr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};

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

/// Keeps the box's address on an interface from a second box, for as long as this process lives:
/// the kernel does not have it, and both would answer. The name is one of the network namespace, as
/// the interface is, and goes with the process, however that ends.
///
/// # Errors
/// A line, if another box has it.
pub fn hold_address(interface: &str, addr: SocketAddr) -> Result<UnixListener, String> {
    let name = format!("weft-box-{interface}-{addr}");
    UnixAddr::from_abstract_name(&name).and_then(|name| UnixListener::bind_addr(&name)).map_err(
        |error| match error.kind() {
            std::io::ErrorKind::AddrInUse => format!(
                "another box has {addr} on {interface}, as @{name} in `ss -xlp` shows: end it, or \
                 choose another port.ip or port.udp_port"
            ),
            _ => format!("cannot keep {addr} on {interface} from other boxes: {error}"),
        },
    )
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
