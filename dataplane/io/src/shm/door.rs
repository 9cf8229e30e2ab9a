//! The Unix socket at which worker and box meet: system calls alone.
//!
//! A message has a fixed length and is sent at once; one that comes in pieces is no message. The
//! connection stays open while the memory is shared: its end is how either side learns that the
//! other process has ended, however it did.
//!
//! Invariant: no call here waits for another process. A box takes no descriptor from a caller, and
//! a thread of its own ([`Closer`]) closes a socket with something unread in it, for closing what
//! another program has passed may take as long as that program likes.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, MsgFlags, Shutdown, getsockopt, recv, recvmsg, sendmsg, shutdown, sockopt,
};
use nix::unistd::User;
use socket2::{Domain, SockAddr, Socket, Type};

use super::hello::{MESSAGE_LEN, Message};
use super::region;
use super::{CLOSING_MAX, GUESTS_MAX};

/// Descriptors that come with a welcome: the memory, the memory for all workers, the eventfd that
/// the worker rings, the epoll instance that it sleeps on.
pub(super) const DESCRIPTORS: usize = 4;

/// Folders for rendezvous of a user's boxes, best first: that user and root alone can put a name
/// there.
fn folders(uid: u32) -> [PathBuf; 2] {
    let own = if uid == 0 { "/run/weft".into() } else { format!("/run/user/{uid}/weft") };
    [own.into(), format!("/dev/shm/weft-{uid}").into()]
}

/// The name of a rendezvous in its folder: addresses are those of a network namespace.
fn name(addr: SocketAddr) -> String {
    let namespace = fs::metadata("/proc/thread-self/ns/net").map_or(0, |it| it.ino());
    format!("{namespace}@{addr}")
}

/// Names the rendezvous of this user's box at `addr`, and makes its folder.
///
/// # Errors
/// There is none that is this user's alone.
pub fn rendezvous(addr: SocketAddr) -> io::Result<PathBuf> {
    let mut outcome = Err(ErrorKind::NotFound.into());
    for folder in folders(own_uid()) {
        outcome = own_folder(&folder).map(|()| folder.join(name(addr)));
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Makes a folder in which this user alone may put names, and in which others may look them up.
fn own_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o711).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != own_uid() || found.mode() & 0o022 != 0 {
        let text = format!("{} is not a folder of this user alone", folder.display());
        return Err(io::Error::new(ErrorKind::PermissionDenied, text));
    }
    fs::set_permissions(folder, Permissions::from_mode(0o711))
}

/// Listens at a path; whether other users' programs may connect is up to `is_open`.
pub(super) fn listen(path: &Path, is_open: bool) -> io::Result<UnixListener> {
    let addr = SockAddr::unix(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    // A box that was killed leaves its name, and a call there is refused.
    if connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
        fs::remove_file(path)?;
    }
    socket.bind(&addr)?;
    fs::set_permissions(path, Permissions::from_mode(if is_open { 0o666 } else { 0o600 }))?;
    region::refuse_rights(&socket);
    socket.listen(BACKLOG)?;
    Ok(UnixListener::from(OwnedFd::from(socket)))
}

/// Calls the box that waits at `addr`, if it is root's or this user's.
///
/// # Errors
/// `WouldBlock`: its queue of callers is full. `PermissionDenied`: it does not serve this user, or
/// is another user's. Else there is no box.
pub(super) fn call(addr: SocketAddr) -> io::Result<UnixStream> {
    let name = name(addr);
    let mut outcome = Err(ErrorKind::NotFound.into());
    let own = folders(own_uid()).into_iter();
    for folder in own.chain(folders(0)) {
        match connect(&folder.join(&name)) {
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {}
            other => {
                outcome = other;
                break;
            }
        }
    }
    let stream = outcome?;
    if peer_uid(&stream).is_ok_and(|uid| is_trusted(uid, &[])) {
        Ok(stream)
    } else {
        Err(ErrorKind::PermissionDenied.into())
    }
}

fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(UnixStream::from(OwnedFd::from(socket)))
}

/// The user that the process at the other end belonged to when it connected or listened.
pub(super) fn peer_uid(stream: &UnixStream) -> io::Result<u32> {
    Ok(getsockopt(stream, sockopt::PeerCredentials)?.uid())
}

/// True when this process may share memory with one of that user.
pub(super) fn is_trusted(uid: u32, users: &[u32]) -> bool {
    uid == 0 || uid == own_uid() || users.contains(&uid)
}

/// This process's user.
pub(super) fn own_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// The number of a user that is given by name or number; `None` where this host has none of that
/// name.
#[must_use]
pub fn user_id(name: &str) -> Option<u32> {
    let named = || Some(User::from_name(name).ok()??.uid.as_raw());
    name.parse().ok().or_else(named)
}

/// What is at the other end of a connection.
#[derive(Debug)]
pub(super) enum Heard {
    /// Nothing yet.
    Nothing,
    /// A message.
    Message(Box<Message>),
    /// The other side has ended.
    End,
    /// Something that is no message.
    Nonsense,
    /// Descriptors, which were left where they are.
    Rights,
}

