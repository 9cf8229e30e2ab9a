//! The Unix socket at which worker and box meet: system calls alone.
//!
//! A message has a fixed length and is sent at once; one that comes in pieces is no message. The
//! connection stays open while the memory is shared: its end is how either side learns that the
//! other process has ended, however it did.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, getsockopt, recvmsg, sendmsg, sockopt,
};

use super::hello::{MESSAGE_LEN, Message};
use super::region;

/// Descriptors that come with a welcome: the memory, what is for all workers, what wakes the box,
/// what wakes the worker.
pub(super) const DESCRIPTORS: usize = 4;

/// Listens at a name in the abstract namespace.
pub(super) fn listen(name: &str) -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&UnixAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Calls whoever listens at a name.
pub(super) fn call(name: &str) -> io::Result<UnixStream> {
    let stream = UnixStream::connect_addr(&UnixAddr::from_abstract_name(name)?)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// The user that the process at the other end belonged to when it connected or listened.
pub(super) fn peer_uid(stream: &UnixStream) -> io::Result<u32> {
    Ok(getsockopt(stream, sockopt::PeerCredentials)?.uid())
}

/// True when this process may share memory with one of that user.
pub(super) fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == own_uid()
}

/// This process's user.
pub(super) fn own_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// What is at the other end of a connection.
#[derive(Debug)]
pub(super) enum Heard {
    /// Nothing yet.
    Nothing,
    /// A message, and the descriptors that came with it.
    Message(Box<Message>, Vec<OwnedFd>),
    /// The other side has ended.
    End,
    /// Something that is no message.
    Nonsense,
}

/// Sends a message with descriptors.
pub(super) fn say(
    stream: &UnixStream,
    message: &Message,
    descriptors: &[&OwnedFd],
) -> io::Result<()> {
    let descriptors: Vec<_> = descriptors.iter().map(|fd| fd.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let rights = if descriptors.is_empty() { &[][..] } else { &rights };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    let parts = [io::IoSlice::new(message)];
    let sent = sendmsg::<()>(stream.as_raw_fd(), &parts, rights, flags, None)?;
    if sent == MESSAGE_LEN { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Hears what the other side has said, without waiting.
pub(super) fn hear(stream: &UnixStream) -> Heard {
    let mut message = [0; MESSAGE_LEN];
    // Room for one more than may come, so that too many show.
    let mut control = cmsg_space!([std::os::fd::RawFd; DESCRIPTORS + 1]);
    let mut parts = [io::IoSliceMut::new(&mut message)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let fd = stream.as_raw_fd();
    let (len, descriptors) = match recvmsg::<()>(fd, &mut parts, Some(&mut control), flags) {
        Ok(received) => {
            let mut descriptors = Vec::new();
            if let Ok(messages) = received.cmsgs() {
                for message in messages {
                    if let ControlMessageOwned::ScmRights(fds) = message {
                        descriptors.extend(region::own(&fds));
                    }
                }
            }
            (received.bytes, descriptors)
        }
        Err(Errno::EAGAIN | Errno::EINTR) => return Heard::Nothing,
        Err(_) => return Heard::End,
    };
    match len {
        0 => Heard::End,
        MESSAGE_LEN => Heard::Message(Box::new(message), descriptors),
        _ => Heard::Nonsense,
    }
}

/// An eventfd that never blocks.
pub(super) fn event() -> io::Result<OwnedFd> {
    use nix::sys::eventfd::{EfdFlags, EventFd};
    let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
    Ok(EventFd::from_flags(flags)?.into())
}

/// Wakes whoever sleeps on an event.
pub(super) fn ring(event: &OwnedFd) {
    // Fails only when the counter is full: then the sleeper wakes anyway.
    let _ = nix::unistd::write(event, &1_u64.to_ne_bytes());
}

/// Forgets that an event was rung.
pub(super) fn forget(event: &OwnedFd) {
    let _ = nix::unistd::read(event.as_fd(), &mut [0; 8]);
}
