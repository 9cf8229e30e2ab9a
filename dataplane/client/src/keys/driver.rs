//! The thread that owns the port and the timers: moves frames between port and engine. Decides
//! nothing.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crossbeam_channel::Sender;
use weft_engine::role::keys::{CallError, Outbox, Presence, Sink, Slot, To};
use weft_engine::{PathProbe, PathProbeConfig};
use weft_io::{Burst, Frame, Port};
use weft_wire::frame::label::{is_bulk, set_dscp};
use weft_wire::frame::{Encap, Endpoint, Udp};
use weft_wire::{MacAddr, Members, Nanos};

use super::KeyError;
use super::calls::Calls;
use super::capture::{Capture, read_aside};
use super::config::{KeyConfig, OnLoss, nanos};
use super::parts::Parts;
use super::shared::{Engine, Shared};
use crate::io::Backlog;
use crate::narrow::Watch;

/// The port and what is known of the ways out of it.
pub(super) struct Driver<P: Port> {
    port: P,
    local: SocketAddr,
    /// To each process, then to the home box.
    encaps: Vec<Encap>,
    dscp: u8,
    bulk_dscp: u8,
    rx: Burst<P::Frame>,
    tx: Burst<P::Frame>,
    backlog: Backlog,
    watch: Watch,
    standstill: Standstill,
    is_woken: bool,
    ready: Option<Sender<()>>,
    lost: Vec<u64>,
    on_loss: OnLoss,
    /// Keys whose rows come back as soon as a round is read.
    restoring: Vec<u64>,
    is_reading: bool,
}

impl<P: Port> Driver<P> {
    /// `seed` is random.
    pub(super) fn new(
        port: P,
        config: &KeyConfig,
        seed: u64,
        is_woken: bool,
        ready: Sender<()>,
    ) -> Self {
        let local = config.processes[usize::from(config.me)];
        let source = Endpoint { mac: port.info().mac, addr: local };
        let others = config.processes.iter().map(|addr| (*addr, MacAddr::BROADCAST));
        let all = others.chain([(config.home, config.home_mac)]);
        let encap =
            |(addr, mac)| Encap::new(source, Endpoint { mac, addr }).expect("of one family");
        Self {
            port,
            local,
            encaps: all.map(encap).collect(),
            dscp: config.dscp,
            bulk_dscp: config.bulk_dscp.unwrap_or(config.dscp),
            rx: Burst::new_const(),
            tx: Burst::new_const(),
            backlog: Backlog::default(),
            watch: Watch::new(Nanos(nanos(config.call_timeout).0 / 2), seed),
            standstill: Standstill::new(nanos(config.resend_max)),
            is_woken,
            ready: Some(ready),
            lost: Vec::new(),
            on_loss: config.on_loss.clone(),
            restoring: Vec::new(),
            is_reading: false,
        }
    }

    /// Runs until the session is dropped or the port closes.
    pub(super) fn run(&mut self, shared: &Arc<Shared>) {
        while !shared.stop.load(Ordering::Acquire) {
            let moved = self.turn(shared);
            if moved {
                continue;
            }
            if !self.port.is_open() {
                shared.fail(&mut shared.lock(), &KeyError::PortClosed);
                return;
            }
            self.sleep(shared);
        }
    }

    /// Takes what has come and what was called, sends what is due; true if frames came.
    fn turn(&mut self, shared: &Arc<Shared>) -> bool {
        let now = shared.now();
        let received = self.port.rx_burst(now, &mut self.rx);
        let is_all = self.backlog.is_over(received > 0);
        let mut rx = core::mem::take(&mut self.rx);
        let mut engine = shared.lock();
        let Engine { process, calls, capture, .. } = &mut *engine;
        for frame in &rx {
            if self.watch.take_frame(now, frame.as_ref()) {
                continue;
            }
            let Some((source, range)) = self.open(frame.as_ref()) else { continue };
            let mut ears = Ears { driver: self, calls, capture, now };
            // What the engine refuses it has counted; there is nothing else to do about it.
            let _ = process.take_datagram(now, source.into(), &frame.as_ref()[range], &mut ears);
        }
        shared.is_called.store(false, Ordering::SeqCst);
        let mut ears = Ears { driver: self, calls, capture, now };
        process.flush(now, &mut ears);
        if is_all && now >= process.poll_timeout() {
            process.poll(now, &mut ears);
        }
        if self.is_reading {
            self.restore(shared, &mut engine, now);
        }
        self.report(shared, &mut engine);
        self.look(shared, &mut engine, now);
        if engine.waiting_count > 0 {
            shared.room.notify_all();
        }
        drop(engine);
        self.port.free(&mut rx);
        self.offer(now);
        received > 0
    }

