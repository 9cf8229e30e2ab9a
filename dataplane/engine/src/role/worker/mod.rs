//! One member of one group at one box (SPEC "Member", "Handshake", "Resync"; PROTOCOL sections
//! 1 to 3, 6 and 10).
//!
//! A [`Worker`] connects, sums the chunks of one round after another with the other members, and
//! closes. It decides and does no I/O: the caller brings frames, the time, and the data.
//!
//! - `handle_*` says what happened: [`Worker::handle_frame`], [`Worker::handle_timeout`].
//! - `poll_*` says what to do: after any `handle_*` or command, call [`Worker::poll_transmit`]
//!   until it gives nothing, then [`Worker::poll_event`] until it gives nothing, and call
//!   `handle_timeout` no later than [`Worker::poll_timeout`]. [`Worker::poll_run`] may give what
//!   follows a frame at once.
//! - [`Worker::begin_round`] and [`Worker::close`] are the commands.
//!
//! Chunks run on over the rounds: chunk `c` of the group is step `c / shards` of lane `c % shards`.
//! All memory is taken when a lane opens (window x chunk bytes per lane); a frame allocates
//! nothing.
//!
//! A lane with nothing to send asks the box for itself eight times within `member_timeout`, so that
//! a worker between two rounds still hands over what others lack after a restart. For that it
//! must be polled; one that is not is a late member like any other.

mod config;
mod data;
mod event;
mod handshake;
mod hearing;
mod known;
mod lane;
mod poll;
mod quick;
mod receive;
mod received_run;
mod run;
mod slot;
mod stats;
mod steps;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use weft_wire::Nanos;
use weft_wire::frame::{ETHERNET_LEN, Encap, IPV6_LEN, UDP_LEN};
use weft_wire::header::HEADER_LEN;

pub use config::{ChunkMeta, LeaseInfo, Part, Payload, WorkerConfig};
pub use event::{Event, Extent, LeaseFault, Refusal, RoundError, WorkerError};
pub use handshake::BATCH_MAX;
pub use lane::Crc32c;
pub use stats::WorkerStats;

use crate::random::SplitMix64;
use crate::send::pacer::TokenBucket;
use lane::{Lane, Shared};

/// One member of one group at one box.
#[derive(Debug)]
pub struct Worker {
    shared: Shared,
    state: WorkerState,
    lanes: Vec<Lane>,
    /// The lane that may send first.
    turn: usize,
    /// The lane whose data went last, where more may follow at once.
    run_lane: Option<usize>,
    pacer: Option<TokenBucket>,
    paced_until: Nanos,
    /// First chunk after the round.
    end: u32,
    /// Sums of the round that are missing.
    missing_chunks: u32,
    progress_at: Nanos,
    /// When the round last asked for nothing but a word of the box.
    questioned_at: Nanos,
    close_at: Nanos,
    events: VecDeque<Event>,
    stats: WorkerStats,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum WorkerState {
    Connecting,
    Ready,
    InRound,
    Closing,
    Stopped,
}

impl Worker {
    /// Starts to connect. `seed` must differ between lives of the same rank; the same inputs and
    /// seed give the same frames. `crc32c` computes the CRC32C of datagrams.
    ///
    /// # Errors
    /// [`WorkerError::AddressFamily`] when the two addresses cannot reach each other.
    pub fn new(
        config: WorkerConfig,
        crc32c: Crc32c,
        seed: u64,
        now: Nanos,
    ) -> Result<Self, WorkerError> {
        let encap = Encap::new(config.local, config.target).ok_or(WorkerError::AddressFamily)?;
        let life = SplitMix64::new(seed).next_non_zero();
        let lanes = vec![Lane::new(0, encap, &config, life, now)];
        Ok(Self {
            shared: Shared { config, crc32c, life, lease: None, base: 0, closing: false },
            state: WorkerState::Connecting,
            lanes,
            turn: 0,
            run_lane: None,
            pacer: config.rate_bytes_per_sec.map(|rate| TokenBucket::new(rate, config.burst_bytes)),
            paced_until: Nanos::MAX,
            end: 0,
            missing_chunks: 0,
            progress_at: now,
            questioned_at: Nanos(0),
            close_at: Nanos::MAX,
            events: VecDeque::with_capacity(EVENTS_MAX),
            stats: WorkerStats::default(),
        })
    }

    /// What the box said of the lease, once lane 0 is open.
    #[must_use]
    pub fn lease(&self) -> Option<&LeaseInfo> {
        self.shared.lease.as_ref()
    }

