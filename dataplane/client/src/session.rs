//! One life of one worker: the engines, a port, and the clock between them.
//!
//! Does the I/O that `weft_engine::role::worker::Worker` asks for. Calls block until the sum is
//! there or an error says who is missing; nothing runs between calls, so a member that computes
//! for long keeps the others waiting, as a late gradient would.

use std::fmt;
use std::time::Instant;

use weft_engine::role::worker::{Event, LeaseInfo, Payload, Worker, WorkerStats};
use weft_io::udp::{UdpConfig, UdpPort};
use weft_io::{Burst, Frame, Port};
use weft_kernel::Kernels;
use weft_wire::Nanos;
use weft_wire::frame::Udp;
use weft_wire::header::{HEADER_LEN, Operation, Packet};
use weft_wire::quant;

use crate::config::{Config, Numbers};
use crate::error::Error;
use crate::payload::{Exponents, FixedPoint, Floats, Integers, Nothing};

/// Longest sleep between looks at the engines' timers.
const WAIT_NS_MAX: u64 = 10_000_000;

/// A worker's membership of a group. Dropping it without [`Session::close`] leaves the others to
/// find out by their timeouts.
pub struct Session<P: Port = UdpPort> {
    io: Io<P>,
    numbers: Numbers,
    data: Worker,
    /// Agrees on block exponents, if the numbers need it.
    exponents: Option<Worker>,
    lease: LeaseInfo,
    encoded: Vec<i32>,
    clamped: u64,
}

impl<P: Port> fmt::Debug for Session<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("port", &self.io.port.info())
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RoundReport {
    /// How long the call took.
    pub duration_ns: u64,
    /// Chunks summed.
    pub chunks: u64,
    /// Chunks in which an element of some contribution was clamped.
    pub chunks_clamped: u64,
}

/// Counters of a session.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Of the group that sums.
    pub data: WorkerStats,
    /// Of the group that agrees on exponents.
    pub exponents: Option<WorkerStats>,
    /// Chunks that came back with CLAMPED.
    pub chunks_clamped: u64,
}

impl Session<UdpPort> {
    /// Joins the group over UDP sockets. Returns when every worker has joined.
    ///
    /// # Errors
    /// [`Error`], within `connect_timeout` when the aggregator does not answer or full datagrams
    /// do not reach it, within `member_timeout` when workers are missing.
    pub fn connect(config: &Config) -> Result<Self, Error> {
        let mut udp = UdpConfig::new(config.local);
        udp.socket_count = usize::from(config.lanes);
        udp.mtu = usize::from(config.mtu);
        let port = UdpPort::open(&udp).map_err(Error::Port)?;
        Self::over(port, config)
    }
}

impl<P: Port> Session<P> {
    /// Joins the group over a port of the caller's.
    ///
    /// # Errors
    /// As [`Session::connect`].
    pub fn over(port: P, config: &Config) -> Result<Self, Error> {
        let seed = match config.seed {
            Some(seed) => seed,
            None => getrandom::u64().map_err(Error::Random)?,
        };
        let mac = port.info().mac;
        let mut io = Io::new(port);
        let now = io.now();
        let join = |row, operation, seed| {
            let worker = config.worker(row, operation, mac)?;
            Worker::new(worker, weft_kernel::crc32c, seed, now).map_err(Error::Session)
        };
        let mut data = join(config.row, Operation::Sum, seed)?;
        let mut exponents = match config.numbers {
            Numbers::Block { exponent_row } => Some(join(exponent_row, Operation::Max, !seed)?),
            _ => None,
        };
        let mut waiting = 1 + usize::from(exponents.is_some());
        while waiting > 0 {
            let mut workers = Workers { active: &mut data, other: exponents.as_mut() };
            match io.step(&mut workers, &mut Nothing)? {
                Some(Event::Opened) => waiting -= 1,
                Some(Event::Failed(error)) => return Err(Error::Session(error)),
                _ => {}
            }
            if let Some(lease) = data.lease()
                && lease.shards != config.lanes
            {
                return Err(Error::Lanes { configured: config.lanes, actual: lease.shards });
            }
        }
        let lease = *data.lease().expect("an open worker has a lease");
        let numbers = config.numbers;
        if numbers == Numbers::Fixed && lease.exponent.is_none() {
            let problem = "is Fixed but the row has no exponent: set one there, or use Block";
            return Err(Error::Config { field: "numbers", problem });
        }
        Ok(Self { io, numbers, data, exponents, lease, encoded: Vec::new(), clamped: 0 })
    }

