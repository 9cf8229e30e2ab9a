//! The other end of a port's veth: whole Ethernet frames, in and out.

use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
};

/// A packet socket.
#[derive(Debug)]
pub(super) struct Wire(OwnedFd);

impl Wire {
    pub(super) fn open(interface: &str) -> Result<Self, String> {
        let told = |error: Errno| format!("a packet socket on {interface}: {error}");
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll);
        let socket = socket.map_err(told)?;
        let mut all = getifaddrs().map_err(told)?.filter(|found| found.interface_name == interface);
        let address = all.find_map(|found| found.address?.as_link_addr().copied());
        let address = address.ok_or_else(|| format!("no interface {interface}"))?;
        bind(socket.as_raw_fd(), &address).map_err(told)?;
        Ok(Self(socket))
    }

    pub(super) fn send(&self, frame: &[u8]) -> Result<(), String> {
        let sent = send(self.0.as_raw_fd(), frame, MsgFlags::empty());
        sent.map(drop).map_err(|error| format!("sending {} bytes: {error}", frame.len()))
    }

    pub(super) fn receive(&self) -> Result<Option<Vec<u8>>, String> {
        let mut frame = vec![0; 2048];
        match recv(self.0.as_raw_fd(), &mut frame, MsgFlags::empty()) {
            Ok(len) => {
                frame.truncate(len);
                Ok(Some(frame))
            }
            Err(Errno::EAGAIN) => Ok(None),
            Err(error) => Err(format!("receiving: {error}")),
        }
    }
}
