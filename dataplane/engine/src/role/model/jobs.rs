//! The jobs of a server or a replica on one port: whose a frame, a command or an event is.
//!
//! What [`crate::role::server::Server`] and [`crate::role::replica::Replica`] do alike before a job
//! decides. Jobs take turns to send, so that a busy one does not silence the others (I6).

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use weft_control::{Command, Event, HoldingError, InstallError};
use weft_wire::frame::{Datagram, Endpoint, UdpAddr};
use weft_wire::header::{HEADER_LEN, Header};
use weft_wire::hello::Integrity;
use weft_wire::{JobId, Nanos};

use crate::admit::StrangersQuota;
use crate::admit::quota::Strangers;
use crate::admit::refuse::{hello_in, refuse_unknown};
use crate::classify::{Class, classify};
use crate::drops::{DropCounters, DropReason};
use crate::role::Verdict;
use crate::role::channel::{ChannelHost, Peer};
use crate::role::model::ModelConfigError;
use crate::send::datagram::is_intact;
use crate::send::train::Trains;
use crate::table::JOBS_MAX;

/// A frame under examination.
pub(crate) struct Incoming<'a> {
    pub(crate) now: Nanos,
    pub(crate) udp: Datagram,
    pub(crate) header: Header,
    pub(crate) buffer: &'a mut [u8],
    pub(crate) trains: &'a mut Trains,
}

impl Incoming<'_> {
    pub(crate) fn source(&self) -> UdpAddr {
        self.udp.source(self.buffer)
    }

    /// Checks cookie and source; a peer that lost its channel is told so.
    pub(crate) fn identify(&mut self, host: &ChannelHost, peer: Peer) -> Result<(), Refusal> {
        let source = self.source();
        host.identify(peer, self.header.cookie, source).map_err(|reason| {
            let lost = matches!(reason, DropReason::StaleEpoch | DropReason::BadCookie);
            let reply = lost.then(|| host.refuse_stale(peer, &self.udp, &self.header, self.buffer));
            Refusal { reason, reply: reply.flatten() }
        })
    }

    /// The box that a frame is from which names none, by its address.
    pub(crate) fn box_at_source(&self, host: &ChannelHost) -> Result<Peer, DropReason> {
        let peer = host.peer_at(self.source()).filter(|peer| matches!(peer, Peer::Box(_)));
        peer.ok_or(DropReason::WrongSource)
    }

    pub(crate) fn check_intact(&self, integrity: Integrity) -> Result<(), DropReason> {
        let is_intact = is_intact(integrity, self.buffer, self.udp.payload_range());
        if is_intact { Ok(()) } else { Err(DropReason::Integrity) }
    }

    /// The payload behind the header, and the length of the frame.
    pub(crate) fn payload(&mut self) -> (&mut [u8], u64) {
        let range = self.udp.payload_range();
        (&mut self.buffer[range.start + HEADER_LEN..range.end], range.end as u64)
    }
}

/// Why a frame changed nothing, and what its sender is told about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) reason: DropReason,
    /// Length of the frame that now stands in the buffer.
    pub(crate) reply: Option<usize>,
}

impl Refusal {
    /// Counts the refusal and says what becomes of the frame.
    pub(crate) fn settle(self, drops: &mut DropCounters) -> Verdict {
        drops.count(self.reason);
        match self.reply {
            Some(len) => Verdict::Send { len },
            None => Verdict::Drop(self.reason),
        }
    }
}

impl From<DropReason> for Refusal {
    fn from(reason: DropReason) -> Self {
        Self { reason, reply: None }
    }
}

/// One job of a role that holds a model.
pub(crate) trait ModelJob {
    fn id(&self) -> JobId;
    fn handle_frame(&mut self, incoming: &mut Incoming<'_>) -> Result<Verdict, Refusal>;
    fn handle_command(&mut self, now: Nanos, command: &Command);
    fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize>;
    fn poll_timeout(&self) -> Nanos;
    fn poll_event(&mut self) -> Option<Event>;
}

/// The jobs of one port.
#[derive(Debug)]
pub(crate) struct Jobs<J> {
    local: Endpoint,
    local_addr: UdpAddr,
    /// For the HELLOs that no job knows.
    strangers: Strangers,
    jobs: Vec<J>,
    /// Job index on the wire to its place in `jobs`.
    by_id: Vec<Option<u8>>,
    /// The job that sent last.
    turn: usize,
    /// Answers about what is not served here; the oldest give way.
    foreign: VecDeque<(JobId, Event)>,
}

impl<J: ModelJob> Jobs<J> {
    pub(crate) fn new(local: Endpoint, capacity: usize) -> Self {
        Self {
            local,
            local_addr: local.addr.into(),
            strangers: Strangers::new(StrangersQuota::default(), 0),
            jobs: Vec::with_capacity(capacity),
            by_id: vec![None; JOBS_MAX],
            turn: 0,
            foreign: VecDeque::with_capacity(FOREIGN_MAX),
        }
    }

