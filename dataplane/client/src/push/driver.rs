//! The thread with the port: moves frames between port and engine, messages between the caller, the
//! controller and the updates. Decides nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use tokio::sync::mpsc;
use weft_control::Decision;
use weft_engine::role::push::{Event, PushFault, Pusher};
use weft_io::nic::Carried;
use weft_io::{Burst, Frame, Port};
use weft_wire::Nanos;
use weft_wire::frame::label::set_dscp;

use super::config::nanos;
use super::message::{Message, Ready, Shared, ToController};
use super::updates::{Stage, Updates};
use super::{PushConfig, PushError};
use crate::NarrowPath;
use crate::io::{Backlog, since};
use crate::narrow::{self, Watch};

/// What the thread is started with.
pub(super) struct Setup {
    pub(super) config: PushConfig,
    pub(super) engine: Pusher,
    /// A random number.
    pub(super) seed: u64,
    pub(super) inbox: Receiver<Message>,
    /// Messages end a wait at the port.
    pub(super) is_woken: bool,
    pub(super) ready: Sender<Ready>,
    pub(super) controller: Option<mpsc::Sender<ToController>>,
    pub(super) carried: Arc<Carried>,
}

/// Runs a session to its end.
pub(super) fn run<P: Port>(port: P, setup: Setup, shared: &Shared) {
    let updates = Updates::new(&setup.config, setup.controller.is_some());
    let patience = Nanos(nanos(setup.config.member_timeout) / 2);
    let mut driver = Driver {
        port,
        origin: Instant::now(),
        engine: setup.engine,
        updates,
        watch: Watch::new(patience, setup.seed),
        inbox: setup.inbox,
        is_woken: setup.is_woken,
        ready: Some(setup.ready),
        controller: setup.controller,
        carried: setup.carried,
        rx: Burst::new_const(),
        tx: Burst::new_const(),
        backlog: Backlog::default(),
    };
    let end = driver.run(shared);
    let end = driver.explain(end);
    shared.publish(&driver.updates.statistics(&driver.engine, driver.port.carried()));
    shared.fail(end.clone());
    driver.updates.abandon(&end);
    shared.set_over();
    // A channel keeps what nobody has received while it has a sender.
    while driver.inbox.try_recv().is_ok() {}
}

struct Driver<P: Port> {
    port: P,
    origin: Instant,
    engine: Pusher,
    updates: Updates,
    watch: Watch,
    inbox: Receiver<Message>,
    is_woken: bool,
    ready: Option<Sender<Ready>>,
    controller: Option<mpsc::Sender<ToController>>,
    /// What the port has carried, for whoever tells the controller.
    carried: Arc<Carried>,
    rx: Burst<P::Frame>,
    tx: Burst<P::Frame>,
    backlog: Backlog,
}

impl<P: Port> Driver<P> {
    fn run(&mut self, shared: &Shared) -> PushError {
        loop {
            let heard = self.listen();
            let (received, read_at) = self.receive();
            if let Some(now) = read_at {
                if now >= self.engine.poll_timeout() {
                    self.engine.handle_timeout(now);
                }
                self.updates.handle_timeout(now, &mut self.engine);
            }
            let moved = received + self.transmit(self.now());
            if moved > 0 && self.controller.is_some() {
                let (rx_bytes, tx_bytes) = self.port.carried();
                self.carried.note(rx_bytes, tx_bytes);
            }
            let mut came_on = false;
            while let Some(event) = self.engine.poll_event() {
                came_on |= shows_chunks(&event);
                self.updates.take_event(self.now(), event, &mut self.engine);
            }
            self.tell_controller();
            if let Some(path) = self.look(came_on) {
                return PushError::Narrow(path);
            }
            match self.updates.stage() {
                Stage::Over(end) => return end.clone(),
                Stage::Opening => {}
                Stage::Open(ready) => {
                    if let Some(sender) = self.ready.take() {
                        let _ = sender.send(*ready);
                    }
                }
            }
            if moved == 0 && !heard {
                if !self.port.is_open() {
                    return PushError::PortClosed;
                }
                shared.publish(&self.updates.statistics(&self.engine, self.port.carried()));
                self.wait();
            }
        }
    }

    fn now(&self) -> Nanos {
        since(self.origin)
    }

    /// Has the path to the server probed when nothing has come of what is under way for long: a
    /// server that asks for chunks is not silent, and yet none may reach it.
    fn look(&mut self, came_on: bool) -> Option<NarrowPath> {
        let (now, engine) = (self.now(), &self.engine);
        let is_stuck = engine.is_busy() && !came_on;
        self.watch.look(now, is_stuck, |life| engine.probe_path(life, now))
    }

