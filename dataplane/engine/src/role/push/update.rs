//! One update on its way: what was granted, which chunks have gone where, when its server is
//! asked next.
//!
//! requested -> granted -> (gate opens) -> sending -> delivered -> decided. The data never changes,
//! so a repeat has the same bytes. Sending to an aggregator is driven by [`Flight`]; sending to the
//! server only by its credits, each of which releases one chunk (PROTOCOL section 5).
//! Memory is taken when an update is handed over, and used again by later updates of the slot.

use alloc::collections::VecDeque;

use weft_control::{BoxIndex, Decision, TRAIN_CHUNKS_MAX, Version};
use weft_kernel::Kernels;
use weft_wire::header::{ElementType, Flags};
use weft_wire::{GroupId, Nanos, quant};

use super::config::{Grant, NewUpdate, Segment, Values};
use super::flight::Flight;
use super::set::ChunkSet;
use super::stats::PusherStats;
use crate::send::pacer::{TokenBucket, burst_bytes};

/// One update under way.
#[derive(Debug)]
pub(super) struct Update {
    pub(super) number: u64,
    pub(super) version: Version,
    pub(super) values: Values,
    pub(super) phase: Phase,
    pub(super) group: GroupId,
    pub(super) via: Option<BoxIndex>,
    pub(super) exponent: i8,
    limit: i32,
    pub(super) replicate: bool,
    /// Chunks below this are a train: they leave at once, on the grant's account.
    pub(super) train_chunks: u32,
    segments: [Segment; super::SEGMENTS_MAX],
    segment_count: usize,
    /// The segment that holds; `None` while no gate is open.
    segment: Option<usize>,
    pub(super) pacer: Option<TokenBucket>,
    /// Towards the aggregator.
    pub(super) flight: Flight,
    /// The aggregator has said that it holds every chunk.
    pub(super) is_gathered: bool,
    /// Credits of the server that were not answered yet, in their order.
    pub(super) credits: VecDeque<u32>,
    credited: ChunkSet,
    /// Chunks whose copy for the replica is due.
    pub(super) copies: VecDeque<u32>,
    /// Chunks that have left this turn, and those of them that the server asked for.
    sent: ChunkSet,
    sent_direct: ChunkSet,
    clamped: ChunkSet,
    pub(super) is_delivered: bool,
    pub(super) status: Asking,
    pub(super) decision: Option<Decision>,
}

/// Where an update stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// Waits for its grant.
    Requested,
    /// Has a group; the server will decide it.
    Granted,
    /// Its outcome is known; the caller has its data still to take.
    Decided,
}

/// When a question is asked next, with back-off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking {
    pub(super) at: Nanos,
    count: u32,
}

impl Asking {
    pub(super) const NEVER: Self = Self { at: Nanos::MAX, count: 0 };

    /// Asks first after `wait_ns`.
    pub(super) fn after(now: Nanos, wait_ns: u64) -> Self {
        Self { at: now.saturating_add(Nanos(wait_ns)), count: 0 }
    }

    /// Takes note of a question and plans its repeat.
    pub(super) fn asked(&mut self, now: Nanos, interval_ns: u64, max_ns: u64) {
        let wait_ns = interval_ns.max(1).saturating_mul(1 << self.count.min(16)).min(max_ns);
        self.at = now.saturating_add(Nanos(wait_ns));
        self.count = self.count.saturating_add(1);
    }
}

