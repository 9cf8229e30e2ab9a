//! The port, the clock, and the loop that moves frames between port and engines. Decides nothing.

use std::time::Instant;

use arrayvec::ArrayVec;
use weft_engine::PathProbe;
use weft_engine::role::worker::{Event, Payload, Worker, WorkerError};
use weft_io::joined::{Takes, hand_out};
use weft_io::{BURST_MAX, Burst, Frame, Port, run_frames_max};
use weft_wire::Nanos;
use weft_wire::frame::Udp;
use weft_wire::frame::label::set_dscp;
use weft_wire::header::{HEADER_LEN, Packet};

use crate::error::Error;
use crate::narrow::{self, NarrowPath};
use crate::payload::Nothing;

/// Longest sleep between looks at the engines' timers.
pub(crate) const WAIT_NS_MAX: u64 = 10_000_000;
/// Bursts taken in without a look at the timers.
const BURSTS_MAX: u32 = 64;

/// The engines of a session: the one whose round it is, and the other.
pub(crate) struct Workers<'a> {
    pub(crate) active: &'a mut Worker,
    pub(crate) other: Option<&'a mut Worker>,
}

impl Workers<'_> {
    fn timeout(&self) -> Nanos {
        let other = self.other.as_ref().map_or(Nanos::MAX, |worker| worker.poll_timeout());
        self.active.poll_timeout().min(other)
    }
}

/// A port, its bursts, and the clock.
pub(crate) struct Io<P: Port> {
    // Frames before the port: they return to its pool before it closes.
    rx: Burst<P::Frame>,
    tx: Burst<P::Frame>,
    /// Those for which there was nothing to send: the next, for their memory is warm.
    unused: Burst<P::Frame>,
    pub(crate) port: P,
    /// DSCP of what is sent.
    dscp: u8,
    origin: Instant,
    backlog: Backlog,
}

impl<P: Port> Io<P> {
    pub(crate) fn new(port: P, dscp: u8) -> Self {
        Self {
            port,
            dscp,
            origin: Instant::now(),
            rx: Burst::new_const(),
            tx: Burst::new_const(),
            unused: Burst::new_const(),
            backlog: Backlog::default(),
        }
    }

    pub(crate) fn now(&self) -> Nanos {
        since(self.origin)
    }

    /// Runs the round that `active` has begun to its end.
    pub(crate) fn finish_round(
        &mut self,
        mut workers: Workers<'_>,
        payload: &mut dyn Payload,
    ) -> Result<(), Error> {
        loop {
            match self.step(&mut workers, payload)? {
                Some(Event::RoundComplete) => return Ok(()),
                Some(Event::Failed(error)) => return Err(self.ended(error)),
                _ => {}
            }
        }
    }

    /// The session's end, with what the port knows about it.
    pub(crate) fn ended(&self, error: WorkerError) -> Error {
        match self.port.complaint() {
            Some(complaint) => Error::Link { error, complaint },
            None => Error::Session(error),
        }
    }

    /// Takes what has come, sends what is due, sleeps if there was neither; then one event.
    pub(crate) fn step(
        &mut self,
        workers: &mut Workers<'_>,
        payload: &mut dyn Payload,
    ) -> Result<Option<Event>, Error> {
        if let Some(event) = poll_event(workers) {
            return Ok(Some(event));
        }
        let (received, read_at) = self.receive(workers, payload);
        if let Some(now) = read_at.filter(|now| *now >= workers.timeout()) {
            workers.active.handle_timeout(now);
            if let Some(other) = &mut workers.other {
                other.handle_timeout(now);
            }
        }
        let sent = self.transmit(self.now(), workers, payload);
        if sent + received == 0 {
            if !self.port.is_open() {
                return Err(Error::PortClosed);
            }
            let now = self.now();
            let wait_ns = workers.timeout().since(now).0.min(WAIT_NS_MAX);
            if wait_ns > 0 {
                self.port.wait(wait_ns);
            }
        }
        Ok(poll_event(workers))
    }

