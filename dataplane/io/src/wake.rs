//! How ports wait: a descriptor that a port polls beside its sockets ends its wait from another
//! thread or process, and a wait may begin with letting others run.
//!
//! A ring is a write to an eventfd that is never read: its counter would take 500 years to fill, so
//! the write never waits, whatever another holder of the eventfd has made of its flags. The sleeper
//! polls an epoll instance, its own alone, that notes each ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
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
pub struct Waker(Arc<Bells>);

#[derive(Debug)]
struct Bells {
    heard: Epoll,
    own: EventFd,
}

impl Waker {
    /// `None` when the system has no descriptor left.
    pub(crate) fn new() -> Option<Self> {
        let (own, heard) = bell().ok()?;
        Some(Self(Arc::new(Bells { heard, own })))
    }

    /// Wakes. Any number of calls before a wait end that one wait.
    pub fn wake(&self) {
        ring(self.0.own.as_fd());
    }

    /// Forgets the calls so far.
    pub(crate) fn clear(&self) {
        forget(&self.0.heard);
    }

    /// A bell for another process, which wakes as well.
    pub(crate) fn share(&self) -> io::Result<Bell> {
        let event = event()?;
        listen(&self.0.heard, &event)?;
        Ok(Bell { event, waker: self.clone() })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.heard.0.as_fd()
    }
}

/// A bell that another process has; dropped, it wakes no more.
#[derive(Debug)]
pub(crate) struct Bell {
    event: EventFd,
    waker: Waker,
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        let _ = self.waker.0.heard.delete(&self.event);
    }
}

/// Makes a bell: one side rings the first, the other polls and forgets the second.
pub(crate) fn bell() -> io::Result<(EventFd, Epoll)> {
    let event = event()?;
    let heard = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    listen(&heard, &event)?;
    Ok((event, heard))
}

/// Rings a bell; leaves alone a descriptor that is none.
pub(crate) fn ring(bell: BorrowedFd<'_>) {
    let _ = nix::unistd::write(bell, &1_u64.to_ne_bytes());
}

/// Forgets the rings so far. More bells than are asked for at once end one more wait.
pub(crate) fn forget(heard: &Epoll) {
    let _ = heard.wait(&mut [EpollEvent::empty(); 8], EpollTimeout::ZERO);
}

fn event() -> io::Result<EventFd> {
    Ok(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?)
}

/// Makes `heard` note each ring, also of an event that was rung before.
fn listen(heard: &Epoll, event: &EventFd) -> io::Result<()> {
    let edges = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0);
    Ok(heard.add(event, edges)?)
}
