//! Reads what network interfaces have carried, and notes what a port has. Decides nothing: what the
//! difference says about others is `weft-plan`'s business.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::ifaddrs::getifaddrs;

/// Interface of this machine that has the address `ip`.
#[must_use]
pub fn interface_with(ip: IpAddr) -> Option<String> {
    addresses().find_map(|(name, address)| (address == ip).then_some(name))
}

/// True if this machine (this network namespace) has the interface.
#[must_use]
pub fn has_interface(name: &str) -> bool {
    // Unlike /sys, /proc/net follows the network namespace without a new mount.
    let Ok(table) = std::fs::read_to_string("/proc/net/dev") else { return true };
    table.lines().filter_map(|line| line.split_once(':')).any(|(known, _)| known.trim() == name)
}

/// An address of the kernel's on a link, to send and receive with beside a port: `ip` itself, else
/// the first of `device` in the same family. None on the loopback, which is no host's own link.
#[must_use]
pub fn kernel_address(ip: IpAddr, device: Option<&str>) -> Option<IpAddr> {
    if ip.is_loopback() {
        return None;
    }
    let own = addresses().find(|(_, address)| *address == ip);
    let suits = |(name, address): &(String, IpAddr)| {
        Some(name.as_str()) == device && address.is_ipv4() == ip.is_ipv4()
    };
    own.or_else(|| addresses().find(suits)).map(|(_, address)| address)
}

/// Names and IP addresses of this machine's interfaces.
fn addresses() -> impl Iterator<Item = (String, IpAddr)> {
    getifaddrs().into_iter().flatten().filter_map(|interface| {
        let addr = interface.address?;
        let v4 = addr.as_sockaddr_in().map(|addr| IpAddr::V4(addr.ip()));
        let v6 = addr.as_sockaddr_in6().map(|addr| IpAddr::V6(addr.ip()));
        Some((interface.interface_name, v4.or(v6)?))
    })
}

/// There are no such counters.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {source}; name an interface of this network namespace", path.display())]
pub struct NicError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// The byte counters of a network interface. No allocation after [`NicCounters::open`].
#[derive(Debug)]
pub struct NicCounters {
    rx: File,
    tx: File,
}

impl NicCounters {
    /// Opens the counters of `interface` in `/sys`, which must be that of this network namespace.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn open(interface: &str) -> Result<Self, NicError> {
        let open = |name: &str| {
            let path = PathBuf::from(format!("/sys/class/net/{interface}/statistics/{name}"));
            File::open(&path).map_err(|source| NicError { path, source })
        };
        Ok(Self { rx: open("rx_bytes")?, tx: open("tx_bytes")? })
    }

    /// Opens the counters of the interface with the address `ip`, else of `device`; none when there
    /// is no such interface, or it is the loopback, which is no host's own link: whoever runs there
    /// sees everybody's bytes.
    #[must_use]
    pub fn of_link(ip: IpAddr, device: Option<&str>) -> Option<Self> {
        if ip.is_loopback() {
            return None;
        }
        let interface = interface_with(ip).or_else(|| device.map(str::to_owned))?;
        Self::open(&interface).ok()
    }

    /// Bytes received and sent; none where the interface is gone.
    #[must_use]
    pub fn read(&self) -> (Option<u64>, Option<u64>) {
        (self.rx_bytes().ok(), self.tx_bytes().ok())
    }

    /// Bytes received, of all frames with their Ethernet headers.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn rx_bytes(&self) -> io::Result<u64> {
        number(&self.rx)
    }

    /// Bytes sent.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn tx_bytes(&self) -> io::Result<u64> {
        number(&self.tx)
    }
}

/// Reads a whole small file of one number without moving its position.
fn number(file: &File) -> io::Result<u64> {
    let mut text = [0; 32];
    let len = file.read_at(&mut text, 0)?;
    let digits = text[..len].iter().take_while(|byte| byte.is_ascii_digit());
    Ok(digits.fold(0, |sum: u64, digit| sum.wrapping_mul(10) + u64::from(digit - b'0')))
}

/// Bytes of Ethernet frames that a port has carried, noted by the thread that has the port and read
/// by one that reports them.
#[derive(Debug, Default)]
pub struct Carried {
    rx_bytes: AtomicU64,
    tx_bytes: AtomicU64,
}

impl Carried {
    /// Notes all that was received and sent since the start.
    pub fn note(&self, rx_bytes: u64, tx_bytes: u64) {
        self.rx_bytes.store(rx_bytes, Ordering::Relaxed);
        self.tx_bytes.store(tx_bytes, Ordering::Relaxed);
    }

    /// Adds what was received and sent since the last time.
    pub fn add(&self, rx_bytes: u64, tx_bytes: u64) {
        self.rx_bytes.fetch_add(rx_bytes, Ordering::Relaxed);
        self.tx_bytes.fetch_add(tx_bytes, Ordering::Relaxed);
    }

    /// Bytes received and sent.
    #[must_use]
    pub fn read(&self) -> (u64, u64) {
        (self.rx_bytes.load(Ordering::Relaxed), self.tx_bytes.load(Ordering::Relaxed))
    }
}