    /// Sums `values` over all workers, in place. Every worker gets the same bits when the numbers
    /// are `Fixed`, `Block`, `Bf16`, or `F32` in a row that sums in rank order.
    ///
    /// # Errors
    /// [`Error::Session`] naming the members that are missing, within `member_timeout`.
    pub fn allreduce(&mut self, values: &mut [f32]) -> Result<RoundReport, Error> {
        let begun = Instant::now();
        let kernels = Kernels::detect();
        let elements = usize::from(self.lease.elements);
        let chunks = self.chunk_count(values.len())?;
        let limit = quant::clamp_limit(self.lease.fan_in);
        let clamped = match self.numbers {
            Numbers::Fixed | Numbers::Block { .. } => {
                let agreed = match self.numbers {
                    Numbers::Fixed => None,
                    _ => Some(self.agree_on_exponents(values)?),
                };
                let exponents = match &agreed {
                    Some(encoded) => Exponents::Agreed(encoded),
                    None => Exponents::Job(self.lease.exponent.unwrap_or(0)),
                };
                let mut payload =
                    FixedPoint { kernels, elements, data: values, limit, exponents, clamped: 0 };
                let active = Workers { active: &mut self.data, other: self.exponents.as_mut() };
                self.io.round(active, chunks, &mut payload)?;
                let clamped = payload.clamped;
                self.encoded = agreed.unwrap_or_default();
                clamped
            }
            Numbers::F32 | Numbers::Bf16 => {
                let bf16 = self.numbers == Numbers::Bf16;
                let mut payload = Floats { kernels, elements, data: values, bf16 };
                let active = Workers { active: &mut self.data, other: None };
                self.io.round(active, chunks, &mut payload)?;
                0
            }
        };
        self.clamped += clamped;
        Ok(report(begun, chunks, clamped))
    }

    /// Sums integers over all workers, in place: exact modulo 2^32 when the row's overflow is
    /// `wrap`, clamped contributions when it is `clamp`.
    ///
    /// # Errors
    /// [`Error::Wrong`] when the session's numbers are not [`Numbers::Fixed`]; else as
    /// [`Session::allreduce`].
    pub fn allreduce_i32(&mut self, values: &mut [i32]) -> Result<RoundReport, Error> {
        if self.numbers != Numbers::Fixed {
            return Err(Error::Wrong("integers are summed in a session with Numbers::Fixed"));
        }
        let begun = Instant::now();
        let chunks = self.chunk_count(values.len())?;
        let mut payload = Integers {
            kernels: Kernels::detect(),
            elements: usize::from(self.lease.elements),
            data: values,
            padding: 0,
            exponent: self.lease.exponent.unwrap_or(0),
            clamped: 0,
        };
        let active = Workers { active: &mut self.data, other: None };
        self.io.round(active, chunks, &mut payload)?;
        let clamped = payload.clamped;
        self.clamped += clamped;
        Ok(report(begun, chunks, clamped))
    }

    /// What the aggregator said of the group: members, elements per chunk, fan-in.
    #[must_use]
    pub fn lease(&self) -> &LeaseInfo {
        &self.lease
    }

    /// The exponents of the last `allreduce`, one per block, or the job's one.
    #[must_use]
    pub fn exponents(&self) -> Vec<i8> {
        match self.numbers {
            Numbers::Block { .. } => self
                .encoded
                .iter()
                .map(|encoded| quant::decode_exponent(*encoded).unwrap_or(quant::EXPONENT_MIN))
                .collect(),
            _ => vec![self.lease.exponent.unwrap_or(0)],
        }
    }

