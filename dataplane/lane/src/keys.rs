//! Homes of tables of rows beside the engine of a lane: frames of their rows go to them, all others
//! to the engine.
//!
//! Decides which is which, and nothing else. What a home sends waits in a ring that is taken at the
//! start, and leaves within the breath; what does not fit is loss like any other (PROTOCOL section
//! 10). Ethernet addresses are learnt from what processes send.

use weft_control::{Command, Event, Train};
use weft_engine::drops::{DropCounters, DropReason};
use weft_engine::random::Seed;
use weft_engine::role::gather::Gather;
use weft_engine::role::keys::{Home, HomeConfig, Outbox, To};
use weft_engine::role::{LeaseIndex, RunIndex, Taken, Verdict};
use weft_wire::frame::{Datagram, Encap, Endpoint, Udp, UdpAddr};
use weft_wire::header::{HEADER_LEN, Packet};
use weft_wire::rows::is_of_keys;
use weft_wire::{JobId, MacAddr, Nanos};

use crate::LaneEngine;
use crate::settings::KeyTable;

/// The homes of a box.
#[derive(Debug)]
pub struct Homes {
    local: UdpAddr,
    homes: Vec<Place>,
    queue: Queue,
    /// Frames of tables that the box is no home of, and for other addresses.
    drops: DropCounters,
}

/// One of them.
#[derive(Debug)]
struct Place {
    job: JobId,
    row: u16,
    home: Home,
    /// To each process.
    encaps: Vec<Encap>,
    /// Frames of this breath may be in the making.
    is_waiting: bool,
}

impl Homes {
    /// Homes that know nothing yet. The tables were judged when the configuration was read; the
    /// seed is of this life of the box.
    ///
    /// # Panics
    /// If a table was changed since it was judged.
    #[must_use]
    pub fn new(local: Endpoint, tables: &[KeyTable], seed: &Seed) -> Self {
        let payload_max = tables.iter().map(|table| table.table.payload_max).max().unwrap_or(0);
        Self {
            local: local.addr.into(),
            homes: tables.iter().map(|table| Place::new(local, table, seed)).collect(),
            queue: Queue::new(usize::from(payload_max) + ENCAP_LEN_MAX),
            drops: DropCounters::default(),
        }
    }

    /// The homes, for reports.
    pub fn iter(&self) -> impl Iterator<Item = &Home> {
        self.homes.iter().map(|place| &place.home)
    }

    /// What was refused, by the homes and for want of one.
    #[must_use]
    pub fn drops(&self) -> DropCounters {
        let mut all = self.drops.clone();
        for home in self.iter() {
            for (reason, count) in home.stats().drops.iter() {
                all.count_many(reason, count);
            }
        }
        all
    }

    /// Frames that were not sent because too many waited.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        self.queue.overflows
    }

    fn handle_frame(&mut self, now: Nanos, frame: &[u8]) -> Verdict {
        match self.take(now, frame) {
            Ok(()) => Verdict::Hold,
            Err(reason) => Verdict::Drop(reason),
        }
    }

    fn take(&mut self, now: Nanos, frame: &[u8]) -> Result<(), DropReason> {
        let refused = |drops: &mut DropCounters, reason| {
            drops.count(reason);
            Err(reason)
        };
        let Ok(udp) = Udp::parse(frame) else {
            return refused(&mut self.drops, DropReason::Length);
        };
        if UdpAddr::from(udp.target) != self.local {
            return refused(&mut self.drops, DropReason::NotForUs);
        }
        let datagram = &frame[udp.payload_range()];
        let packet = Packet::new_unchecked(datagram);
        let (job, row) = (packet.job(), packet.group().row());
        let is_it = |place: &&mut Place| (place.job, place.row) == (job, row);
        let Some(place) = self.homes.iter_mut().find(is_it) else {
            return refused(&mut self.drops, DropReason::UnknownGroup);
        };
        let Place { home, encaps, is_waiting, .. } = place;
        // Before the answer: the first one must find its way.
        let sender = encaps.iter_mut().find(|encap| encap.target().addr == udp.source);
        if let Some(encap) = sender.filter(|encap| encap.target().mac != udp.source_mac) {
            *encap = encap.with_target_mac(udp.source_mac);
        }
        *is_waiting = true;
        home.take_datagram(
            now,
            udp.source.into(),
            datagram,
            &mut Sender { encaps, queue: &mut self.queue },
        )
    }

    fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        for Place { home, encaps, is_waiting, .. } in &mut self.homes {
            home.poll(now);
            if std::mem::take(is_waiting) {
                home.flush(&mut Sender { encaps, queue: &mut self.queue });
            }
        }
        self.queue.pop(frame)
    }

    fn poll_timeout(&self) -> Nanos {
        if self.queue.len > 0 || self.homes.iter().any(|place| place.is_waiting) {
            return Nanos(0);
        }
        self.iter().map(Home::poll_timeout).min().unwrap_or(Nanos::MAX)
    }
}