    /// Runs a probe of a session that is over: the path, if it is narrow.
    pub(crate) fn find_out(&mut self, probe: &mut PathProbe) -> Option<NarrowPath> {
        let origin = self.origin;
        // What could not leave in the round would never leave now.
        self.port.free(&mut self.tx);
        self.port.join_runs(false);
        narrow::find_out(&mut self.port, self.dscp, || since(origin), probe)
    }

    fn transmit(
        &mut self,
        now: Nanos,
        workers: &mut Workers<'_>,
        payload: &mut dyn Payload,
    ) -> usize {
        let mut sent = 0;
        loop {
            // A run in one piece leaves alone.
            if !self.tx.first().is_some_and(is_run) {
                self.fill(now, workers, payload);
            }
            if self.tx.is_empty() {
                return sent;
            }
            let accepted = self.port.tx_burst(now, &mut self.tx);
            sent += accepted;
            if !self.tx.is_empty() {
                // The port is full: what it holds back goes first next time.
                return sent;
            }
        }
    }

    /// Adds what the engines have to send, up to a message's worth, which is also what a cache
    /// keeps until the port copies it.
    fn fill(&mut self, now: Nanos, workers: &mut Workers<'_>, payload: &mut dyn Payload) {
        let mut run_max = BURST_MAX;
        while self.tx.len() < run_max {
            let Some(mut frame) = self.spare() else { break };
            let own = workers.active.poll_transmit(now, payload, frame.buffer_mut());
            let written = own.or_else(|| {
                let other = workers.other.as_mut()?;
                other.poll_transmit(now, &Nothing, frame.buffer_mut())
            });
            let Some(len) = written else {
                self.unused.push(frame);
                break;
            };
            label(&mut frame, len, self.dscp);
            if own.is_some() && self.tx.is_empty() {
                frame = self.join_run(now, workers.active, payload, frame, len);
            }
            self.tx.push(frame);
            if self.tx.first().is_some_and(is_run) {
                break;
            }
            run_max = run_frames_max(len);
            if own.is_some() {
                let room = run_max.saturating_sub(self.tx.len());
                let count_max = workers.active.run_len_max().min(room);
                self.fill_run(now, workers.active, payload, count_max);
            }
        }
    }

    /// Has what follows `first` at once written behind it, where there is something and the port
    /// takes a run in one piece; else gives the frame back.
    fn join_run(
        &mut self,
        now: Nanos,
        worker: &mut Worker,
        payload: &dyn Payload,
        first: P::Frame,
        len: usize,
    ) -> P::Frame {
        let count_max = worker.run_len_max().min(run_frames_max(len) - 1);
        let Some(mut run) = (count_max > 0).then(|| self.port.alloc_run()).flatten() else {
            return first;
        };
        let Ok(udp) = Udp::parse(first.as_ref()) else { return first };
        run.buffer_mut()[..len].copy_from_slice(first.as_ref());
        self.unused.push(first);
        let count = worker.poll_joined_run(now, payload, run.buffer_mut(), count_max);
        run.set_len(len + count * udp.payload_len);
        if count > 0 {
            run.set_datagram_len(udp.payload_len);
        }
        run
    }

    /// Adds what follows the last frame at once, up to `count_max` frames.
    fn fill_run(
        &mut self,
        now: Nanos,
        worker: &mut Worker,
        payload: &mut dyn Payload,
        count_max: usize,
    ) {
        let first = self.tx.len();
        while self.tx.len() < first + count_max
            && let Some(frame) = self.spare()
        {
            self.tx.push(frame);
        }
        let (count, len) = {
            let buffers = self.tx[first..].iter_mut().map(Frame::buffer_mut);
            worker.poll_run(now, payload, &mut buffers.collect::<ArrayVec<_, BURST_MAX>>())
        };
        while self.tx.len() > first + count
            && let Some(frame) = self.tx.pop()
        {
            self.unused.push(frame);
        }
        self.tx[first..].iter_mut().for_each(|frame| label(frame, len, self.dscp));
    }