/// Sends a message with descriptors.
pub(super) fn say(stream: &UnixStream, message: &Message, descriptors: &[RawFd]) -> io::Result<()> {
    let rights = [ControlMessage::ScmRights(descriptors)];
    let rights = if descriptors.is_empty() { &[][..] } else { &rights };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    let parts = [io::IoSlice::new(message)];
    let sent = sendmsg::<()>(stream.as_raw_fd(), &parts, rights, flags, None)?;
    if sent == MESSAGE_LEN { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

/// Reads the other side's message, without waiting, and leaves one that has descriptors.
pub(super) fn hear(stream: &UnixStream) -> Heard {
    let mut message = [0; MESSAGE_LEN];
    let len = match peek(stream, &mut message) {
        Ok(len) => len,
        Err(heard) => return heard,
    };
    // As much as was seen, for the next bytes may come with descriptors.
    match recv(stream.as_raw_fd(), &mut message[..len], MsgFlags::MSG_DONTWAIT) {
        Ok(MESSAGE_LEN) => Heard::Message(Box::new(message)),
        Ok(_) => Heard::Nonsense,
        Err(_) => Heard::End,
    }
}

/// True when the other side has sent something or has ended.
pub(super) fn has_spoken(stream: &UnixStream) -> bool {
    !matches!(peek(stream, &mut [0; 1]), Err(Heard::Nothing))
}

/// Looks at what comes next; descriptors with it show by having no room.
fn peek(stream: &UnixStream, bytes: &mut [u8]) -> Result<usize, Heard> {
    let mut parts = [io::IoSliceMut::new(bytes)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
    match recvmsg::<()>(stream.as_raw_fd(), &mut parts, None, flags) {
        Ok(seen) if seen.flags.contains(MsgFlags::MSG_CTRUNC) => Err(Heard::Rights),
        Ok(seen) if seen.bytes == 0 => Err(Heard::End),
        Ok(seen) => Ok(seen.bytes),
        Err(Errno::EAGAIN | Errno::EINTR) => Err(Heard::Nothing),
        Err(_) => Err(Heard::End),
    }
}

/// Reads a box's answer and takes the descriptors that come with it.
pub(super) fn hear_answer(stream: &UnixStream) -> (Heard, Vec<OwnedFd>) {
    let mut message = [0; MESSAGE_LEN];
    // Room for one more than may come, so that too many show.
    let mut control = cmsg_space!([RawFd; DESCRIPTORS + 1]);
    let mut parts = [io::IoSliceMut::new(&mut message)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let fd = stream.as_raw_fd();
    let len = match recvmsg::<()>(fd, &mut parts, Some(&mut control), flags) {
        Ok(received) => received.bytes,
        Err(Errno::EAGAIN | Errno::EINTR) => return (Heard::Nothing, Vec::new()),
        Err(_) => return (Heard::End, Vec::new()),
    };
    let descriptors = region::own(&control);
    let heard = match len {
        0 => Heard::End,
        MESSAGE_LEN => Heard::Message(Box::new(message)),
        _ => Heard::Nonsense,
    };
    (heard, descriptors)
}

/// Closes what others have filled, in a thread of its own.
#[derive(Clone, Debug)]
pub(super) struct Closer {
    closing: SyncSender<OwnedFd>,
    count: Arc<AtomicUsize>,
}

impl Closer {
    pub(super) fn start() -> io::Result<Self> {
        let (closing, to_close) = sync_channel(CLOSING_MAX + GUESTS_MAX);
        let count = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&count);
        let close = move || {
            for fd in to_close {
                drop::<OwnedFd>(fd);
                left.fetch_sub(1, Ordering::Relaxed);
            }
        };
        std::thread::Builder::new().name("weft-shm-close".to_owned()).spawn(close)?;
        Ok(Self { closing, count })
    }

    /// True while it is held up, and the box is to let in no further caller.
    pub(super) fn is_full(&self) -> bool {
        self.count.load(Ordering::Relaxed) >= CLOSING_MAX
    }

    /// Wraps what it is to close.
    pub(super) fn mind<T: Into<OwnedFd>>(&self, it: T) -> Minded<T> {
        Minded { it: Some(it), closer: self.clone() }
    }
}

/// A descriptor that a [`Closer`] closes once this is dropped, if closing it may take long.
#[derive(Debug)]
pub(super) struct Minded<T: Into<OwnedFd>> {
    it: Option<T>,
    closer: Closer,
}

impl<T: Into<OwnedFd>> Deref for Minded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.it.as_ref().expect("it is there until it is dropped")
    }
}

impl<T: Into<OwnedFd>> Drop for Minded<T> {
    fn drop(&mut self) {
        let Some(fd) = self.it.take().map(Into::into) else { return };
        // The other side learns it at once, and has nothing more come.
        let _ = shutdown(fd.as_raw_fd(), Shutdown::Both);
        if is_empty(&fd) {
            return;
        }
        self.closer.count.fetch_add(1, Ordering::Relaxed);
        let sent = self.closer.closing.try_send(fd);
        debug_assert!(sent.is_ok(), "there is room for all that come in while it has some");
    }
}

/// True for a connection that was shut down with nothing unread in it, urgent or not.
fn is_empty(fd: &OwnedFd) -> bool {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
    let peek = |flags| recv(fd.as_raw_fd(), &mut [0], flags);
    peek(flags) == Ok(0) && peek(flags | MsgFlags::MSG_OOB).is_err()
}

/// As many callers wait as the kernel has room for.
const BACKLOG: i32 = -1;

#[cfg(test)]
mod tests;
