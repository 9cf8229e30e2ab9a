//! How ports wait: an eventfd that a port polls beside its sockets ends its wait from another
//! thread, and a wait may begin with letting others run.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::rest::{Rest, Yielding};

/// Lets others run, if that pays; false where the port is to sleep.
pub(crate) fn yield_core(yielding: &mut Yielding) -> bool {
    if yielding.decide() == Rest::Sleep {
        return false;
    }
    let begun = Instant::now();
    std::thread::yield_now();
    yielding.note_yield(begun.elapsed());
    true
}

/// Ends a [`Port::wait`](crate::Port::wait) of the port that gave it: the one under way, or else
/// the next.
#[derive(Clone, Debug)]
pub struct Waker(Arc<EventFd>);

impl Waker {
    /// `None` when the system has no descriptor left.
    pub(crate) fn new() -> Option<Self> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        EventFd::from_flags(flags).ok().map(|event| Self(Arc::new(event)))
    }

    /// Wakes. Any number of calls before a wait end that one wait.
    pub fn wake(&self) {
        // Fails only when the counter is full: then it wakes anyway.
        let _ = self.0.write(1);
    }

    /// Forgets the calls so far.
    pub(crate) fn clear(&self) {
        let _ = self.0.read();
    }

    /// A descriptor by which another process may wake.
    pub(crate) fn share(&self) -> std::io::Result<OwnedFd> {
        self.as_fd().try_clone_to_owned()
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