    /// Counters since the session began.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics {
            data: self.data.stats().clone(),
            exponents: self.exponents.as_ref().map(|worker| worker.stats().clone()),
            chunks_clamped: self.clamped,
        }
    }

    /// The port, for its counters.
    pub fn port(&self) -> &P {
        &self.io.port
    }

    /// Leaves the group when every worker has all sums, or after `close_linger`. True when all
    /// workers had closed by then.
    ///
    /// # Errors
    /// [`Error::PortClosed`] when the port ended first.
    pub fn close(mut self) -> Result<bool, Error> {
        let now = self.io.now();
        self.data.close(now);
        let mut open = 1;
        if let Some(worker) = &mut self.exponents {
            worker.close(now);
            open += 1;
        }
        let mut all = true;
        while open > 0 {
            let mut workers = Workers { active: &mut self.data, other: self.exponents.as_mut() };
            match self.io.step(&mut workers, &mut Nothing)? {
                Some(Event::Closed { by_all }) => {
                    all &= by_all;
                    open -= 1;
                }
                Some(Event::Failed(_)) => {
                    all = false;
                    open -= 1;
                }
                _ => {}
            }
        }
        Ok(all)
    }

    fn chunk_count(&self, len: usize) -> Result<u32, Error> {
        u32::try_from(len.div_ceil(usize::from(self.lease.elements)))
            .map_err(|_| Error::Wrong("a vector of more than 2^32 chunks: sum it in parts"))
    }

    /// One exponent per data chunk, the largest that any worker needs.
    fn agree_on_exponents(&mut self, values: &[f32]) -> Result<Vec<i32>, Error> {
        let kernels = Kernels::detect();
        let block = usize::from(self.lease.elements);
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.clear();
        encoded.extend(values.chunks(block).map(|block| {
            let exponent = quant::exponent_for(kernels.max_abs_f32(block), self.lease.fan_in);
            quant::encode_exponent(exponent)
        }));
        let worker = self.exponents.as_mut().expect("block numbers have a row for exponents");
        let lease = *worker.lease().expect("an open worker has a lease");
        let elements = usize::from(lease.elements);
        let chunks = u32::try_from(encoded.len().div_ceil(elements)).expect("fewer than values");
        let mut payload = Integers {
            kernels,
            elements,
            data: &mut encoded,
            padding: quant::encode_exponent(quant::EXPONENT_MIN),
            exponent: lease.exponent.unwrap_or(0),
            clamped: 0,
        };
        let active = Workers { active: worker, other: Some(&mut self.data) };
        self.io.round(active, chunks, &mut payload)?;
        Ok(encoded)
    }
}

fn report(begun: Instant, chunks: u32, chunks_clamped: u64) -> RoundReport {
    let duration_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    RoundReport { duration_ns, chunks: u64::from(chunks), chunks_clamped }
}

/// The engines of a session: the one whose round it is, and the other.
struct Workers<'a> {
    active: &'a mut Worker,
    other: Option<&'a mut Worker>,
}

impl Workers<'_> {
    fn timeout(&self) -> Nanos {
        let other = self.other.as_ref().map_or(Nanos::MAX, |worker| worker.poll_timeout());
        self.active.poll_timeout().min(other)
    }
}

/// A port, its bursts, and the clock.
struct Io<P: Port> {
    port: P,
    origin: Instant,
    rx: Burst<P::Frame>,
    tx: Burst<P::Frame>,
}

impl<P: Port> Io<P> {
    fn new(port: P) -> Self {
        Self { port, origin: Instant::now(), rx: Burst::new_const(), tx: Burst::new_const() }
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Runs a round of `active` to its end.
    fn round(
        &mut self,
        mut workers: Workers<'_>,
        chunks: u32,
        payload: &mut dyn Payload,
    ) -> Result<(), Error> {
        workers.active.begin_round(self.now(), chunks).map_err(Error::Round)?;
        loop {
            match self.step(&mut workers, payload)? {
                Some(Event::RoundComplete) => return Ok(()),
                Some(Event::Failed(error)) => return Err(Error::Session(error)),
                _ => {}
            }
        }
    }

    /// Sends what is due, takes what has come, sleeps if there was neither; then one event.
    fn step(
        &mut self,
        workers: &mut Workers<'_>,
        payload: &mut dyn Payload,
    ) -> Result<Option<Event>, Error> {
        if let Some(event) = poll_event(workers) {
            return Ok(Some(event));
        }
        let now = self.now();
        if now >= workers.timeout() {
            workers.active.handle_timeout(now);
            if let Some(other) = &mut workers.other {
                other.handle_timeout(now);
            }
        }
        let sent = self.transmit(now, workers, payload);
        let received = self.receive(workers, payload);
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

    fn transmit(
        &mut self,
        now: Nanos,
        workers: &mut Workers<'_>,
        payload: &mut dyn Payload,
    ) -> usize {
        let mut sent = 0;
        loop {
            while !self.tx.is_full() {
                let Some(mut frame) = self.port.alloc() else { break };
                let written = match workers.active.poll_transmit(now, payload, frame.buffer_mut()) {
                    Some(len) => Some(len),
                    None => workers
                        .other
                        .as_mut()
                        .and_then(|other| other.poll_transmit(now, &Nothing, frame.buffer_mut())),
                };
                let Some(len) = written else { break };
                frame.set_len(len);
                self.tx.push(frame);
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

    fn receive(&mut self, workers: &mut Workers<'_>, payload: &mut dyn Payload) -> usize {
        let now = self.now();
        let received = self.port.rx_burst(now, &mut self.rx);
        for mut frame in self.rx.drain(..) {
            let frame = frame.as_mut();
            // What an engine refuses it has counted; there is nothing else to do about it.
            let _ = match &mut workers.other {
                Some(other) if !is_of_row(frame, workers.active) => {
                    other.handle_frame(now, frame, &mut Nothing)
                }
                _ => workers.active.handle_frame(now, frame, payload),
            };
        }
        received
    }
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