    /// Has the path to the home box probed when the same is sent again and again for long: the box
    /// hears that this process is there, and yet no row may come to it. Says what the port knows.
    fn look(&mut self, shared: &Shared, engine: &mut Engine, now: Nanos) {
        let Engine { process, calls, .. } = engine;
        let is_joining = process.presence() == Presence::Joining;
        let is_new = self.standstill.look(now, process.stats().repeats);
        let is_stuck = self.standstill.is_stuck;
        if is_new {
            let is_silent = is_stuck || is_joining;
            calls.complain(is_silent.then(|| self.port.complaint()).flatten());
        }
        let is_stuck = is_stuck && process.presence() == Presence::Present;
        let (mac, local) = (self.port.info().mac, self.local);
        let home = self.encaps.last().map(Encap::target);
        let (table, me) = (&shared.table, shared.me);
        let path = self.watch.look(now, is_stuck && calls.failure().is_none(), |life| {
            let of = PathProbeConfig {
                job: table.job,
                row: table.row(),
                members: Members(1 << me),
                local: Endpoint { mac, addr: local },
                target: home?,
                probe_len: table.payload_max,
            };
            PathProbe::new(of, life, now)
        });
        if let Some(path) = path {
            shared.fail(engine, &KeyError::Narrow(path));
        }
        if let Some(mut frame) = self.port.alloc()
            && let Some(len) = self.watch.poll_transmit(now, frame.buffer_mut())
        {
            frame.set_len(len);
            set_dscp(frame.as_mut(), self.dscp);
            self.tx.push(frame);
        }
    }

    /// Finds a datagram for this process, and learns the way to its sender.
    fn open(&mut self, frame: &[u8]) -> Option<(SocketAddr, core::ops::Range<usize>)> {
        let udp = Udp::parse(frame).ok().filter(|udp| udp.target == self.local)?;
        let encap = self.encaps.iter_mut().find(|encap| encap.target().addr == udp.source)?;
        if encap.target().mac != udp.source_mac {
            *encap = encap.with_target_mac(udp.source_mac);
        }
        Some((udp.source, udp.payload_range()))
    }

    /// Tells the session's other threads what it has come to.
    fn report(&mut self, shared: &Arc<Shared>, engine: &mut Engine) {
        match engine.process.presence() {
            Presence::Present => {
                if let Some(ready) = self.ready.take() {
                    let _ = ready.send(());
                }
            }
            Presence::Lost if engine.calls.failure().is_none() => {
                shared.fail(engine, &KeyError::Call(CallError::Lost));
            }
            _ => {}
        }
        if !self.lost.is_empty() {
            let keys = core::mem::take(&mut self.lost);
            match self.on_loss.clone() {
                OnLoss::End => fail_rows(shared, engine, keys),
                OnLoss::Restore(folder) => self.read(shared, engine, &folder, keys),
            }
        }
    }

    /// Has a round read for these keys.
    fn read(&mut self, shared: &Arc<Shared>, engine: &mut Engine, folder: &Path, keys: Vec<u64>) {
        self.restoring.extend(keys);
        if self.is_reading {
            return;
        }
        let parts = Parts::new(folder, shared.table, engine.process.run());
        let given = Arc::clone(shared);
        let begun = read_aside(parts, move |round| {
            *given.read.lock().unwrap_or_else(PoisonError::into_inner) = Some(round);
            given.ring();
        });
        match begun {
            Ok(()) => self.is_reading = true,
            Err(error) => shared.fail(engine, &error),
        }
    }

    /// Has rows come back, if the round has been read.
    fn restore(&mut self, shared: &Shared, engine: &mut Engine, now: Nanos) {
        let read = shared.read.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(read) = read else { return };
        self.is_reading = false;
        let keys = core::mem::take(&mut self.restoring);
        let round = match read {
            Ok(round) => round,
            Err(KeyError::Checkpoint(problem)) => {
                return shared.fail(engine, &KeyError::NotRestored { keys, problem });
            }
            Err(error) => return shared.fail(engine, &error),
        };
        let mut missing = Vec::new();
        for key in keys {
            let Some(row) = round.rows.get(&key) else {
                missing.push(key);
                continue;
            };
            let Engine { process, calls, capture, restored, .. } = engine;
            let mut ears = Ears { driver: self, calls, capture, now };
            // A row that has come meanwhile is not lost, and one of an earlier life is named again.
            if process.restore(now, key, &row.value, &row.lasts, &mut ears).is_ok() {
                restored.insert(key);
            }
        }
        if !missing.is_empty() {
            fail_rows(shared, engine, missing);
        }
    }

