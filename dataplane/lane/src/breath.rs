//! One breath of a lane: receive a burst, let the engine decide, send what it says. The same for
//! every role.
//!
//! Does the I/O that [`Verdict`] asks for and nothing else; run to completion on one lcore. The
//! transmit side never blocks: frames that a full ring refuses are freed and counted, and the
//! protocol recovers them like any loss (PROTOCOL section 10). No allocation per burst.

use arrayvec::ArrayVec;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::role::{LeaseIndex, PushIndex, RUNS_MAX, RunIndex, Taken, Verdict};
use weft_io::joined::{Takes, hand_out};
use weft_io::{Burst, Frame, Port};
use weft_kernel::RUN_MAX;
use weft_wire::Nanos;
use weft_wire::frame::Udp;
use weft_wire::header::HEADER_LEN;

use self::outbox::Outbox;
use crate::engine::LaneEngine;

mod outbox;

/// Makes `spare` a copy of `frame`; `None` if its buffer is too small.
fn rewritten<F: Frame>(mut spare: F, frame: &[u8]) -> Option<F> {
    spare.buffer_mut().get_mut(..frame.len())?.copy_from_slice(frame);
    spare.set_len(frame.len());
    Some(spare)
}

/// Asks for the headers of a frame whose turn comes soon: a burst is larger than the first cache,
/// so they have left it again since the port touched them.
#[inline]
fn prefetch_headers(frame: &[u8]) {
    if let Some(headers) = frame.get(..HEADERS_LEN) {
        // They lie in two lines where the payload starts on one, as in weft-dpdk's pools.
        weft_kernel::prefetch_line(&headers[0]);
        weft_kernel::prefetch_line(&headers[HEADERS_LEN - 1]);
    }
}

/// Ethernet, IPv4, UDP and Weft header.
const HEADERS_LEN: usize = 42 + HEADER_LEN;
/// How many frames ahead of the one that is handled slots are prefetched.
const PREFETCH_AHEAD: usize = 4;

/// Bytes of frames of no further use, about: more would be out of cache when they are used again.
const DONE_BYTES: usize = 128 << 10;

/// What answers the frames that are not Weft's, so that the port is a host that others can reach.
pub trait HostSide<P: Port> {
    /// Takes a frame and may hand one back to send: an ARP or NDP reply, an ICMP echo.
    fn handle(&mut self, now: Nanos, port: &mut P, frame: P::Frame) -> Option<P::Frame>;
}

/// Answers nothing: for ports behind a kernel that does.
impl<P: Port> HostSide<P> for () {
    fn handle(&mut self, _: Nanos, _: &mut P, _: P::Frame) -> Option<P::Frame> {
        None
    }
}

/// An aggregator lane on a port.
pub type AggregatorLane<P> = RoleLane<P, Aggregator>;

/// A lane on a port: an engine and the frames that it handles.
#[derive(Debug)]
pub struct RoleLane<P: Port, E: LaneEngine> {
    port: P,
    engine: E,
    outbox: Outbox<P::Frame>,
    /// Frames that wait to be summed, by run.
    runs: [ArrayVec<P::Frame, RUN_MAX>; RUNS_MAX],
    /// Frames of no further use; where the port recycles, the next answers' copies.
    done: Burst<P::Frame>,
    /// The port was asked for runs in one piece.
    joins: bool,
    /// And some may come.
    has_runs: bool,
    stats: LaneStats,
}

/// A lane and what it has in hand while it takes a run in one piece.
struct Joined<'a, P: Port, E: LaneEngine, H> {
    lane: &'a mut RoleLane<P, E>,
    now: Nanos,
    host: &'a mut H,
}

impl<P: Port, E: LaneEngine, H: HostSide<P>> Takes for Joined<'_, P, E, H> {
    fn take_run(&mut self, udp: &Udp, datagrams: &mut [u8], datagram_len: usize) -> usize {
        self.lane.engine.handle_run(self.now, udp, datagrams, datagram_len)
    }

    fn take_frame(&mut self, bytes: &mut [u8]) {
        let Some(mut frame) = self.lane.port.alloc() else { return };
        let Some(room) = frame.buffer_mut().get_mut(..bytes.len()) else { return };
        room.copy_from_slice(bytes);
        frame.set_len(bytes.len());
        self.lane.handle_frame(self.now, frame, self.host);
    }
}

/// How busy a lane was, and what it lost on its way out.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LaneStats {
    /// Breaths that found at least one frame.
    pub busy_breaths: u64,
    /// Breaths that found none.
    pub idle_breaths: u64,
    /// Frames freed because the transmit ring was full.
    pub tx_dropped: u64,
    /// Copies or own frames not made because the pool was empty.
    pub tx_nombuf: u64,
}

