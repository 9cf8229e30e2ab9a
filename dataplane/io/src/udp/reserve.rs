//! UDP ports that the kernel keeps for a port that takes their datagrams from an interface.
//!
//! Where kernel and port share an address, the kernel sees each datagram too. With a socket bound
//! it neither answers that the port is unreachable nor gives it to another process; the socket's
//! filter lets nothing in, so that nothing waits there.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, SockFilter, Socket, Type};

/// Consecutive UDP ports of the kernel's that receive nothing.
#[derive(Debug)]
pub struct ReservedPorts {
    _sockets: Vec<Socket>,
}

impl ReservedPorts {
    /// Takes `count` ports from `first` on.
    ///
    /// # Errors
    /// The address that could not be had, and why.
    pub fn open(first: SocketAddr, count: u16) -> Result<Self, (SocketAddr, io::Error)> {
        let open = |index: u16| {
            let mut addr = first;
            let port = first.port().checked_add(index);
            addr.set_port(port.ok_or_else(|| (addr, io::ErrorKind::InvalidInput.into()))?);
            reserve(addr).map_err(|error| (addr, error))
        };
        Ok(Self { _sockets: (0..count).map(open).collect::<Result<_, _>>()? })
    }
}

fn reserve(addr: SocketAddr) -> io::Result<Socket> {
    let socket =
        Socket::new(Domain::for_address(addr), Type::DGRAM.cloexec(), Some(Protocol::UDP))?;
    socket.attach_filter(&[LETS_NOTHING_IN])?;
    if addr.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&addr.into())?;
    Ok(socket)
}

/// `BPF_RET | BPF_K`: takes zero bytes of every datagram.
const LETS_NOTHING_IN: SockFilter = SockFilter::new(6, 0, 0, 0);

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_reserved_port_is_silent_and_nobody_elses() {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        peer.connect(free).unwrap();
        peer.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let heard = |peer: &UdpSocket| {
            let _ = peer.send(b"?");
            peer.recv(&mut [0; 8]).unwrap_err().kind()
        };
        assert_eq!(heard(&peer), io::ErrorKind::ConnectionRefused, "nobody has the port");
        let reserved = ReservedPorts::open(free, 1).unwrap();
        assert_eq!(heard(&peer), io::ErrorKind::WouldBlock, "the port is there");
        let (addr, error) = ReservedPorts::open(free, 1).unwrap_err();
        assert_eq!((addr, error.kind()), (free, io::ErrorKind::AddrInUse));
        drop(reserved);
        assert_eq!(heard(&peer), io::ErrorKind::ConnectionRefused, "it is given back");
    }

    #[test]
    fn there_is_no_port_after_the_last() {
        let last = "127.0.0.1:65535".parse().unwrap();
        let (_, error) = ReservedPorts::open(last, 2).unwrap_err();
        assert!([io::ErrorKind::InvalidInput, io::ErrorKind::AddrInUse].contains(&error.kind()));
    }
}