    /// Offers what is to be sent to the port once; what it refuses is loss.
    fn offer(&mut self, now: Nanos) {
        if !self.tx.is_empty() {
            self.port.tx_burst(now, &mut self.tx);
            self.port.free(&mut self.tx);
        }
    }

    /// Sleeps until a frame comes, a thread calls, or a timer is due.
    fn sleep(&mut self, shared: &Shared) {
        let until = shared.lock().process.poll_timeout().min(self.watch.poll_timeout());
        let wait_ns = until.since(shared.now()).0;
        let wait_ns_max = if self.is_woken { WOKEN_WAIT_NS_MAX } else { WAIT_NS_MAX };
        if wait_ns == 0 {
            return;
        }
        // In this order, which the callers have the other way round: either a call is seen here,
        // or its caller sees the sleeper.
        shared.is_asleep.store(true, Ordering::SeqCst);
        if !shared.is_called.load(Ordering::SeqCst) {
            self.port.wait(wait_ns.min(wait_ns_max));
        }
        shared.is_asleep.store(false, Ordering::SeqCst);
    }
}

/// Whether what was sent has been sent again since the last look, which is often enough that
/// nothing stands still unseen.
struct Standstill {
    every: Nanos,
    look_at: Nanos,
    repeats: u64,
    is_stuck: bool,
}

impl Standstill {
    /// Of a process that sends again after `resend_max` at the latest.
    fn new(resend_max: Nanos) -> Self {
        let every = LOOK_MIN.max(Nanos(resend_max.0.saturating_mul(2)));
        Self { every, look_at: Nanos(0), repeats: 0, is_stuck: false }
    }

    /// True where it is time for a look; so many repeats have left.
    fn look(&mut self, now: Nanos, repeats: u64) -> bool {
        let is_due = now >= self.look_at;
        if is_due {
            self.look_at = now.saturating_add(self.every);
            self.is_stuck = core::mem::replace(&mut self.repeats, repeats) != repeats;
        }
        is_due
    }
}

/// What the engine says, while the port's thread lets it.
struct Ears<'a, P: Port> {
    driver: &'a mut Driver<P>,
    calls: &'a mut Calls,
    capture: &'a mut Capture,
    now: Nanos,
}

impl<P: Port> Outbox for Ears<'_, P> {
    fn send(&mut self, to: To, datagram: &[u8]) {
        let driver = &mut *self.driver;
        let place = match to {
            To::Home => driver.encaps.len() - 1,
            To::Process(process) => usize::from(process),
        };
        let encap = &driver.encaps[place];
        let header_len = encap.header_len();
        let Some(mut frame) = driver.port.alloc() else { return };
        let Some(room) = frame.buffer_mut().get_mut(..header_len + datagram.len()) else {
            return;
        };
        room[header_len..].copy_from_slice(datagram);
        let len = encap.emit(room, datagram.len());
        if encap.target().addr.is_ipv6() {
            encap.finish(room);
        }
        frame.set_len(len);
        let dscp = if is_bulk(frame.as_ref()) { driver.bulk_dscp } else { driver.dscp };
        set_dscp(frame.as_mut(), dscp);
        driver.tx.push(frame);
        if driver.tx.is_full() {
            driver.offer(self.now);
        }
    }
}

impl<P: Port> Sink for Ears<'_, P> {
    fn done(&mut self, call: u64, _key: u64, value: Option<&[f32]>) {
        self.calls.complete(call, value, self.now);
    }

    fn lost(&mut self, key: u64) {
        self.driver.lost.push(key);
    }

    fn arrived(&mut self, key: u64, slot: &Slot<'_>) {
        self.capture.take(key, *slot.epoch, slot.value, slot.lasts);
    }
}

/// The session ends, and names all rows that are lost.
fn fail_rows(shared: &Shared, engine: &mut Engine, mut keys: Vec<u64>) {
    if let Some(KeyError::RowsLost { keys: before }) = engine.calls.failure() {
        keys.extend(before);
    }
    keys.sort_unstable();
    keys.dedup();
    shared.fail(engine, &KeyError::RowsLost { keys });
}

/// Shortest time between two looks at whether it goes on.
const LOOK_MIN: Nanos = Nanos::from_millis(250);
/// Longest sleep where a call ends it.
const WOKEN_WAIT_NS_MAX: u64 = 100_000_000;
/// Longest sleep at a port that nobody can wake: a call waits this long at most.
const WAIT_NS_MAX: u64 = 100_000;