impl<P: Port, E: LaneEngine> RoleLane<P, E> {
    /// Puts an engine on a port.
    pub fn new(port: P, engine: E) -> Self {
        Self {
            outbox: Outbox::new(port.merges()),
            port,
            engine,
            runs: [const { ArrayVec::new_const() }; RUNS_MAX],
            done: Burst::new_const(),
            joins: false,
            has_runs: false,
            stats: LaneStats::default(),
        }
    }

    /// Receives one burst, handles it and sends what came of it; returns how many frames came.
    /// Frames that are not Weft's go to `host`.
    pub fn breathe(&mut self, now: Nanos, host: &mut impl HostSide<P>) -> usize {
        if self.joins != self.engine.takes_joined() {
            self.joins = !self.joins;
            self.has_runs = self.port.join_runs(self.joins) && self.joins;
        }
        let mut rx = Burst::new_const();
        let received = self.port.rx_burst(now, &mut rx);
        if received == 0 {
            self.stats.idle_breaths += 1;
        } else {
            self.stats.busy_breaths += 1;
        }
        let prefetches = self.engine.has_far_slots();
        let mut rx = rx.into_iter();
        while let Some(frame) = rx.next() {
            if self.has_runs
                && let Some(datagram_len) = frame.datagram_len()
            {
                self.handle_joined(now, frame, datagram_len, host);
                continue;
            }
            let ahead = rx.as_slice();
            if let Some(next) = ahead.first() {
                prefetch_headers(next.as_ref());
            }
            if prefetches && let Some(ahead) = ahead.get(PREFETCH_AHEAD - 1) {
                self.engine.prefetch(ahead.as_ref());
            }
            let bytes = frame.as_ref();
            let taken = if self.port.recycles(bytes.len()) {
                self.engine.take(now, bytes)
            } else {
                Taken::Else
            };
            match taken {
                Taken::Wait(run) => self.runs[run.index()].push(frame),
                Taken::Sum(run) => {
                    self.runs[run.index()].push(frame);
                    self.carry_out_run(now, run, host);
                }
                Taken::Drop(_) => self.retire(frame),
                Taken::Else => {
                    self.sum_all(now, host);
                    self.handle_frame(now, frame, host);
                }
            }
        }
        self.sum_all(now, host);
        if now >= self.engine.poll_timeout() {
            self.poll_engine(now);
        }
        self.flush(now);
        if received == 0 {
            self.port.free(&mut self.done);
        }
        received
    }

    /// The engine, for reports.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// The engine, to command it between breaths.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    /// The port.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The port, to wait on it.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Port and engine at once, between two breaths.
    pub fn parts_mut(&mut self) -> (&mut P, &mut E) {
        (&mut self.port, &mut self.engine)
    }

    /// What the lane did.
    pub fn stats(&self) -> LaneStats {
        self.stats
    }

    fn handle_frame(&mut self, now: Nanos, mut frame: P::Frame, host: &mut impl HostSide<P>) {
        if let Some(at_ns) = frame.arrived_ns() {
            self.engine.note_arrival(at_ns);
        }
        let len = frame.as_ref().len();
        match self.engine.handle_frame(now, frame.buffer_mut(), len) {
            // Most frames, and a branch that is foreseen better than a table of five.
            Verdict::Hold => self.retire(frame),
            verdict => self.carry_out(now, frame, verdict, host),
        }
    }

    /// A message in one piece: what the engine does not take at once becomes a frame of its own.
    #[inline(never)]
    fn handle_joined(
        &mut self,
        now: Nanos,
        mut run: P::Frame,
        datagram_len: usize,
        host: &mut impl HostSide<P>,
    ) {
        self.sum_all(now, host);
        hand_out(run.as_mut(), datagram_len, &mut Joined { lane: self, now, host });
        self.port.free(&mut Burst::from_iter([run]));
    }

    /// Has a run summed and does what its verdict says. Each answer is carried out at once: the
    /// frames that it is copied to have just been read.
    #[inline(always)]
    fn carry_out_run(&mut self, now: Nanos, run: RunIndex, host: &mut impl HostSide<P>) {
        if run.is_whole() {
            return self.carry_out_whole_run(now, run);
        }
        let index = run.index();
        let verdict = self.engine.sum_run(run, &mut self.runs[index]);
        let count = self.runs[index].len();
        let Some(mut last) = self.runs[index].pop() else { return };
        while let Some(mut frame) = self.runs[index].pop() {
            if let Verdict::Multicast { len, .. } = verdict {
                frame.set_len(len);
                self.send(now, frame);
            } else {
                self.retire(frame);
            }
        }
        match verdict {
            Verdict::Multicast { len, lease } => {
                last.set_len(len);
                self.multicast(now, last, lease, count);
            }
            verdict => self.carry_out(now, last, verdict, host),
        }
    }

