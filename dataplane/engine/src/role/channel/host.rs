//! The answering end of a job's channels (SPEC#channels).
//!
//! Decides who a frame is from. A HELLO costs no state; a JOIN that proves a fresh round trip
//! draws cookies when it is of a new life, and repeats the same WELCOME when it is not. O(1) per
//! frame; all memory is taken at the start.

use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_wire::frame::{Datagram, Encap, Endpoint, UdpAddr};
use weft_wire::header::{HEADER_LEN, Header, Kind, Outcome};
use weft_wire::hello::{Hello, Integrity, Phase};
use weft_wire::{Cookie, Epoch, GroupId, MEMBERS_MAX, MacAddr, Members};

use super::{BOXES_MAX, JobTerms, Peer};
use crate::admit::quota::Payer;
use crate::drops::DropReason;
use crate::random::{Draw, Random};
use crate::send::datagram::{is_intact, plain_header, write, write_hello};
use crate::session::host as session;
use crate::session::token::Lives;

/// The peers that may open channels, and what they are told.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelHostConfig {
    /// Where the host listens. Its own Ethernet address may be zero until the port is open.
    pub local: Endpoint,
    /// The shape of the job.
    pub terms: JobTerms,
    /// Addresses of the workers, by rank; at most 64.
    pub workers: Vec<SocketAddr>,
    /// Addresses of the boxes, by index; `None` for those that never speak to this host.
    pub boxes: Vec<Option<SocketAddr>>,
}

/// What a handshake datagram did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HostReply {
    /// Length of the reply that now stands in the buffer.
    pub len: usize,
    /// What changed for the role, if anything.
    pub change: Option<PeerChange>,
}

/// A change in a peer's standing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PeerChange {
    /// It joined with a new life: whatever an earlier life left unfinished will never be finished.
    NewLife(Peer),
    /// It closed its channel.
    Closed(Peer),
}

/// The answering end of all channels of one job.
#[derive(Debug)]
pub struct ChannelHost {
    terms: JobTerms,
    epoch: Epoch,
    /// Random per life of the host.
    secret: (u64, u64),
    random: Random,
    /// Workers by rank, then boxes by index.
    peers: Vec<Option<Entry>>,
    worker_count: usize,
    worker_mask: Members,
    box_mask: Members,
}

/// What the peers of a host take.
#[derive(Debug)]
pub(crate) struct PeersMemory(Vec<Option<Entry>>);

impl PeersMemory {
    /// Of so many.
    pub(crate) fn new(peers_max: usize) -> Self {
        Self(Vec::with_capacity(peers_max))
    }
}

#[derive(Debug)]
struct Entry {
    /// A channel is open while a life is present.
    peer: session::Peer<UdpAddr>,
    encap: Encap,
    cookie_down: Cookie,
}

impl ChannelHost {
    /// Takes the memory of all channels. `random` must differ from start to start: epoch, cookies
    /// and tokens come from it (PROTOCOL section 6).
    ///
    /// # Panics
    /// If there are more than 64 workers or boxes, or an address is of another family than the
    /// host's: configuration is checked before.
    #[must_use]
    pub fn new(config: &ChannelHostConfig, random: impl Into<Random>) -> Self {
        let peers = PeersMemory::new(config.workers.len() + config.boxes.len());
        let ChannelHostConfig { local, terms, workers, boxes } = config;
        Self::in_memory(peers, *local, *terms, workers, boxes, random.into())
    }

    /// The same in memory that was taken before. No earlier host in it is known any more.
    pub(crate) fn in_memory(
        memory: PeersMemory,
        local: Endpoint,
        terms: JobTerms,
        workers: &[SocketAddr],
        boxes: &[Option<SocketAddr>],
        mut random: Random,
    ) -> Self {
        assert!(workers.len() <= MEMBERS_MAX, "at most 64 workers");
        assert!(boxes.len() <= BOXES_MAX, "at most 64 boxes");
        let entry = |addr: SocketAddr| {
            let target = Endpoint { mac: MacAddr::default(), addr };
            let encap = Encap::new(local, target).expect("one address family");
            // Most of what a host sends is a header alone.
            let encap = encap.with_payload_len(HEADER_LEN);
            let peer = session::Peer::new(addr.into(), Lives::default());
            Entry { peer, encap, cookie_down: Cookie::default() }
        };
        let PeersMemory(mut peers) = memory;
        peers.clear();
        peers.extend(workers.iter().map(|addr| Some(entry(*addr))));
        peers.extend(boxes.iter().map(|addr| addr.map(entry)));
        let bit = |(index, addr): (u8, &Option<SocketAddr>)| {
            addr.map_or(0, |_| Peer::Box(weft_control::BoxIndex(index)).bit().0)
        };
        let box_mask = (0..).zip(boxes).map(bit).fold(0, |mask, bit| mask | bit);
        Self {
            terms,
            epoch: Epoch(random.next_u32(Draw::Epoch)),
            secret: (random.next_u64(Draw::Secret(0)), random.next_u64(Draw::Secret(1))),
            random,
            peers,
            worker_count: workers.len(),
            worker_mask: Members::first(workers.len()),
            box_mask: Members(box_mask),
        }
    }