impl Update {
    pub(super) fn new(new: NewUpdate, chunks: u32) -> Self {
        Self {
            number: new.number,
            version: new.version,
            values: new.values,
            phase: Phase::Requested,
            group: GroupId::default(),
            via: None,
            exponent: 0,
            limit: 0,
            replicate: false,
            train_chunks: 0,
            segments: [Segment { is_open: false, rate_bytes_per_sec: 0 }; super::SEGMENTS_MAX],
            segment_count: 0,
            segment: None,
            pacer: None,
            flight: Flight::new(),
            is_gathered: false,
            credits: VecDeque::with_capacity(CREDITS_MAX),
            credited: ChunkSet::new(chunks),
            copies: VecDeque::with_capacity(CREDITS_MAX),
            sent: ChunkSet::new(chunks),
            sent_direct: ChunkSet::new(chunks),
            clamped: ChunkSet::new(chunks),
            is_delivered: false,
            status: Asking::NEVER,
            decision: None,
        }
    }

    /// Takes the place of an update that is finished; its memory is used again.
    pub(super) fn replace(&mut self, new: NewUpdate) {
        (self.number, self.version, self.values) = (new.number, new.version, new.values);
        self.reset();
    }

    /// Back to where a grant is waited for.
    pub(super) fn reset(&mut self) {
        self.phase = Phase::Requested;
        self.group = GroupId::default();
        self.flight.stop();
        self.credits.clear();
        self.credited.clear();
        self.copies.clear();
        self.sent.clear();
        self.sent_direct.clear();
        self.clamped.clear();
        (self.is_gathered, self.is_delivered) = (false, false);
        (self.segment, self.segment_count) = (None, 0);
        self.status = Asking::NEVER;
        self.decision = None;
    }

    /// Takes a grant. With an aggregator the transfer begins when a gate is open; without one, at
    /// the server's credits.
    pub(super) fn grant(&mut self, now: Nanos, grant: &Grant, chunks: u32) {
        self.phase = Phase::Granted;
        self.group = grant.group;
        self.via = grant.via;
        self.exponent = grant.exponent;
        self.limit = quant::clamp_limit(grant.member_count);
        self.replicate = grant.replicate && grant.via.is_none();
        self.train_chunks = u32::from(grant.train_chunks.min(TRAIN_CHUNKS_MAX));
        self.segment_count = grant.segments.len();
        self.segments[..self.segment_count].copy_from_slice(&grant.segments);
        self.segment = None;
        self.pacer = None;
        if grant.via.is_some() {
            self.flight.begin(chunks, true);
        }
        let open = grant.segments.iter().rposition(|segment| segment.is_open);
        if let Some(segment) = open.or_else(|| grant.via.is_none().then_some(0)) {
            self.release(now, segment);
        }
    }

    /// Opens the gate of a segment: its rate holds from now on. Gates open in their order; one that
    /// is late opens nothing.
    pub(super) fn release(&mut self, now: Nanos, segment: usize) {
        let is_late = self.segment.is_some_and(|held| held >= segment);
        if is_late || segment >= self.segment_count.max(1) {
            return;
        }
        self.segment = Some(segment);
        let rate = self.segments[..self.segment_count].get(segment).map(|s| s.rate_bytes_per_sec);
        self.pacer = rate.filter(|rate| *rate > 0).map(|rate| {
            let mut pacer = bucket(rate);
            // The bucket begins full now, not at the start of time.
            pacer.take(now, 0);
            pacer
        });
    }

    /// True when chunks may go to the aggregator.
    pub(super) fn may_send(&self) -> bool {
        self.phase == Phase::Granted && self.via.is_some() && self.segment.is_some()
    }

    /// Takes a credit of the server: false when the queue is full.
    pub(super) fn take_credit(&mut self, chunk: u32) -> bool {
        if self.credited.contains(chunk) {
            return true;
        }
        if self.credits.len() == CREDITS_MAX {
            return false;
        }
        self.credited.insert(chunk);
        self.credits.push_back(chunk);
        true
    }

    /// The credit of `credits`' front is used.
    pub(super) fn use_credit(&mut self) {
        if let Some(chunk) = self.credits.pop_front() {
            self.credited.remove(chunk);
            // A copy that does not fit is not made: the replica asks the server for what it lacks.
            if self.replicate
                && !self.sent_direct.contains(chunk)
                && self.copies.len() < CREDITS_MAX
            {
                self.copies.push_back(chunk);
            }
        }
    }

