//! The engine, its socket and its clock; and the thread that reads the socket.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weft_engine::role::keys::{Outbox, Presence, Process, Sink, To};
use weft_wire::Nanos;

use super::config::OnLoss;
use super::error::KeyError;
use super::store::SharedRows;
use super::ticket::Tickets;

/// What all threads of a process share, but the rows.
#[derive(Debug)]
pub(super) struct Driver {
    locked: Mutex<Locked>,
    socket: UdpSocket,
    home: SocketAddr,
    processes: Vec<SocketAddr>,
    start: Instant,
    on_loss: OnLoss,
    pub(super) stop: AtomicBool,
}

/// What stands behind the engine's lock.
#[derive(Debug)]
pub(super) struct Locked {
    pub(super) engine: Process<SharedRows>,
    pub(super) tickets: Tickets,
    pub(super) fault: Option<KeyError>,
    lost: Vec<u64>,
}

/// Hears what the engine says.
#[derive(Debug)]
pub(super) struct Wire<'a> {
    driver: &'a Driver,
    tickets: &'a mut Tickets,
    lost: &'a mut Vec<u64>,
}

impl Outbox for Wire<'_> {
    fn send(&mut self, to: To, datagram: &[u8]) {
        let to = match to {
            To::Home => Some(&self.driver.home),
            To::Process(process) => self.driver.processes.get(usize::from(process)),
        };
        // What the kernel does not take is lost, as on any way.
        let _lost = to.map(|to| self.driver.socket.send_to(datagram, to));
    }
}

impl Sink for Wire<'_> {
    fn done(&mut self, call: u64, _key: u64, value: Option<&[f32]>) {
        let (number, place) = (call >> 32, call & u64::from(u32::MAX));
        let (number, place) = (u32::try_from(number), u32::try_from(place));
        self.tickets.done(number.unwrap_or(u32::MAX), place.unwrap_or(u32::MAX), value);
    }

    fn lost(&mut self, key: u64) {
        self.lost.push(key);
    }
}

impl Driver {
    pub(super) fn new(
        engine: Process<SharedRows>,
        socket: UdpSocket,
        home: SocketAddr,
        processes: Vec<SocketAddr>,
        on_loss: OnLoss,
        start: Instant,
    ) -> Self {
        let tickets = Tickets::default();
        let locked = Mutex::new(Locked { engine, tickets, fault: None, lost: Vec::new() });
        let stop = AtomicBool::new(false);
        Self { locked, socket, home, processes, start, on_loss, stop }
    }

    pub(super) fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works with the engine, and with who hears it.
    pub(super) fn with_engine<R>(
        &self,
        locked: &mut Locked,
        work: impl FnOnce(&mut Process<SharedRows>, &mut Wire<'_>) -> R,
    ) -> R {
        let Locked { engine, tickets, lost, .. } = locked;
        let result = work(engine, &mut Wire { driver: self, tickets, lost });
        if !locked.lost.is_empty() {
            self.take_losses(locked);
        }
        if locked.fault.is_none() && locked.engine.presence() == Presence::Lost {
            locked.fail(weft_engine::role::keys::CallError::Lost.into());
        }
        result
    }

    fn take_losses(&self, locked: &mut Locked) {
        let keys = std::mem::take(&mut locked.lost);
        let OnLoss::Restore(restore) = &self.on_loss else {
            let (first, others) = (keys[0], keys.len() - 1);
            locked.lost = Vec::new();
            return locked.fail(KeyError::Lost { first, others });
        };
        let row_len = usize::from(locked.engine.table().row_len);
        for key in keys {
            let mut row = restore(key).unwrap_or_default();
            row.value.resize(row_len, 0.0);
            let now = self.now();
            let Locked { engine, tickets, lost, .. } = locked;
            let mut wire = Wire { driver: self, tickets, lost };
            // A row that has come back meanwhile needs nothing.
            let _not_lost = engine.restore(now, key, &row.value, &row.lasts, &mut wire);
        }
    }

    /// Reads the socket, until told to stop.
    pub(super) fn run(self: &Arc<Self>) {
        let mut octets = vec![0; usize::from(u16::MAX)];
        while !self.stop.load(Ordering::Relaxed) {
            let due = self.lock().engine.poll_timeout();
            let pause = due.since(self.now()).0.clamp(PAUSE_MIN_NS, PAUSE_MAX_NS);
            let _keeps_old = self.socket.set_read_timeout(Some(Duration::from_nanos(pause)));
            let received = self.socket.recv_from(&mut octets);
            let mut locked = self.lock();
            let now = self.now();
            self.with_engine(&mut locked, |engine, wire| {
                if let Ok((len, source)) = received {
                    // What is refused is counted.
                    let _refused = engine.handle_datagram(now, source.into(), &octets[..len], wire);
                }
                if engine.poll_timeout() <= now {
                    engine.poll(now, wire);
                }
            });
        }
        self.lock().fail(KeyError::Closed);
    }
}

impl Locked {
    /// All calls end with this.
    pub(super) fn fail(&mut self, error: KeyError) {
        self.tickets.fail_all(&error);
        self.fault.get_or_insert(error);
    }
}

/// The socket is looked at for at least so long, and the engine as rarely at most.
const PAUSE_MIN_NS: u64 = 20_000;
const PAUSE_MAX_NS: u64 = 20_000_000;
