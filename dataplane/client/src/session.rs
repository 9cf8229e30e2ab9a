//! What a training program holds: calls that block until the sum is there or an error says who is
//! missing. Nothing runs between calls, so a member that computes for long keeps the others
//! waiting, as a late gradient would.
//!
//! A lease has a bounded number of steps. When a round does not fit any more, the session closes
//! the group and forms it anew within that call; every worker comes to this at the same round, for
//! all count the same chunks.

mod exponents;

use std::fmt;
use std::time::Instant;

use weft_engine::role::worker::{LeaseInfo, WorkerStats};
use weft_io::Port;
use weft_kernel::Kernels;
use weft_wire::hello::Integrity;
use weft_wire::quant;

use crate::config::{Config, Numbers};
use crate::error::Error;
use crate::group::{self, Group};
use crate::io::{Io, Workers};
use crate::many::{Code, Layout, Many};
use crate::messages::MessageCounter;
use crate::narrow;
use crate::payload::{Exponents, FixedPoint, Floats, Integers};
use crate::port::WorkerPort;

/// A worker's membership of a group. Dropping it without [`Session::close`] leaves the others to
/// find out by their timeouts.
pub struct Session<P: Port = WorkerPort> {
    io: Io<P>,
    config: Config,
    /// Seed of the next life's random numbers.
    seed: u64,
    group: Group,
    /// Counters of the lives before.
    earlier: Statistics,
    encoded: Vec<i32>,
    messages: MessageCounter,
}

impl<P: Port> fmt::Debug for Session<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("port", &self.io.port.info())
            .field("lease", &self.group.lease)
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
    /// Times that the group was formed anew because its lease had run out of steps.
    pub renewals: u64,
}

impl Session<WorkerPort> {
    /// Joins the group over UDP sockets, over memory shared with an aggregator of this host, or
    /// over an interface ([`Config::io`]); [`Session::port`] says which. Returns when every worker
    /// has joined.
    ///
    /// # Errors
    /// [`Error`], within `connect_timeout` when the aggregator does not answer or full datagrams
    /// do not reach it, within `member_timeout` when workers are missing.
    pub fn connect(config: &Config) -> Result<Self, Error> {
        let port = WorkerPort::open(config)?;
        let mut config = config.clone();
        if let Some(rto_min) = port.rto_min() {
            config.rto_min = config.rto_min.max(rto_min);
        }
        let mut session = Self::over(port, &config)?;
        let integrity = session.group.lease.integrity;
        session.io.port.set_ipv4_checksum(integrity == Integrity::Checksum16);
        session.io.port.join_runs(true);
        Ok(session)
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
        let mut io = Io::new(port, config.dscp);
        let group = Group::join(&mut io, config, seed)?;
        let (config, seed) = (config.clone(), next_seed(seed));
        let (earlier, encoded) = (Statistics::default(), Vec::new());
        let messages = MessageCounter::default();
        Ok(Self { io, config, seed, group, earlier, encoded, messages })
    }

    /// Sums `values` over all workers, in place. Every worker gets the same bits when the numbers
    /// are `Fixed`, `Block`, `Bf16`, or `F32` in a row that sums in rank order.
    ///
    /// # Errors
    /// [`Error::Session`] naming the members that are missing, within `member_timeout`; those that
    /// have closed, or gave a vector of another length, at once.
    pub fn allreduce(&mut self, values: &mut [f32]) -> Result<RoundReport, Error> {
        let begun = Instant::now();
        let chunks = self.chunk_count(values.len())?;
        let clamped = match self.config.numbers {
            Numbers::Fixed => self.sum_fixed_point(values, chunks, None)?,
            Numbers::Block { .. } => {
                let agreed = self.agree_on_exponents(&[&mut *values])?;
                let clamped = self.sum_fixed_point(values, chunks, Some(&agreed))?;
                self.encoded = agreed;
                clamped
            }
            Numbers::F32 | Numbers::Bf16 => {
                self.begin(false, chunks)?;
                let mut payload = Floats {
                    kernels: Kernels::detect(),
                    elements: usize::from(self.group.lease.elements),
                    data: values,
                    bf16: self.config.numbers == Numbers::Bf16,
                };
                let active = Workers { active: &mut self.group.data, other: None };
                narrow::finish(&mut self.io, &self.config, active, &mut payload)?;
                0
            }
        };
        self.earlier.chunks_clamped += clamped;
        self.messages.note([values.len()].into_iter(), self.element_bytes());
        Ok(report(begun, chunks, clamped))
    }

