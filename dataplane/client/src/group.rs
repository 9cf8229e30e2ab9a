//! One lease's worth of a session: the engines from the handshake to the close exchange.
//!
//! A group of block numbers is two: one sums, one agrees on exponents by MAX. Both are joined and
//! closed together, over one port.

use std::time::Duration;

use weft_engine::role::worker::{BATCH_MAX, Event, LeaseInfo, RoundError, Worker, WorkerStats};
use weft_io::{BURST_MAX, Port, RUN_BYTES_MAX};
use weft_kernel::crc32c_blank;
use weft_wire::frame::multicast::group_of;
use weft_wire::header::{CRC_AT, Operation};

use crate::config::{Config, Numbers};
use crate::error::Error;
use crate::io::{Io, Workers};
use crate::payload::Nothing;

/// The engines of one life.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) data: Worker,
    /// Agrees on block exponents, if the numbers need it.
    pub(crate) exponents: Option<Worker>,
    pub(crate) lease: LeaseInfo,
}

impl Group {
    /// Joins. Returns when every worker has joined.
    pub(crate) fn join<P: Port>(io: &mut Io<P>, config: &Config, seed: u64) -> Result<Self, Error> {
        let now = io.now();
        let mac = io.port.info().mac;
        // A message costs about as much whether it carries one frame or a burst of them.
        let batch_bytes = if io.port.merges() { RUN_BYTES_MAX } else { 0 };
        let base = io.port.multicast_base().or(config.multicast);
        let worker = |row, operation, seed| {
            let mut worker = config.worker(row, operation, mac)?;
            worker.batch_bytes = batch_bytes;
            let group = base.and_then(|base| group_of(base, row));
            worker.multicast = group.filter(|group| io.port.hears(*group));
            Worker::new(worker, crc32c_blank::<CRC_AT>, seed, now).map_err(Error::Session)
        };
        let mut data = worker(config.row, Operation::Sum, seed)?;
        let mut exponents = match config.numbers {
            Numbers::Block { exponent_row } => Some(worker(exponent_row, Operation::Max, !seed)?),
            _ => None,
        };
        let mut waiting = 1 + usize::from(exponents.is_some());
        while waiting > 0 {
            let mut workers = Workers { active: &mut data, other: exponents.as_mut() };
            match io.step(&mut workers, &mut Nothing)? {
                Some(Event::Opened) => waiting -= 1,
                Some(Event::Failed(error)) => return Err(io.ended(error)),
                _ => {}
            }
            if let Some(lease) = data.lease()
                && lease.shards != config.lanes
            {
                return Err(Error::Lanes { configured: config.lanes, actual: lease.shards });
            }
        }
        let lease = *data.lease().expect("an open worker has a lease");
        let problem = match (config.numbers, lease.exponent) {
            (Numbers::Fixed, None) => {
                Some("is Fixed but the row has no `exponent`: set one there, or use Block")
            }
            (Numbers::Block { .. }, Some(_)) => {
                Some("is Block but the row has an `exponent`: take it out there, or use Fixed")
            }
            _ => None,
        };
        if let Some(problem) = problem {
            return Err(Error::Config { field: "numbers", problem });
        }
        Ok(Self { data, exponents, lease })
    }

    /// Leaves when every worker has all sums, or after `linger`. True when all had by then.
    ///
    /// Only what is between two rounds leaves. An engine that has failed says no more, and one
    /// whose round was given up has nothing left to say: what it would send is the caller's again.
    pub(crate) fn close<P: Port>(
        &mut self,
        io: &mut Io<P>,
        linger: Duration,
    ) -> Result<bool, Error> {
        let now = io.now();
        let end = now.0.saturating_add(u64::try_from(linger.as_nanos()).unwrap_or(u64::MAX));
        let mut all = true;
        let mut open = 0;
        let mut leaving = [Some(&mut self.data), self.exponents.as_mut()].map(|worker| {
            let worker = worker?;
            if !worker.is_ready() {
                all = false;
                return None;
            }
            worker.close(now);
            open += 1;
            Some(worker)
        });
        leaving.sort_by_key(Option::is_none);
        let [Some(active), mut other] = leaving else { return Ok(false) };
        while open > 0 {
            if io.now().0 >= end {
                return Ok(false);
            }
            let mut workers = Workers { active: &mut *active, other: other.as_deref_mut() };
            match io.step(&mut workers, &mut Nothing)? {
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

    /// Begins a round. False when the lease has too few steps left for it, but a fresh one has
    /// enough.
    pub(crate) fn begin<P: Port>(
        &mut self,
        io: &Io<P>,
        of_exponents: bool,
        chunks: u32,
    ) -> Result<bool, Error> {
        let worker = match &mut self.exponents {
            Some(exponents) if of_exponents => exponents,
            _ => &mut self.data,
        };
        let lease = *worker.lease().expect("an open worker has a lease");
        match worker.begin_round(io.now(), chunks) {
            Ok(()) => Ok(true),
            Err(RoundError::StepsExhausted)
                if chunks.div_ceil(u32::from(lease.shards)) <= lease.step_count =>
            {
                Ok(false)
            }
            Err(error) => Err(Error::Round(error)),
        }
    }
}

/// Adds the counters of a later life.
pub(crate) fn add(total: &mut WorkerStats, more: &WorkerStats) {
    // Named one by one, so that none is forgotten.
    let WorkerStats {
        chunks_sent,
        retransmissions,
        status_probes,
        answers,
        answers_by_multicast,
        times_deaf,
        duplicate_answers,
        have,
        have_without_us,
        stale,
        congestion_marks,
        window_reductions,
        resyncs,
        handovers_sent,
        handovers_done,
        hellos_sent,
        smoothed_rtt,
        refused,
    } = total;
    for (total, more) in [
        (chunks_sent, more.chunks_sent),
        (retransmissions, more.retransmissions),
        (status_probes, more.status_probes),
        (answers, more.answers),
        (answers_by_multicast, more.answers_by_multicast),
        (times_deaf, more.times_deaf),
        (duplicate_answers, more.duplicate_answers),
        (have, more.have),
        (have_without_us, more.have_without_us),
        (stale, more.stale),
        (congestion_marks, more.congestion_marks),
        (window_reductions, more.window_reductions),
        (resyncs, more.resyncs),
        (handovers_sent, more.handovers_sent),
        (handovers_done, more.handovers_done),
        (hellos_sent, more.hellos_sent),
    ] {
        *total += more;
    }
    for (total, more) in refused.iter_mut().zip(more.refused) {
        *total += more;
    }
    *smoothed_rtt = more.smoothed_rtt;
}

const _: () = assert!(BATCH_MAX as usize == BURST_MAX, "what one burst holds");