    /// A frame to be written.
    fn spare(&mut self) -> Option<P::Frame> {
        self.unused.pop().or_else(|| self.port.alloc())
    }

    /// Takes in a burst; returns how many frames, and the time by which all that had come was taken
    /// in, once that is so.
    fn receive(
        &mut self,
        workers: &mut Workers<'_>,
        payload: &mut dyn Payload,
    ) -> (usize, Option<Nanos>) {
        let now = self.now();
        let received = self.port.rx_burst(now, &mut self.rx);
        let is_all = self.backlog.is_over(received > 0);
        let mut intake = Intake { now, workers, payload };
        for frame in &mut self.rx {
            match frame.datagram_len() {
                None => intake.take_frame(frame.as_mut()),
                Some(len) => hand_out(frame.as_mut(), len, &mut intake),
            }
        }
        self.port.free(&mut self.rx);
        (received, is_all.then_some(now))
    }
}

/// The engines that a burst is for, and what goes with it.
struct Intake<'a, 'b> {
    now: Nanos,
    workers: &'a mut Workers<'b>,
    payload: &'a mut dyn Payload,
}

impl Takes for Intake<'_, '_> {
    /// Sums of the round under way.
    fn take_run(&mut self, udp: &Udp, datagrams: &mut [u8], datagram_len: usize) -> usize {
        self.workers.active.handle_run(self.now, udp, datagrams, datagram_len, self.payload)
    }

    /// Gives a frame to the engine whose row it is of.
    fn take_frame(&mut self, frame: &mut [u8]) {
        let now = self.now;
        // What an engine refuses it has counted; there is nothing else to do about it.
        let _ = match &mut self.workers.other {
            Some(other) if !is_of_row(frame, self.workers.active) => {
                other.handle_frame(now, frame, &mut Nothing)
            }
            _ => self.workers.active.handle_frame(now, frame, self.payload),
        };
    }
}

/// True of a run in one piece.
fn is_run<F: Frame>(frame: &F) -> bool {
    frame.datagram_len().is_some()
}

/// Whether a port may hold frames that nobody has looked at.
///
/// A thread that had to wait for its core finds its timeouts passed, and the answers beside them:
/// nothing is overdue before all that came was taken in.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    bursts: u32,
}

impl Backlog {
    /// Takes note of a burst, in which something came or not; true when timeouts may be believed:
    /// nothing came, or so many bursts did that the time passes here and not where the frames come
    /// from. A burst that is not full proves nothing: a port may keep a run of frames in one piece.
    pub(crate) fn is_over(&mut self, came: bool) -> bool {
        self.bursts = if came { self.bursts + 1 } else { 0 };
        self.bursts.is_multiple_of(BURSTS_MAX)
    }
}

/// `len` bytes have been written to a frame: they go with this DSCP.
fn label<F: Frame>(frame: &mut F, len: usize, dscp: u8) {
    frame.set_len(len);
    set_dscp(frame.as_mut(), dscp);
}

/// The time of a clock that began at `origin`.
pub(crate) fn since(origin: Instant) -> Nanos {
    Nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

fn poll_event(workers: &mut Workers<'_>) -> Option<Event> {
    if let Some(event) = workers.active.poll_event() {
        return Some(event);
    }
    workers.other.as_mut().and_then(|other| other.poll_event())
}

/// Tells the two engines' frames apart by the row.
fn is_of_row(frame: &[u8], worker: &Worker) -> bool {
    let Ok(udp) = Udp::parse(frame) else { return true };
    let datagram = &frame[udp.payload_range()];
    datagram.len() < HEADER_LEN || Packet::new_unchecked(datagram).group().row() == worker.row()
}