    /// Adds a job, unless its id is out of range or taken.
    pub(crate) fn add(&mut self, job: J) -> Result<(), ModelConfigError> {
        let problem = "must be below 256, and different for each job";
        let error = ModelConfigError { field: "job", problem };
        let place = self.by_id.get_mut(usize::from(job.id().0)).ok_or(error)?;
        if place.is_some() {
            return Err(error);
        }
        *place = Some(u8::try_from(self.jobs.len()).map_err(|_| error)?);
        self.jobs.push(job);
        Ok(())
    }

    pub(crate) fn handle_frame(
        &mut self,
        now: Nanos,
        buffer: &mut [u8],
        len: usize,
        trains: &mut Trains,
    ) -> Result<Verdict, Refusal> {
        match classify(&buffer[..len], |port| port == self.local_addr.port()) {
            Class::Host => Ok(Verdict::Host),
            Class::Drop(reason) => Err(reason.into()),
            Class::Weft(udp, header) => {
                if !udp.target(buffer).is_same_host(self.local_addr) {
                    return Err(DropReason::NotForUs.into());
                }
                let Some(index) = self.index(header.job) else {
                    let reply = self.refuse_unknown(now, &udp, &header, buffer);
                    return Err(Refusal { reason: DropReason::UnknownJob, reply });
                };
                trains.on_frame(now, len);
                let incoming = &mut Incoming { now, udp, header, buffer, trains };
                self.jobs[index].handle_frame(incoming).map_err(|refusal| match refusal.reason {
                    DropReason::UnknownGroup => Refusal {
                        reply: self.refuse_unknown(now, &udp, &header, incoming.buffer),
                        ..refusal
                    },
                    _ => refusal,
                })
            }
        }
    }

    /// A HELLO of a job or row that is not served here is told so (SPEC#handshake).
    fn refuse_unknown(
        &mut self,
        now: Nanos,
        udp: &Datagram,
        header: &Header,
        buffer: &mut [u8],
    ) -> Option<usize> {
        hello_in(udp, header, buffer)?;
        self.strangers.take(udp.source(buffer), now, udp.payload_range().end).ok()?;
        refuse_unknown(self.local, 1, udp, header, buffer)
    }

    pub(crate) fn handle_command(&mut self, now: Nanos, command: &Command) {
        let id = command.job();
        let refused = match (self.index(id), command) {
            // Servers and replicas hold what their file says.
            (_, Command::Holding(command)) => {
                let (holding, error) = (command.holding(), HoldingError::Role);
                Event::HoldingRefused { holding, error }
            }
            (Some(index), _) => return self.jobs[index].handle_command(now, command),
            (None, Command::Install(descriptor)) => {
                let (group, error) = (descriptor.group, InstallError::UnknownJob);
                Event::Refused { group, error }
            }
            // Groups of a job that is not served here need no closing.
            (None, _) => return,
        };
        if self.foreign.len() == FOREIGN_MAX {
            self.foreign.pop_front();
        }
        self.foreign.push_back((id, refused));
    }

    pub(crate) fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        for _ in 0..self.jobs.len() {
            self.turn = (self.turn + 1) % self.jobs.len();
            if let Some(len) = self.jobs[self.turn].poll_transmit(now, frame) {
                return Some(len);
            }
        }
        None
    }

    pub(crate) fn poll_timeout(&self) -> Nanos {
        self.jobs.iter().map(J::poll_timeout).min().unwrap_or(Nanos::MAX)
    }

    pub(crate) fn poll_event(&mut self) -> Option<(JobId, Event)> {
        let foreign = self.foreign.pop_front();
        foreign.or_else(|| self.jobs.iter_mut().find_map(|job| Some((job.id(), job.poll_event()?))))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &J> {
        self.jobs.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut J> {
        self.jobs.iter_mut()
    }

    pub(crate) fn find(&self, id: JobId) -> Option<&J> {
        Some(&self.jobs[self.index(id)?])
    }

    pub(crate) fn find_mut(&mut self, id: JobId) -> Option<&mut J> {
        let index = self.index(id)?;
        self.jobs.get_mut(index)
    }

    fn index(&self, id: JobId) -> Option<usize> {
        self.by_id.get(usize::from(id.0)).copied().flatten().map(usize::from)
    }
}

/// Refused groups whose answers wait to be polled.
const FOREIGN_MAX: usize = 64;
