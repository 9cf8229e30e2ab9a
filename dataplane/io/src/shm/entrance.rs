//! Where workers come to a box: who is let in, and with which memory.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;

use arrayvec::ArrayVec;
use nix::sys::eventfd::EventFd;
use weft_wire::Nanos;
use weft_wire::frame::multicast::{group_of, memory_base};
use weft_wire::frame::{ETHERNET_LEN, UdpAddr};

use super::cast::CastWriter;
use super::door::{self, Closer, Heard, Minded};
use super::hello::{self, Answer, Hello, ROWS_MAX, Refusal};
use super::region::Region;
use super::ring::{Direction, Geometry, Putter, Taker};
use super::{LINKS_MAX, ShmCounts, ShmError, WAITING_MAX, count};
use crate::wake::{self, Bell, Waker};

/// A worker that was let in.
#[derive(Debug)]
pub(super) struct Link {
    stream: Minded<UnixStream>,
    pub(super) up: Taker,
    pub(super) down: Putter,
    /// Wakes the worker.
    event: EventFd,
    /// By which it wakes the box.
    _bell: Bell,
    /// It sleeps, and there is something for it.
    is_owed: bool,
    bursts_owed: u32,
    /// Its first address; `lanes` UDP ports from there on are its own.
    local: UdpAddr,
    lanes: u16,
    /// The multicast addresses that it hears, at as many UDP ports as it has lanes.
    hears: ArrayVec<UdpAddr, ROWS_MAX>,
}

impl Link {
    /// True when this is one of the worker's addresses.
    #[inline]
    pub(super) fn owns(&self, addr: UdpAddr) -> bool {
        addr.port().wrapping_sub(self.local.port()) < self.lanes && addr.is_same_host(self.local)
    }

    /// True when the worker hears this multicast address.
    pub(super) fn hears(&self, group: UdpAddr) -> bool {
        let is_heard = |heard: &UdpAddr| {
            heard.is_same_host(group) && group.port().wrapping_sub(heard.port()) < self.lanes
        };
        self.hears.iter().any(is_heard)
    }

    /// Shows the worker what was put in. If it sleeps it is to be woken, but not for each frame:
    /// who is woken for one takes the CPU from whoever makes the next.
    pub(super) fn publish(&mut self) {
        self.is_owed |= self.down.publish();
        self.bursts_owed += u32::from(self.is_owed);
        if self.bursts_owed >= BURSTS_OWED_MAX {
            self.wake();
        }
    }

    /// Wakes the worker if it is to be.
    pub(super) fn wake(&mut self) {
        if self.is_owed {
            wake::ring(self.event.as_fd());
        }
        (self.is_owed, self.bursts_owed) = (false, 0);
    }

    /// True when the worker's process has ended, or it has left. It has nothing to say.
    pub(super) fn is_over(&self) -> bool {
        door::has_spoken(&self.stream)
    }

    fn overlaps(&self, hello: &Hello) -> bool {
        let first = UdpAddr::from(hello.local);
        let of = |port: u16, lanes: u16| u32::from(port)..u32::from(port) + u32::from(lanes);
        let (ours, theirs) = (of(self.local.port(), self.lanes), of(first.port(), hello.lanes));
        first.is_same_host(self.local) && ours.start < theirs.end && theirs.start < ours.end
    }
}

/// Somebody who has come.
#[derive(Debug)]
struct Caller {
    stream: Minded<UnixStream>,
    since: Nanos,
    /// It had nothing to say when it was first asked.
    was_silent: bool,
}

/// The rendezvous of a box.
#[derive(Debug)]
pub(super) struct Entrance {
    listener: Minded<UnixListener>,
    path: PathBuf,
    /// Users beside this one and root.
    users: Vec<u32>,
    closer: Closer,
    /// Who has come and said nothing yet.
    waiting: ArrayVec<Caller, WAITING_MAX>,
    /// Of every worker's rings.
    geometry: Geometry,
    mtu: usize,
    /// The UDP port of the lane that waits here, from which sums for all go.
    udp_port: u16,
    /// Where the multicast addresses of rows begin.
    pub(super) base: IpAddr,
    /// By which workers read what is for all.
    casts: OwnedFd,
    /// Wakes the box.
    waker: Waker,
    counts: ShmCounts,
}

impl Entrance {
    /// Opens the rendezvous; also returns what is for all workers.
    pub(super) fn open(
        addr: SocketAddr,
        mtu: usize,
        users: &[u32],
        waker: Waker,
        counts: ShmCounts,
    ) -> Result<(Self, CastWriter), ShmError> {
        let failed = |attempt| move |source| ShmError::System { addr, attempt, source };
        let path = door::rendezvous(addr).map_err(failed("make a folder for the rendezvous"))?;
        let closer = Closer::start().map_err(failed("start a thread"))?;
        let listener = door::listen(&path, !users.is_empty()).map_err(|source| {
            if source.kind() == ErrorKind::AddrInUse {
                return ShmError::Taken { addr };
            }
            failed("open the rendezvous")(source)
        })?;
        let (listener, users) = (closer.mind(listener), users.to_vec());
        let geometry = Geometry::of(mtu + ETHERNET_LEN);
        let casts = CastWriter::create(geometry);
        let (writer, casts) = casts.map_err(failed("take memory for all workers"))?;
        let (waiting, base) = (ArrayVec::new(), memory_base(addr.ip()));
        let udp_port = addr.port();
        let entrance = Self {
            listener,
            path,
            users,
            closer,
            waiting,
            geometry,
            mtu,
            udp_port,
            base,
            casts,
            waker,
            counts,
        };
        Ok((entrance, writer))
    }