    /// Sums several vectors over all workers, in place, in one round: small ones share chunks, and
    /// all share the window, so that many take little longer than one. Every worker gives vectors
    /// of the same lengths in the same order; the bits are those of separate calls. Workers
    /// compare the length of all together, and of each where numbers have block exponents.
    ///
    /// # Errors
    /// As [`Session::allreduce`].
    pub fn allreduce_many(&mut self, vectors: &mut [&mut [f32]]) -> Result<RoundReport, Error> {
        let begun = Instant::now();
        let lens = vectors.iter().map(|vector| vector.len());
        let elements = usize::from(self.group.lease.elements);
        let is_block = matches!(self.config.numbers, Numbers::Block { .. });
        let layout =
            if is_block { Layout::apart(lens, elements) } else { Layout::packed(lens, elements) };
        let chunks = self.chunk_count(layout.element_count())?;
        let agreed = match is_block {
            true => Some(self.agree_on_exponents(vectors)?),
            false => None,
        };
        self.begin(false, chunks)?;
        let clamped = self.finish_many(&layout, vectors, agreed.as_deref())?;
        self.encoded = agreed.unwrap_or_default();
        Ok(report(begun, chunks, clamped))
    }

    /// Sums the first vectors in one round, each in chunks of its own: as many as the lease has
    /// steps for, and at least one. Returns how many.
    pub(crate) fn sum_first(
        &mut self,
        vectors: &mut [&mut [f32]],
    ) -> Result<(usize, RoundReport), Error> {
        let begun = Instant::now();
        if matches!(self.config.numbers, Numbers::Block { .. }) {
            // Exponents are agreed in rounds of their own, which would have to be the same.
            return Ok((1, self.allreduce(vectors[0])?));
        }
        let elements = usize::from(self.group.lease.elements);
        for count in (1..=vectors.len()).rev() {
            let vectors = &mut vectors[..count];
            let layout = Layout::apart(vectors.iter().map(|vector| vector.len()), elements);
            let chunks = self.chunk_count(layout.element_count())?;
            // The lease ends at the same vector for everybody, however they are put together.
            if count == 1 {
                self.begin(false, chunks)?;
            } else if !self.group.begin(&self.io, false, chunks).unwrap_or(false) {
                continue;
            }
            let clamped = self.finish_many(&layout, vectors, None)?;
            return Ok((count, report(begun, chunks, clamped)));
        }
        Ok((0, report(begun, 0, 0)))
    }

    /// Runs the round of these vectors, which has begun, to its end.
    fn finish_many(
        &mut self,
        layout: &Layout,
        vectors: &mut [&mut [f32]],
        agreed: Option<&[i32]>,
    ) -> Result<u64, Error> {
        let lease = &self.group.lease;
        let code = match (self.config.numbers, agreed) {
            (Numbers::F32, _) => Code::F32,
            (Numbers::Bf16, _) => Code::Bf16,
            (_, Some(encoded)) => {
                Code::Fixed(quant::clamp_limit(lease.fan_in), Exponents::Agreed(encoded))
            }
            (_, None) => {
                let exponent = Exponents::Job(lease.exponent.unwrap_or(0));
                Code::Fixed(quant::clamp_limit(lease.fan_in), exponent)
            }
        };
        let kernels = Kernels::detect();
        let mut payload = Many { kernels, layout, data: vectors, code, clamped: 0 };
        let group = &mut self.group;
        let active = Workers { active: &mut group.data, other: group.exponents.as_mut() };
        narrow::finish(&mut self.io, &self.config, active, &mut payload)?;
        let clamped = payload.clamped;
        self.earlier.chunks_clamped += clamped;
        self.messages.note(vectors.iter().map(|vector| vector.len()), self.element_bytes());
        Ok(clamped)
    }

    fn sum_fixed_point(
        &mut self,
        values: &mut [f32],
        chunks: u32,
        agreed: Option<&[i32]>,
    ) -> Result<u64, Error> {
        self.begin(false, chunks)?;
        let lease = &self.group.lease;
        let exponents = match agreed {
            Some(encoded) => Exponents::Agreed(encoded),
            None => Exponents::Job(lease.exponent.unwrap_or(0)),
        };
        let mut payload = FixedPoint {
            kernels: Kernels::detect(),
            elements: usize::from(lease.elements),
            data: values,
            limit: quant::clamp_limit(lease.fan_in),
            exponents,
            clamped: 0,
        };
        let group = &mut self.group;
        let active = Workers { active: &mut group.data, other: group.exponents.as_mut() };
        narrow::finish(&mut self.io, &self.config, active, &mut payload)?;
        Ok(payload.clamped)
    }

