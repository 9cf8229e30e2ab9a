//! A worker's connection to its box: calling it, hearing its answer, mapping and judging what it
//! shares, and sleeping until it has sent something or has ended. System calls, and what they say.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::Epoll;
use nix::sys::time::TimeSpec;
use weft_wire::frame::ETHERNET_LEN;

use super::ShmError;
use super::cast::CastReader;
use super::door::{self, DESCRIPTORS, Heard};
use super::hello::{self, Answer};
use super::region::Region;
use super::ring::{Direction, Geometry, HEADER_WORDS, Putter, Taker};
use super::worker::ShmConfig;
use crate::udp::SOCKETS_MAX;
use crate::wake;

/// A connection with its memory.
#[derive(Debug)]
pub(super) struct Shared {
    stream: UnixStream,
    pub(super) up: Putter,
    pub(super) down: Taker,
    pub(super) frame_len_max: usize,
    /// Where the multicast addresses of the box's rows begin.
    pub(super) base: IpAddr,
    /// Wakes the box.
    pub(super) bell: OwnedFd,
    /// Notes when the box wakes this worker.
    heard: Epoll,
    /// The box has ended; what it sent before is still taken.
    pub(super) is_over: bool,
}

impl Shared {
    /// Sleeps until the box has sent something or has ended.
    pub(super) fn wait(&mut self, timeout: Duration) {
        wait_for_any(&mut [self], timeout);
    }

    /// Takes note of what has ended a sleep.
    fn note_woken(&mut self, is_rung: bool, is_said: bool) {
        if is_rung {
            wake::forget(&self.heard);
        }
        // The box has nothing to say any more: whatever it says is an end.
        self.is_over = is_said && door::has_spoken(&self.stream);
    }
}

/// Sleeps until a box, or a lane of one, has sent something or has ended.
pub(super) fn wait_for_any(all: &mut [&mut Shared], timeout: Duration) {
    if all.iter().any(|shared| shared.is_over) {
        return;
    }
    // Each says that it sleeps, so that whoever sends rings.
    if all.iter_mut().all(|shared| shared.down.fall_asleep()) {
        let woken = woken(all, timeout);
        for (shared, woken) in all.iter_mut().zip(woken.chunks_exact(2)) {
            shared.note_woken(woken[0], woken[1]);
        }
    }
    for shared in all {
        shared.down.wake_up();
    }
}

/// Calls the box and says who this is.
pub(super) fn call(config: &ShmConfig) -> Result<UnixStream, ShmError> {
    let addr = config.target;
    let failed = |attempt| move |source| ShmError::System { addr, attempt, source };
    // A full queue of callers is a box that is silent.
    let stream = door::call(addr).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => ShmError::Silent { addr },
        std::io::ErrorKind::PermissionDenied => ShmError::Owner { addr },
        _ => ShmError::NoBox { addr },
    })?;
    door::say(&stream, &config.hello(), &[]).map_err(failed("greet the box"))?;
    Ok(stream)
}

/// What the box has answered, if it has.
pub(super) fn hear(config: &ShmConfig, stream: &UnixStream) -> Option<Result<Welcome, ShmError>> {
    let (addr, local) = (config.target, config.local);
    let unusable = |problem: &str| ShmError::Memory { addr, problem: problem.to_owned() };
    let (heard, fds) = door::hear_answer(stream);
    let message = match heard {
        Heard::Nothing => return None,
        Heard::Message(message) => message,
        Heard::End => return Some(Err(ShmError::Silent { addr })),
        Heard::Nonsense | Heard::Rights => return Some(Err(unusable("its answer makes no sense"))),
    };
    Some(match Answer::parse(&message) {
        Answer::Welcome(geometry, base) => <[OwnedFd; DESCRIPTORS]>::try_from(fds)
            .map(|fds| Welcome { geometry, base, fds })
            .map_err(|_| unusable("it came without its descriptors")),
        Answer::Refused(refusal) => Err(ShmError::Refused { addr, local, refusal }),
        Answer::Version(version) => Err(ShmError::Version { addr, version }),
        Answer::Malformed => Err(unusable("its answer makes no sense")),
    })
}

/// What the box lets a worker in with.
#[derive(Debug)]
pub(super) struct Welcome {
    geometry: Geometry,
    base: IpAddr,
    fds: [OwnedFd; DESCRIPTORS],
}

/// Of each, whether it was rung, and whether its box had something to say.
fn woken(all: &[&mut Shared], timeout: Duration) -> ArrayVec<bool, { 2 * SOCKETS_MAX }> {
    let fds = all.iter().flat_map(|it| [it.heard.0.as_fd(), it.stream.as_fd()]);
    let fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    let mut fds: ArrayVec<PollFd<'_>, { 2 * SOCKETS_MAX }> = fds.collect();
    poll_for(&mut fds, timeout);
    fds.iter().map(|fd| fd.any() == Some(true)).collect()
}

/// Maps the memory and judges it.
pub(super) fn join(
    config: &ShmConfig,
    stream: UnixStream,
    welcome: Welcome,
) -> Result<Shared, ShmError> {
    let Welcome { geometry, base, fds: [memory, casts, bell, heard] } = welcome;
    let addr = config.target;
    let unusable = |problem: String| ShmError::Memory { addr, problem };
    let region = Region::map(memory.as_fd(), geometry.region_bytes())
        .map_err(|error| unusable(error.to_string()))?;
    let casts =
        CastReader::map(casts.as_fd(), geometry).map_err(|error| unusable(error.to_string()))?;
    let owner = door::peer_uid(&stream).map_err(|error| unusable(error.to_string()))?;
    let header = &region.words()[..HEADER_WORDS];
    if let Some(problem) = hello::header_problem(header, geometry, owner) {
        return Err(unusable(problem.to_owned()));
    }
    if geometry.frame_len_max < config.mtu + ETHERNET_LEN {
        return Err(unusable("its frames are shorter than this worker's MTU".to_owned()));
    }
    let region = Arc::new(region);
    Ok(Shared {
        stream,
        up: Putter::new(Arc::clone(&region), geometry, Direction::Up),
        down: Taker::new(region, geometry, Direction::Down).with_casts(casts),
        frame_len_max: geometry.frame_len_max,
        base,
        bell,
        heard: Epoll(heard),
        is_over: false,
    })
}

/// Sleeps until something is to be read; says of which.
pub(super) fn sleep<const COUNT: usize>(
    fds: &[&dyn AsFd; COUNT],
    timeout: Duration,
) -> [bool; COUNT] {
    let mut fds = fds.map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN));
    poll_for(&mut fds, timeout);
    fds.map(|fd| fd.any() == Some(true))
}

fn poll_for(fds: &mut [PollFd<'_>], timeout: Duration) {
    // An interrupted wait returns early, which `Port::wait` allows.
    let _ = ppoll(fds, Some(TimeSpec::from_duration(timeout)), None);
}