    /// Lets in at most one worker of those that have come. One whose process has ended makes room
    /// for another at its address.
    pub(super) fn look(&mut self, now: Nanos, links: &mut Vec<Link>) {
        for _ in 0..CALLERS_PER_LOOK {
            if self.closer.is_full() {
                count(&self.counts.0.held_up);
                break;
            }
            if !self.make_room() {
                break;
            }
            let Ok((stream, _)) = self.listener.accept() else { break };
            let stream = self.closer.mind(stream);
            self.waiting.push(Caller { stream, since: now, was_silent: false });
            // Another user's program is not waited for.
            if !self.is_trusted(self.waiting.len() - 1) {
                self.refuse(self.waiting.len() - 1, Refusal::Owner);
            }
        }
        for index in (0..self.waiting.len()).rev() {
            let caller = &mut self.waiting[index];
            match door::hear(&caller.stream) {
                Heard::Nothing if now.since(caller.since).0 < PATIENCE_NS => {
                    caller.was_silent = true;
                }
                Heard::Nothing | Heard::End => drop(self.waiting.swap_remove(index)),
                Heard::Nonsense => self.refuse(index, Refusal::Malformed),
                Heard::Rights => self.refuse(index, Refusal::Rights),
                Heard::Message(message) => {
                    match Hello::parse(&message).and_then(|hello| self.admit(index, &hello, links))
                    {
                        Ok(link) => links.push(link),
                        Err(refusal) => self.refuse(index, refusal),
                    }
                    return;
                }
            }
        }
    }

    /// Makes room for one more: whoever has something to say says it at once, so one that had
    /// nothing gives way. False when all are still to be heard.
    fn make_room(&mut self) -> bool {
        if !self.waiting.is_full() {
            return true;
        }
        let silent = self.waiting.iter().enumerate().filter(|(_, caller)| caller.was_silent);
        let oldest = silent.min_by_key(|(_, caller)| caller.since).map(|(index, _)| index);
        oldest.map(|index| self.waiting.swap_remove(index)).is_some()
    }

    fn is_trusted(&self, index: usize) -> bool {
        let uid = door::peer_uid(&self.waiting[index].stream);
        uid.is_ok_and(|uid| door::is_trusted(uid, &self.users))
    }

    fn admit(
        &mut self,
        index: usize,
        hello: &Hello,
        links: &mut Vec<Link>,
    ) -> Result<Link, Refusal> {
        let stream = &self.waiting[index].stream;
        if usize::try_from(hello.mtu).map_or(true, |mtu| mtu > self.mtu) {
            return Err(Refusal::Mtu);
        }
        if let Some(at) = links.iter().position(|link| link.overlaps(hello)) {
            if !links[at].is_over() {
                return Err(Refusal::InUse);
            }
            links.swap_remove(at);
            count(&self.counts.0.ended);
        }
        prove_free(hello)?;
        if links.len() >= LINKS_MAX {
            return Err(Refusal::Full);
        }
        let memory = || -> io::Result<(Region, Bell, EventFd)> {
            let (region, fd) = Region::create(self.geometry.region_bytes())?;
            hello::write_header(region.words(), self.geometry, door::own_uid());
            let bell = self.waker.share()?;
            let (event, heard) = wake::bell()?;
            let welcome = Answer::Welcome(self.geometry, self.base).emit();
            let fds = [fd.as_fd(), self.casts.as_fd(), bell.as_fd(), heard.0.as_fd()];
            door::say(stream, &welcome, &fds.map(|fd| fd.as_raw_fd()))?;
            Ok((region, bell, event))
        };
        let (region, bell, event) = memory().map_err(|_| Refusal::Memory)?;
        let region = Arc::new(region);
        let groups = hello.rows.iter().filter_map(|row| group_of(self.base, *row));
        let hears = groups.map(|group| SocketAddr::new(group, self.udp_port).into()).collect();
        let Caller { stream, .. } = self.waiting.swap_remove(index);
        count(&self.counts.0.joined);
        Ok(Link {
            stream,
            up: Taker::new(Arc::clone(&region), self.geometry, Direction::Up),
            down: Putter::new(region, self.geometry, Direction::Down),
            event,
            _bell: bell,
            is_owed: false,
            bursts_owed: 0,
            local: hello.local.into(),
            lanes: hello.lanes,
            hears,
        })
    }

    fn refuse(&mut self, index: usize, refusal: Refusal) {
        let Caller { stream, .. } = self.waiting.swap_remove(index);
        count(&self.counts.0.refused[refusal as usize - 1]);
        // Who does not listen any more needs no answer.
        let _ = door::say(&stream, &Answer::Refused(refusal).emit(), &[]);
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Only addresses of this host can be bound to, and only those that no other process has.
fn prove_free(hello: &Hello) -> Result<(), Refusal> {
    for lane in 0..hello.lanes {
        let addr = (hello.local.ip(), hello.local.port() + lane);
        UdpSocket::bind(addr).map_err(|error| match error.raw_os_error() {
            Some(libc::EADDRINUSE) => Refusal::InUse,
            Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => Refusal::Memory,
            _ => Refusal::NotHere,
        })?;
    }
    Ok(())
}

/// Bursts with something for a sleeping worker after which it is woken, also where the box has not
/// become idle meanwhile.
const BURSTS_OWED_MAX: u32 = 4;
/// Callers that are let into the room at one look: so many are gone through in no time.
const CALLERS_PER_LOOK: usize = 64;
/// How long one may take to say it.
const PATIENCE_NS: u64 = 1_000_000_000;