    /// Sums integers over all workers, in place: exact modulo 2^32 when the row's overflow is
    /// `wrap`, clamped contributions when it is `clamp`.
    ///
    /// # Errors
    /// [`Error::Wrong`] when the session's numbers are not [`Numbers::Fixed`]; else as
    /// [`Session::allreduce`].
    pub fn allreduce_i32(&mut self, values: &mut [i32]) -> Result<RoundReport, Error> {
        if self.config.numbers != Numbers::Fixed {
            return Err(Error::Wrong("integers are summed in a session with Numbers::Fixed"));
        }
        let begun = Instant::now();
        let chunks = self.chunk_count(values.len())?;
        self.begin(false, chunks)?;
        let lease = &self.group.lease;
        let mut payload = Integers {
            kernels: Kernels::detect(),
            elements: usize::from(lease.elements),
            data: values,
            padding: 0,
            exponent: lease.exponent.unwrap_or(0),
            clamped: 0,
        };
        let active = Workers { active: &mut self.group.data, other: None };
        narrow::finish(&mut self.io, &self.config, active, &mut payload)?;
        let clamped = payload.clamped;
        self.earlier.chunks_clamped += clamped;
        self.messages.note([values.len()].into_iter(), 4);
        Ok(report(begun, chunks, clamped))
    }

    /// Bytes of an element on its way.
    fn element_bytes(&self) -> usize {
        if self.config.numbers == Numbers::Bf16 { 2 } else { 4 }
    }

    /// Counts what is summed: for [`RoundControl`](crate::rounds::RoundControl), which tells it to
    /// the job's controller, or for whoever wants to know.
    #[must_use]
    pub fn messages(&self) -> MessageCounter {
        self.messages.clone()
    }

    /// What the aggregator said of the group: members, elements per chunk, fan-in.
    #[must_use]
    pub fn lease(&self) -> &LeaseInfo {
        &self.group.lease
    }

    /// The exponents of the last `allreduce`, one per block, or the job's one.
    #[must_use]
    pub fn exponents(&self) -> Vec<i8> {
        match self.config.numbers {
            Numbers::Block { .. } => self
                .encoded
                .iter()
                .map(|encoded| quant::decode_exponent(*encoded).unwrap_or(quant::EXPONENT_MIN))
                .collect(),
            _ => vec![self.group.lease.exponent.unwrap_or(0)],
        }
    }

    /// Counters since the session began.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let mut total = self.earlier.clone();
        group::add(&mut total.data, self.group.data.stats());
        if let Some(worker) = &self.group.exponents {
            let exponents = total.exponents.get_or_insert_with(WorkerStats::default);
            group::add(exponents, worker.stats());
        }
        total
    }

    /// The port, for its counters.
    pub fn port(&self) -> &P {
        &self.io.port
    }

    /// Leaves the group when every worker has all sums, or after `close_linger`. True when all
    /// workers had closed by then; false after a round that failed, whose numbers nobody gets any
    /// more: the others find that out by their timeouts.
    ///
    /// # Errors
    /// [`Error::PortClosed`] when the port ended first.
    pub fn close(mut self) -> Result<bool, Error> {
        self.group.close(&mut self.io, self.config.close_linger)
    }

    /// Begins a round, in a group formed anew if the lease has too few steps left.
    fn begin(&mut self, of_exponents: bool, chunks: u32) -> Result<(), Error> {
        if self.group.begin(&self.io, of_exponents, chunks)? {
            return Ok(());
        }
        if !self.group.close(&mut self.io, self.config.member_timeout)? {
            return Err(Error::Renewal);
        }
        self.earlier = self.statistics();
        self.earlier.renewals += 1;
        self.group = Group::join(&mut self.io, &self.config, self.seed)?;
        self.seed = next_seed(self.seed);
        // A round that a whole lease does not hold was refused before.
        self.group.begin(&self.io, of_exponents, chunks).map(drop)
    }

    /// An empty vector has a chunk as well: the others may have elements.
    fn chunk_count(&self, len: usize) -> Result<u32, Error> {
        u32::try_from(len.max(1).div_ceil(usize::from(self.group.lease.elements)))
            .map_err(|_| Error::Wrong("a vector of more than 2^32 chunks: sum it in parts"))
    }
}

/// Another life must not look like the last.
fn next_seed(seed: u64) -> u64 {
    seed.wrapping_add(0x9e37_79b9_7f4a_7c15)
}

fn report(begun: Instant, chunks: u32, chunks_clamped: u64) -> RoundReport {
    let duration_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    RoundReport { duration_ns, chunks: u64::from(chunks), chunks_clamped }
}