    /// The group's row at the box.
    #[must_use]
    pub fn row(&self) -> u16 {
        self.shared.config.row
    }

    /// What has been counted.
    #[must_use]
    pub fn stats(&self) -> &WorkerStats {
        &self.stats
    }

    /// True while a round is under way.
    #[must_use]
    pub fn in_round(&self) -> bool {
        self.state == WorkerState::InRound
    }

    /// True while a round can begin: every lane is open and none is under way.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state == WorkerState::Ready
    }

    /// Bytes that the buffer of [`Worker::poll_transmit`] must have. Grows once, when lane 0 opens,
    /// and only where no probe was configured.
    #[must_use]
    pub fn frame_len_max(&self) -> usize {
        let chunk_len = self.shared.lease.map_or(0, |lease| HEADER_LEN + lease.chunk_len());
        ETHERNET_LEN
            + IPV6_LEN
            + UDP_LEN
            + chunk_len
                .max(handshake::HANDSHAKE_LEN_MAX)
                .max(usize::from(self.shared.config.probe_len))
    }

    /// Begins a round of `chunk_count` chunks. Its chunks are numbered from 0 for the payload; on
    /// the wire they follow those of the last round.
    ///
    /// # Errors
    /// [`RoundError`]; [`RoundError::StepsExhausted`] asks for a close and a new worker.
    pub fn begin_round(&mut self, now: Nanos, chunk_count: u32) -> Result<(), RoundError> {
        match self.state {
            WorkerState::Ready => {}
            WorkerState::InRound => return Err(RoundError::InProgress),
            _ => return Err(RoundError::NotOpen),
        }
        let lease = self.shared.lease.ok_or(RoundError::NotOpen)?;
        let shards = u32::from(lease.shards);
        let end = self.end.checked_add(chunk_count).ok_or(RoundError::StepsExhausted)?;
        // Room for the run-ahead window in u32 arithmetic, whatever the box allows.
        let step_max = (u32::MAX / shards).saturating_sub(8 * u32::from(WINDOW_MAX));
        if end.div_ceil(shards) > lease.step_count.min(step_max) {
            return Err(RoundError::StepsExhausted);
        }
        self.shared.base = self.end;
        self.end = end;
        self.missing_chunks = chunk_count;
        self.progress_at = now;
        self.state = WorkerState::InRound;
        self.extend_lanes();
        self.finish_round();
        Ok(())
    }

    /// Lets the steps of the round go out in every lane that is open.
    fn extend_lanes(&mut self) {
        let shards = self.shared.lease.map_or(1, |lease| u32::from(lease.shards));
        for lane in &mut self.lanes {
            let lane_end = (self.end + shards - 1 - u32::from(lane.index)) / shards;
            if let Some(steps) = &mut lane.steps {
                steps.extend(lane_end);
            }
        }
    }

    /// Tells the box that every sum needed is held, and stops when all members have said so or
    /// `close_linger` is over. Meanwhile sums that others lack are handed over. A round under way
    /// is given up: its contributions still go out, but its end is not waited for or reported.
    pub fn close(&mut self, now: Nanos) {
        match self.state {
            WorkerState::Closing | WorkerState::Stopped => {}
            WorkerState::Connecting => self.stop(Event::Closed { by_all: false }),
            WorkerState::Ready | WorkerState::InRound => {
                self.state = WorkerState::Closing;
                self.shared.closing = true;
                self.close_at = now.saturating_add(Nanos(self.shared.config.close_linger_ns));
                for lane in &mut self.lanes {
                    lane.session.close(now);
                }
            }
        }
    }

    fn finish_round(&mut self) {
        if self.state == WorkerState::InRound && self.missing_chunks == 0 {
            self.state = WorkerState::Ready;
            self.events.push_back(Event::RoundComplete);
        }
    }

    /// The next event.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn stop(&mut self, event: Event) {
        if self.state != WorkerState::Stopped {
            self.state = WorkerState::Stopped;
            self.events.push_back(event);
        }
    }
}

/// Most lanes of a box.
pub const LANES_MAX: u16 = 64;
/// Most slots of a lane (SPEC "Limits").
pub const WINDOW_MAX: u16 = 2048;
/// Events kept until they are polled; RESYNCED ones beyond that are dropped, the others are few:
/// opened, round complete, and one that stops.
const EVENTS_MAX: usize = 16;
const EVENTS_KEPT: usize = 4;

#[cfg(test)]
mod tests;