    /// Has a whole lease's run summed, and sends the acknowledgements that its frames become.
    fn carry_out_whole_run(&mut self, now: Nanos, run: RunIndex) {
        let mut frames = core::mem::take(&mut self.runs[run.index()]);
        let len = self.engine.sum_whole_run(run, &mut frames);
        for mut frame in frames {
            frame.set_len(len);
            self.send(now, frame);
        }
    }

    /// Has all runs summed that still wait.
    #[inline]
    fn sum_all(&mut self, now: Nanos, host: &mut impl HostSide<P>) {
        while let Some(run) = self.engine.waiting_run() {
            self.carry_out_run(now, run, host);
        }
    }

    /// Keeps a frame of no further use for a copy.
    #[inline]
    fn retire(&mut self, frame: P::Frame) {
        if self.done.is_full() || self.done.len() * frame.as_ref().len() > DONE_BYTES {
            self.port.free(&mut self.done);
        }
        self.done.push(frame);
    }

    fn carry_out(
        &mut self,
        now: Nanos,
        mut frame: P::Frame,
        verdict: Verdict,
        host: &mut impl HostSide<P>,
    ) {
        match verdict {
            Verdict::Drop(_) | Verdict::Hold => self.retire(frame),
            Verdict::Host => {
                if let Some(answer) = host.handle(now, &mut self.port, frame) {
                    self.send(now, answer);
                }
            }
            Verdict::Send { len } => {
                frame.set_len(len);
                frame.keep_apart(self.engine.may_be_in_train());
                self.send(now, frame);
            }
            Verdict::Multicast { len, lease } => {
                frame.set_len(len);
                self.multicast(now, frame, lease, 1);
            }
            Verdict::Fan { len, push } => {
                frame.set_len(len);
                frame.keep_apart(self.engine.may_be_in_train());
                self.fan(now, frame, push);
            }
        }
    }

    /// As [`RoleLane::multicast`], to the receivers that the push job names.
    fn fan(&mut self, now: Nanos, frame: P::Frame, push: PushIndex) {
        let frame_len = frame.as_ref().len();
        let Some(gather) = self.engine.gather() else { return self.send(now, frame) };
        let header_len = gather.copy_header_len(push);
        for peer in gather.copies(push, frame.as_ref()) {
            let Some(mut copy) = self.port.copy(&frame, header_len) else {
                self.stats.tx_nombuf += 1;
                continue;
            };
            let gather = self.engine.gather();
            // A peer that left within this burst gets none.
            if gather.is_some_and(|g| g.address_copy(push, peer, copy.as_mut(), frame_len)) {
                self.send(now, copy);
            }
        }
        self.send(now, frame);
    }

    /// Sends the copies first, to the members from `from` on: they may share the payload, which
    /// the original then still owns.
    fn multicast(&mut self, now: Nanos, frame: P::Frame, lease: LeaseIndex, from: usize) {
        let header_len = self.engine.encap_len(lease);
        let frame_len = frame.as_ref().len();
        let recycles = self.port.recycles(frame_len);
        for member in from..self.engine.fan_out(lease) {
            // The frame that was added last is of no more use, and still in the first cache.
            let spare = if recycles { self.done.pop() } else { None };
            let copy = spare.and_then(|spare| rewritten(spare, frame.as_ref()));
            match copy.or_else(|| self.port.copy(&frame, header_len)) {
                Some(mut copy) => {
                    self.engine.readdress(lease, member, copy.as_mut(), frame_len);
                    self.send(now, copy);
                }
                None => self.stats.tx_nombuf += 1,
            }
        }
        self.send(now, frame);
    }

    fn poll_engine(&mut self, now: Nanos) {
        loop {
            let Some(mut frame) = self.port.alloc() else {
                self.stats.tx_nombuf += 1;
                return;
            };
            let Some(len) = self.engine.poll_transmit(now, frame.buffer_mut()) else { return };
            frame.set_len(len);
            self.send(now, frame);
        }
    }

    #[inline(always)]
    fn send(&mut self, now: Nanos, frame: P::Frame) {
        self.stats.tx_dropped += self.outbox.push(now, &mut self.port, frame);
    }

    /// Offers what is waiting to the port once; what it refuses is loss.
    fn flush(&mut self, now: Nanos) {
        self.stats.tx_dropped += self.outbox.flush(now, &mut self.port);
    }
}

#[cfg(test)]
mod tests;