impl Place {
    fn new(local: Endpoint, table: &KeyTable, seed: &Seed) -> Self {
        let addrs: Vec<UdpAddr> = table.processes.iter().map(|addr| (*addr).into()).collect();
        let death_timeout = table.death_timeout;
        let config = HomeConfig { table: table.table, processes: &addrs, death_timeout };
        let encap = |addr: &std::net::SocketAddr| {
            Encap::new(local, Endpoint { mac: MacAddr::BROADCAST, addr: *addr }).expect(JUDGED)
        };
        Self {
            job: table.table.job,
            row: table.table.row(),
            home: Home::new(&config, seed, Nanos(0)).expect(JUDGED),
            encaps: table.processes.iter().map(encap).collect(),
            is_waiting: false,
        }
    }
}

/// True for a datagram about keys, whoever it is for.
fn is_about_keys(frame: &[u8]) -> bool {
    let Ok(datagram) = Datagram::find(frame) else { return false };
    let payload = &frame[datagram.payload_range()];
    payload.len() >= HEADER_LEN && is_of_keys(Packet::new_unchecked(payload).group().row())
}

struct Sender<'a> {
    encaps: &'a [Encap],
    queue: &'a mut Queue,
}

impl Outbox for Sender<'_> {
    fn send(&mut self, to: To, datagram: &[u8]) {
        // A home sends nothing to itself.
        let To::Process(process) = to else { return };
        if let Some(encap) = self.encaps.get(usize::from(process)) {
            self.queue.push(encap, datagram);
        }
    }
}

/// Frames that wait for the end of a breath, in their order.
#[derive(Debug)]
struct Queue {
    octets: Vec<u8>,
    lens: Vec<usize>,
    frame_len_max: usize,
    first: usize,
    len: usize,
    overflows: u64,
}

impl Queue {
    fn new(frame_len_max: usize) -> Self {
        Self {
            octets: vec![0; frame_len_max * QUEUE_FRAMES_MAX],
            lens: vec![0; QUEUE_FRAMES_MAX],
            frame_len_max,
            first: 0,
            len: 0,
            overflows: 0,
        }
    }

    fn push(&mut self, encap: &Encap, datagram: &[u8]) {
        let header_len = encap.header_len();
        if self.len == QUEUE_FRAMES_MAX || header_len + datagram.len() > self.frame_len_max {
            self.overflows += 1;
            return;
        }
        let place = (self.first + self.len) % QUEUE_FRAMES_MAX;
        let frame = &mut self.octets[place * self.frame_len_max..][..self.frame_len_max];
        frame[header_len..header_len + datagram.len()].copy_from_slice(datagram);
        self.lens[place] = encap.emit(frame, datagram.len());
        if encap.target().addr.is_ipv6() {
            encap.finish(&mut frame[..self.lens[place]]);
        }
        self.len += 1;
    }