    /// Its memory, when the job ends.
    pub(crate) fn into_memory(self) -> PeersMemory {
        PeersMemory(self.peers)
    }

    /// What peers are told of the job.
    #[must_use]
    pub fn terms(&self) -> &JobTerms {
        &self.terms
    }

    /// The job's workers.
    #[must_use]
    pub fn worker_mask(&self) -> Members {
        self.worker_mask
    }

    /// True while the peer has a channel.
    #[must_use]
    pub fn is_open(&self, peer: Peer) -> bool {
        self.entry(peer).is_some_and(Entry::is_open)
    }

    /// The life in which the peer joined last; 0 when it never did.
    #[must_use]
    pub fn life(&self, peer: Peer) -> u64 {
        self.entry(peer).map_or(0, |entry| entry.peer.lives().latest())
    }

    /// True when the table has the peer at this address.
    #[must_use]
    pub fn is_at(&self, peer: Peer, source: UdpAddr) -> bool {
        self.entry(peer).is_some_and(|entry| entry.peer.addr() == source)
    }

    /// The peer at this address, if the table has one.
    #[must_use]
    pub fn peer_at(&self, addr: UdpAddr) -> Option<Peer> {
        let mut entries = self.peers.iter();
        let index =
            entries.position(|entry| matches!(entry, Some(it) if it.peer.addr() == addr))?;
        self.peer_of(index)
    }

    /// Checks that a frame with this cookie and source is from `peer` in its present life, in the
    /// order of SPEC#checks: known, cookie, source address.
    ///
    /// # Errors
    /// The drop reason. For [`DropReason::StaleEpoch`] and [`DropReason::BadCookie`] the role
    /// answers with [`ChannelHost::refuse_stale`].
    pub fn identify(&self, peer: Peer, cookie: Cookie, source: UdpAddr) -> Result<(), DropReason> {
        let entry = self.entry(peer).ok_or(DropReason::BadMembers)?;
        entry.peer.check_cookie(cookie, self.epoch, entry.is_open())?;
        entry.peer.check_source(source)
    }

    /// Turns a frame that [`ChannelHost::identify`] refused for its cookie into the STALE that
    /// makes its sender handshake again; `None` when it is not from the peer's address. The wrong
    /// cookie is echoed, which shows that this host saw the frame.
    pub fn refuse_stale(
        &self,
        peer: Peer,
        udp: &Datagram,
        header: &Header,
        buffer: &mut [u8],
    ) -> Option<usize> {
        let entry = self.entry(peer).filter(|entry| entry.peer.addr() == udp.source(buffer))?;
        let state = Header {
            outcome: Outcome::Stale,
            chunk: header.chunk,
            cookie: header.cookie,
            ..plain_header(Kind::State, self.terms.job, header.group, Members::EMPTY)
        };
        let encap = entry.encap.with_target_mac(udp.source_mac(buffer));
        Some(write(&encap, self.terms.integrity, &state, buffer, 0))
    }

    /// Writes a datagram to `peer`: `header` with the channel's cookie, before a payload of
    /// `payload_len` bytes that stands in place already ([`ChannelHost::payload_start`]). Returns
    /// the frame's length; `None` while the peer has no channel or the buffer is too short.
    pub fn write(
        &self,
        peer: Peer,
        header: &Header,
        buffer: &mut [u8],
        payload_len: usize,
    ) -> Option<usize> {
        let entry = self.entry(peer).filter(|entry| entry.is_open())?;
        if buffer.len() < entry.encap.header_len() + HEADER_LEN + payload_len {
            return None;
        }
        let header = Header { cookie: entry.cookie_down, ..*header };
        Some(write(&entry.encap, self.terms.integrity, &header, buffer, payload_len))
    }

    /// The way to `peer` and the cookie on it; `None` while it has no channel.
    #[must_use]
    pub fn path(&self, peer: Peer) -> Option<(&Encap, Cookie)> {
        let entry = self.entry(peer).filter(|entry| entry.is_open())?;
        Some((&entry.encap, entry.cookie_down))
    }

    /// The way from `peer`, and the cookie on its frames; `None` while it has no channel.
    pub(crate) fn way_in(&self, peer: Peer) -> Option<(&Encap, Cookie)> {
        let entry = self.entry(peer).filter(|entry| entry.is_open())?;
        Some((&entry.encap, entry.peer.cookie_up()))
    }

    /// Where the payload of a frame to `peer` starts.
    #[must_use]
    pub fn payload_start(&self, peer: Peer) -> usize {
        self.entry(peer).map_or(0, |entry| entry.encap.header_len() + HEADER_LEN)
    }

    /// Takes a HELLO datagram and writes the reply over it.
    ///
    /// # Errors
    /// The drop reason; nothing has changed.
    pub fn handle_hello(
        &mut self,
        udp: &Datagram,
        header: &Header,
        buffer: &mut [u8],
    ) -> Result<HostReply, DropReason> {
        self.handle_hello_for(udp, header, buffer, |_| Ok(()))
    }