    /// Forgets credits that were not used: the server that gave them has forgotten us.
    pub(super) fn credits_lost(&mut self) {
        self.credits.clear();
        self.credited.clear();
    }

    /// Counts a transmission of a chunk; true when it is the first of this turn.
    pub(super) fn count_sent(
        &mut self,
        chunk: u32,
        is_direct: bool,
        stats: &mut PusherStats,
    ) -> bool {
        if is_direct {
            self.sent_direct.insert(chunk);
        }
        let is_first = self.sent.insert(chunk);
        if is_first {
            stats.chunks_sent += 1;
        } else {
            stats.retransmissions += 1;
        }
        is_first
    }

    /// True when this chunk has left in this turn.
    pub(super) fn has_sent(&self, chunk: u32) -> bool {
        self.sent.contains(chunk)
    }

    /// Chunks that have left this turn.
    pub(super) fn sent_count(&self) -> u32 {
        self.sent.len()
    }

    /// True when the server has asked for every chunk and got it.
    pub(super) fn is_all_direct(&self, chunks: u32) -> bool {
        self.sent_direct.len() == chunks
    }

    /// Ends the turn, and counts its chunks under what became of them.
    pub(super) fn decide(&mut self, decision: Decision, stats: &mut PusherStats) {
        let sent = u64::from(self.sent.len());
        match decision {
            Decision::Committed(_) => {
                let direct = u64::from(self.sent_direct.len());
                stats.chunks_direct += direct;
                stats.chunks_aggregated += sent - direct;
            }
            Decision::Void => stats.chunks_voided += sent,
            Decision::Dropped => stats.chunks_dropped += sent,
        }
        self.phase = Phase::Decided;
        self.decision = Some(decision);
        self.flight.stop();
        self.credits.clear();
        self.copies.clear();
        self.status = Asking::NEVER;
    }

    /// Writes a chunk's elements over all of `out`, zeros behind the last, and says which flags go
    /// with them. The same bytes every time.
    pub(super) fn write_chunk(
        &mut self,
        kernels: &Kernels,
        element_type: ElementType,
        chunk: u32,
        out: &mut [u8],
        stats: &mut PusherStats,
    ) -> Flags {
        let elements = out.len() / element_type.len_bytes();
        let start = (chunk as usize * elements).min(self.values.len());
        let end = (start + elements).min(self.values.len());
        let (filled, rest) = out.split_at_mut((end - start) * element_type.len_bytes());
        rest.fill(0);
        let clamped = match (&self.values, element_type) {
            (Values::Integers(values), _) => {
                kernels.emit_i32_ahead(&values[start..end], filled);
                0
            }
            (Values::Reals(values), ElementType::F32) => {
                kernels.emit_f32_ahead(&values[start..end], filled);
                0
            }
            (Values::Reals(values), ElementType::Bf16) => {
                kernels.emit_bf16_ahead(&values[start..end], filled);
                0
            }
            (Values::Reals(values), _) => {
                let inverse = quant::inverse_quantum(self.exponent);
                kernels.quantise_f32(&values[start..end], inverse, self.limit, filled)
            }
        };
        if clamped == 0 {
            return Flags::NONE;
        }
        stats.chunks_clamped += u64::from(self.clamped.insert(chunk));
        Flags::CLAMPED
    }
}

/// A sender's bucket.
pub(super) fn bucket(rate_bytes_per_sec: u64) -> TokenBucket {
    TokenBucket::new(rate_bytes_per_sec, burst_bytes(rate_bytes_per_sec, TWO_FRAMES_BYTES))
}

/// Two frames of an MTU of 1500.
const TWO_FRAMES_BYTES: u64 = 3_100;

/// Credits of one update that wait for their answer. A server's window is smaller.
pub(super) const CREDITS_MAX: usize = 2048;