    fn pop(&mut self, frame: &mut [u8]) -> Option<usize> {
        while self.len > 0 {
            let (place, len) = (self.first, self.lens[self.first]);
            self.first = (self.first + 1) % QUEUE_FRAMES_MAX;
            self.len -= 1;
            match frame.get_mut(..len) {
                Some(room) => {
                    room.copy_from_slice(&self.octets[place * self.frame_len_max..][..len]);
                    return Some(len);
                }
                None => self.overflows += 1,
            }
        }
        None
    }
}

/// An engine with homes beside it.
#[derive(Debug)]
pub struct Keyed<E> {
    engine: E,
    homes: Homes,
}

impl<E: LaneEngine> Keyed<E> {
    /// Puts homes beside an engine.
    pub fn new(engine: E, homes: Homes) -> Self {
        Self { engine, homes }
    }

    /// The engine.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// The homes.
    pub fn homes(&self) -> &Homes {
        &self.homes
    }
}

impl<E: LaneEngine> LaneEngine for Keyed<E> {
    fn has_far_slots(&self) -> bool {
        self.engine.has_far_slots()
    }

    fn prefetch(&mut self, frame: &[u8]) {
        self.engine.prefetch(frame);
    }

    fn handle_frame(&mut self, now: Nanos, buffer: &mut [u8], len: usize) -> Verdict {
        match buffer.get(..len) {
            Some(frame) if is_about_keys(frame) => self.homes.handle_frame(now, frame),
            _ => self.engine.handle_frame(now, buffer, len),
        }
    }

    fn take(&mut self, now: Nanos, frame: &[u8]) -> Taken {
        if is_about_keys(frame) { Taken::Else } else { self.engine.take(now, frame) }
    }

    fn sum_run<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        run: RunIndex,
        frames: &mut [F],
    ) -> Verdict {
        self.engine.sum_run(run, frames)
    }

    fn sum_whole_run<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        run: RunIndex,
        frames: &mut [F],
    ) -> usize {
        self.engine.sum_whole_run(run, frames)
    }

    fn waiting_run(&self) -> Option<RunIndex> {
        self.engine.waiting_run()
    }

    fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        self.homes.poll_transmit(now, frame).or_else(|| self.engine.poll_transmit(now, frame))
    }

    fn poll_timeout(&self) -> Nanos {
        self.homes.poll_timeout().min(self.engine.poll_timeout())
    }

    fn handle_command(&mut self, now: Nanos, command: Command) {
        LaneEngine::handle_command(&mut self.engine, now, command);
    }

    fn handle_controller(&mut self, now: Nanos, is_there: bool) {
        self.engine.handle_controller(now, is_there);
    }

    fn handle_settled(&mut self) {
        self.engine.handle_settled();
    }

    fn note_arrival(&mut self, at_ns: u64) {
        self.engine.note_arrival(at_ns);
    }

    fn poll_train(&mut self) -> Option<Train> {
        self.engine.poll_train()
    }

    fn may_be_in_train(&self) -> bool {
        self.engine.may_be_in_train()
    }

    fn poll_event(&mut self) -> Option<(JobId, Event)> {
        self.engine.poll_event()
    }

    fn fan_out(&self, lease: LeaseIndex) -> usize {
        self.engine.fan_out(lease)
    }

    fn encap_len(&self, lease: LeaseIndex) -> usize {
        self.engine.encap_len(lease)
    }

    fn readdress(&self, lease: LeaseIndex, member: usize, header: &mut [u8], frame_len: usize) {
        self.engine.readdress(lease, member, header, frame_len);
    }

    fn gather(&self) -> Option<&Gather> {
        self.engine.gather()
    }
}

/// Frames that wait at most: what a full burst of localizes can make.
const QUEUE_FRAMES_MAX: usize = 2048;
/// Ethernet, IPv6 and UDP.
const ENCAP_LEN_MAX: usize = 62;
const JUDGED: &str = "it was judged when the configuration was read";