    /// The same where datagrams are paid for: `pay` is asked, once it is known by whom, before
    /// anything changes. A datagram that is refused without that is the strangers'.
    pub(crate) fn handle_hello_for(
        &mut self,
        udp: &Datagram,
        header: &Header,
        buffer: &mut [u8],
        pay: impl FnOnce(Payer) -> Result<(), DropReason>,
    ) -> Result<HostReply, DropReason> {
        let peer = Peer::of_channel(header)?;
        let index = self.index(peer).ok_or(DropReason::BadMembers)?;
        let entry = self.peers[index].as_ref().ok_or(DropReason::BadMembers)?;
        entry.peer.check_source(udp.source(buffer))?;
        if header.chunk.0 != 0 {
            return Err(DropReason::ChunkOutOfRange);
        }
        if !is_intact(Integrity::Crc32c, buffer, udp.payload_range()) {
            return Err(DropReason::Integrity);
        }
        let body = &buffer[udp.payload_range()][HEADER_LEN..];
        let (hello, _) = Hello::parse(body).map_err(|_| DropReason::Handshake)?;
        self.session(peer).hear(peer.rank(), &entry.peer, &hello, udp.payload_len())?;
        let mac = udp.source_mac(buffer);
        let (phase, change) = match hello.phase {
            Phase::Hello => {
                pay(Payer::Strangers)?;
                (Phase::Challenge, None)
            }
            Phase::Join => {
                pay(Payer::Job)?;
                (Phase::Welcome, self.join(index, peer, mac, hello.life))
            }
            Phase::Close => {
                if hello.cookie_up != entry.peer.cookie_up() {
                    return Err(DropReason::StaleEpoch);
                }
                pay(Payer::Job)?;
                (Phase::Closed, self.close(index, peer))
            }
            _ => return Err(DropReason::Handshake),
        };
        let len = self.reply(index, peer, mac, phase, &hello, buffer).ok_or(DropReason::Length)?;
        Ok(HostReply { len, change })
    }

    fn join(&mut self, index: usize, peer: Peer, mac: MacAddr, life: u64) -> Option<PeerChange> {
        let entry = self.peers[index].as_mut()?;
        entry.encap = entry.encap.with_target_mac(mac);
        if !entry.peer.join(life) {
            return None;
        }
        let place = u8::try_from(index).expect("at most 64 workers and 64 boxes");
        entry.peer.draw_cookie(self.epoch, place, &mut self.random);
        let word = self.random.next_u32(Draw::CookieDown(place));
        entry.cookie_down = Cookie::new(self.epoch, word);
        Some(PeerChange::NewLife(peer))
    }

    /// A repeated CLOSE of the present life is answered alike.
    fn close(&mut self, index: usize, peer: Peer) -> Option<PeerChange> {
        let entry = self.peers[index].as_mut()?;
        let was_open = entry.is_open();
        entry.peer.end();
        was_open.then_some(PeerChange::Closed(peer))
    }

    fn reply(
        &self,
        index: usize,
        peer: Peer,
        mac: MacAddr,
        phase: Phase,
        hello: &Hello,
        buffer: &mut [u8],
    ) -> Option<usize> {
        let entry = self.peers[index].as_ref()?;
        let (session, rank) = (self.session(peer), peer.rank());
        let mut body = session.reply(rank, &entry.peer, hello, phase);
        if phase == Phase::Welcome {
            entry.peer.tell(self.epoch, entry.cookie_down, &mut body);
            body.elements = self.terms.elements;
            body.integrity = self.terms.integrity;
            body.exponent = self.terms.exponent.unwrap_or(0);
            body.exponent_fixed = self.terms.exponent.is_some();
            body.step_count = self.terms.chunks;
            body.mask = match peer {
                Peer::Worker(_) => self.worker_mask,
                Peer::Box(_) => self.box_mask,
            };
        }
        body.shards = 1;
        let group = GroupId::new(peer.row(), 0);
        let header = plain_header(Kind::Hello, self.terms.job, group, peer.bit());
        let encap = entry.encap.with_target_mac(mac);
        write_hello(&encap, &header, &body, &[], buffer)
    }

    fn session(&self, peer: Peer) -> session::Host {
        session::Host { job: self.terms.job, row: peer.row(), lane: 0, secret: self.secret }
    }

    fn index(&self, peer: Peer) -> Option<usize> {
        match peer {
            Peer::Worker(rank) => (rank.index() < self.worker_count).then_some(rank.index()),
            Peer::Box(index) => {
                let index = self.worker_count + usize::from(index.0);
                (index < self.peers.len()).then_some(index)
            }
        }
    }

    fn peer_of(&self, index: usize) -> Option<Peer> {
        match index.checked_sub(self.worker_count) {
            None => weft_wire::Rank::new(u8::try_from(index).ok()?).map(Peer::Worker),
            Some(index) => Some(Peer::Box(weft_control::BoxIndex(u8::try_from(index).ok()?))),
        }
    }

    fn entry(&self, peer: Peer) -> Option<&Entry> {
        self.peers[self.index(peer)?].as_ref()
    }
}

impl Entry {
    fn is_open(&self) -> bool {
        self.peer.lives().has_present()
    }
}