    /// Adds what can be found out about an end that is a silence.
    fn explain(&mut self, end: PushError) -> PushError {
        let (PushError::Session(fault), origin) = (&end, self.origin) else { return end };
        let fault = *fault;
        let (now, engine) = (self.now(), &self.engine);
        let probe = match fault {
            PushFault::ServerSilent { .. } => {
                self.watch.last_probe(|life| engine.probe_path(life, now))
            }
            _ => None,
        };
        let label = self.updates.label();
        let path = probe.and_then(|mut probe| {
            narrow::find_out(&mut self.port, label, || since(origin), &mut probe)
        });
        match (path, self.port.complaint()) {
            (Some(path), _) => PushError::Narrow(path),
            (None, Some(complaint)) => PushError::Link { fault, complaint },
            (None, None) => end,
        }
    }

    /// Takes what the other threads have said; true when there was something.
    fn listen(&mut self) -> bool {
        let mut heard = false;
        loop {
            match self.inbox.try_recv() {
                Ok(message) => {
                    heard = true;
                    self.updates.take_message(self.now(), message, &mut self.engine);
                }
                Err(TryRecvError::Empty) => return heard,
                Err(TryRecvError::Disconnected) => {
                    self.updates.leave(self.now(), &mut self.engine);
                    return heard;
                }
            }
        }
    }

    fn tell_controller(&mut self) {
        let now = self.now();
        while let Some(request) = self.updates.poll_request() {
            let Some(controller) = &self.controller else { continue };
            if controller.try_send(request).is_err() {
                self.updates.take_lost_request(now, request, &mut self.engine);
            }
        }
    }

    /// Sleeps where the next thing to do will be heard: at the port if messages end its wait, or
    /// while frames are expected, at the inbox else.
    fn wait(&mut self) {
        let of_engine = self.engine.poll_timeout().min(self.watch.poll_timeout());
        let until = of_engine.min(self.updates.poll_timeout());
        let wait_ns = until.since(self.now()).0;
        if wait_ns == 0 {
            return;
        }
        if self.is_woken {
            self.port.wait(wait_ns.min(WOKEN_WAIT_NS_MAX));
            return;
        }
        if self.engine.is_busy() {
            self.port.wait(wait_ns.min(PORT_WAIT_NS_MAX));
            return;
        }
        let wait = Duration::from_nanos(wait_ns.min(INBOX_WAIT_NS_MAX));
        match self.inbox.recv_timeout(wait) {
            Ok(message) => self.updates.take_message(self.now(), message, &mut self.engine),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.updates.leave(self.now(), &mut self.engine),
        }
    }

    fn transmit(&mut self, now: Nanos) -> usize {
        let mut sent = 0;
        loop {
            while !self.tx.is_full() {
                let Some(mut frame) = self.port.alloc() else { break };
                let of_probe = self.watch.poll_transmit(now, frame.buffer_mut());
                let len = of_probe.or_else(|| self.engine.poll_transmit(now, frame.buffer_mut()));
                let Some(len) = len else { break };
                frame.set_len(len);
                set_dscp(frame.as_mut(), self.updates.label());
                frame.keep_apart(self.engine.is_in_train());
                self.tx.push(frame);
            }
            if self.tx.is_empty() {
                return sent;
            }
            sent += self.port.tx_burst(now, &mut self.tx);
            if !self.tx.is_empty() {
                // The port is full: what it holds back goes first next time.
                return sent;
            }
            if sent >= BATCH_MAX {
                // What has come in may change what goes next.
                return sent;
            }
        }
    }

    /// Takes in a burst; returns how many frames, and the time by which all that had come was taken
    /// in, once that is so.
    fn receive(&mut self) -> (usize, Option<Nanos>) {
        let now = self.now();
        let received = self.port.rx_burst(now, &mut self.rx);
        let is_all = self.backlog.is_over(received > 0);
        for mut frame in self.rx.drain(..) {
            if self.watch.take_frame(now, frame.as_ref()) {
                continue;
            }
            // What the engine refuses it has counted; there is nothing else to do about it.
            let _ = self.engine.handle_frame(now, frame.as_mut());
        }
        (received, is_all.then_some(now))
    }
}

/// Whether long datagrams have passed for this to happen. An update that is void shows nothing, nor
/// one whose chunks were asked for.
fn shows_chunks(event: &Event) -> bool {
    matches!(event, Event::Pulled { .. } | Event::Decided { decision: Decision::Committed(_), .. })
}

/// Longest sleep at the port: a message of another thread waits this long at most.
const PORT_WAIT_NS_MAX: u64 = 500_000;
/// Longest sleep where all that happens ends it.
const WOKEN_WAIT_NS_MAX: u64 = 100_000_000;
/// Longest sleep at the inbox: a frame that nobody expects waits this long at most.
const INBOX_WAIT_NS_MAX: u64 = 2_000_000;
/// Frames sent between two looks at what came.
const BATCH_MAX: usize = 128;
