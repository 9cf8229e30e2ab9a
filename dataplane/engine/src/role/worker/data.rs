//! The data half of a lane: contributions, STATUS and hand-overs going up, ANSWER and STATE
//! coming down (SPEC "Checks", "Slot", "Member").
//!
//! A frame is refused under the first reason that fits, before anything has changed.

use weft_wire::frame::Udp;
use weft_wire::header::{Flags, HEADER_LEN, Header, Kind, Outcome, Packet};
use weft_wire::hello::Integrity;
use weft_wire::{ChunkIndex, Cookie, Members, Nanos};

use super::config::{LeaseInfo, Payload};
use super::event::Refusal;
use super::lane::{Inbound, Lane, Shared, chunk_of};
use super::slot::{Action, Answer, Have, Send, Sum};
use super::stats::WorkerStats;
use crate::send::pacer::TokenBucket;
use crate::session::terms::Terms;

/// What became of an attempt to send data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sent {
    /// A frame of this many bytes stands in the buffer.
    Frame(usize),
    /// Something could go, but the pacer holds it until then.
    PacedUntil(Nanos),
    Nothing,
}

/// What a data frame changed, as far as the worker as a whole is concerned. Small, for it is given
/// back in a register: what goes through memory is read in wider pieces than it was written in, and
/// such a read waits for all stores before it, which here are a sum's on their way to the caller's
/// memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum DataEvent {
    None,
    /// The box has lost this lane's lease; the handshake has begun anew.
    Lost,
    /// A sum was given to the payload.
    NewSum,
    /// A sum that was handed over came down.
    HandedOver,
    /// The box gives no sum of a step of the round.
    NoSum,
}

/// What a sum's headers say of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) now: Nanos,
    pub(super) chunk: ChunkIndex,
    pub(super) exponent: i8,
    pub(super) flags: Flags,
    pub(super) by_multicast: bool,
    /// A router has marked it.
    pub(super) is_marked: bool,
}

impl Arrived {
    fn of(&Inbound { now, header, udp, .. }: &Inbound<'_>) -> Self {
        Self {
            now,
            chunk: header.chunk,
            exponent: header.exponent,
            flags: header.flags,
            by_multicast: udp.target.ip().is_multicast(),
            is_marked: udp.congestion,
        }
    }
}

/// The header of this member's contributions; flags, chunk and exponent are each one's own.
pub(super) fn data_header(ctx: &Shared, lease: &LeaseInfo, terms: Terms) -> Header {
    Header {
        kind: Kind::Contrib,
        flags: Flags::NONE,
        outcome: Outcome::None,
        job: ctx.config.job,
        cookie: terms.cookie_up,
        group: terms.group,
        chunk: ChunkIndex(0),
        element_type: lease.element_type,
        operation: lease.operation,
        exponent: lease.exponent.unwrap_or(0),
        count: lease.elements,
        members: ctx.config.rank.bit(),
    }
}

impl Lane {
    /// Writes the next data frame.
    pub(super) fn poll_data(
        &mut self,
        now: Nanos,
        ctx: &Shared,
        payload: &dyn Payload,
        pacer: &mut Option<TokenBucket>,
        frame: &mut [u8],
        stats: &mut WorkerStats,
    ) -> Sent {
        if !self.is_open() {
            return Sent::Nothing;
        }
        let cwnd = self.path.window();
        let (Some(lease), Some(action)) =
            (ctx.lease.as_ref(), self.steps.as_mut().and_then(|steps| steps.peek(cwnd)))
        else {
            return Sent::Nothing;
        };
        let body_len = if action.send == Send::Status { 0 } else { lease.chunk_len() };
        if let Some(pacer) = pacer {
            let bytes = (self.encap.header_len() + HEADER_LEN + body_len) as u64;
            if !pacer.take(now, bytes) {
                return Sent::PacedUntil(pacer.ready_at(bytes));
            }
        }
        let written = match action.send {
            Send::Contribution => self.write_contribution(ctx, lease, action, payload, frame),
            Send::Status | Send::HandOver => self.write_word(ctx, lease, action, payload, frame),
        };
        let Some(exponent) = written else { return Sent::Nothing };
        if let Some(steps) = &mut self.steps {
            steps.sent(action, now, &self.path, exponent);
        }
        match action.send {
            Send::Contribution if action.repeat => stats.retransmissions += 1,
            Send::Contribution => stats.chunks_sent += 1,
            Send::Status => stats.status_probes += 1,
            Send::HandOver => stats.handovers_sent += 1,
        }
        Sent::Frame(self.wrap(ctx, frame, body_len, false))
    }

    /// Writes header and payload of a contribution and returns the exponent sent; `None` before
    /// there are terms.
    pub(super) fn write_contribution(
        &self,
        ctx: &Shared,
        lease: &LeaseInfo,
        action: Action,
        payload: &dyn Payload,
        frame: &mut [u8],
    ) -> Option<i8> {
        let known = self.known.as_ref()?;
        let chunk = self.chunk(action.step, lease.shards);
        let (header, body) = frame[self.encap.header_len()..].split_first_chunk_mut()?;
        let meta = payload.write_chunk(chunk.0 - ctx.base, &mut body[..lease.chunk_len()]);
        let mut flags = if meta.clamped { Flags::CLAMPED } else { Flags::NONE };
        if action.repeat {
            flags = flags.union(Flags::RETRANSMIT);
        }
        let exponent = lease.exponent.unwrap_or(meta.exponent);
        match meta.last.filter(|_| lease.compares_lengths) {
            None => known.contribution.with(flags, chunk, exponent, 0).emit(header),
            Some(count) => {
                let own = data_header(ctx, lease, self.session.terms()?);
                let own = Header { flags, outcome: Outcome::LAST, chunk, exponent, count, ..own };
                own.emit(&mut Packet::new_unchecked(&mut header[..]));
            }
        }
        Some(exponent)
    }

    /// Writes header and payload of a question or of a sum that is handed over, and returns the
    /// exponent sent; `None` before there are terms.
    fn write_word(
        &self,
        ctx: &Shared,
        lease: &LeaseInfo,
        action: Action,
        payload: &dyn Payload,
        frame: &mut [u8],
    ) -> Option<i8> {
        let terms = self.session.terms()?;
        let chunk = self.chunk(action.step, lease.shards);
        let steps = self.steps.as_ref().expect("an action comes from the steps");
        let (head, body) = frame[self.encap.header_len()..].split_at_mut(HEADER_LEN);
        let (kind, members, mut flags, exponent) = if action.send == Send::Status {
            let exponent = steps.exponent_sent(action.step);
            (Kind::Status, ctx.config.rank.bit(), Flags::NONE, exponent)
        } else {
            let held = steps.held(action.step).expect("a sum handed over is kept till then");
            let body = &mut body[..lease.chunk_len()];
            match held.sum {
                Some(sum) => body.copy_from_slice(sum),
                None => payload.write_sum(chunk.0 - ctx.base, body),
            }
            (Kind::Answer, lease.mask, held.flags, held.exponent)
        };
        if action.repeat && action.send != Send::Status {
            flags = flags.union(Flags::RETRANSMIT);
        }
        let header =
            Header { kind, flags, chunk, exponent, members, ..data_header(ctx, lease, terms) };
        header.emit(&mut Packet::new_unchecked(head));
        Some(exponent)
    }

    /// Takes an ANSWER or STATE whose header has been checked as far as the row.
    pub(super) fn handle_data(
        &mut self,
        inbound: Inbound<'_>,
        frame: &mut [u8],
        payload: &mut dyn Payload,
        stats: &mut WorkerStats,
    ) -> Result<DataEvent, Refusal> {
        let Inbound { now, ctx, header, udp } = inbound;
        let (true, Some(lease), Some(terms)) =
            (self.is_open(), ctx.lease.as_ref(), self.session.terms())
        else {
            return Err(Refusal::NotOpen);
        };
        let cookie = judge_cookie(header, terms)?;
        if cookie == CookieMatch::Down && header.group != terms.group {
            return Err(Refusal::Group);
        }
        if udp.source != self.box_addr() {
            return Err(Refusal::Source);
        }
        if cookie == CookieMatch::Down {
            check_row(header, lease, self.index)?;
        }
        check_integrity(frame, udp, lease.integrity, ctx)?;
        match cookie {
            CookieMatch::Echo => {
                self.take_word(now);
                self.begin_handshake(now);
                return Ok(DataEvent::Lost);
            }
            CookieMatch::OtherEpoch => {
                // A box that talks to us under the right cookie needs no asking.
                if !self.silence.is_over() {
                    self.session.ask(now);
                }
                return Err(Refusal::OldCookie);
            }
            CookieMatch::Down => self.take_word(now),
        }
        let step = header.chunk.0 / u32::from(lease.shards);
        if header.kind == Kind::State {
            return self.take_state(inbound, step, lease.mask, stats);
        }
        let sum = &frame[udp.payload_range()][HEADER_LEN..];
        self.take_answer(&Arrived::of(&inbound), ctx, step, sum, payload, stats)
    }

    /// Takes a sum that has passed all checks but whether its step wants one.
    pub(super) fn take_answer(
        &mut self,
        arrived: &Arrived,
        ctx: &Shared,
        step: u32,
        sum: &[u8],
        payload: &mut dyn Payload,
        stats: &mut WorkerStats,
    ) -> Result<DataEvent, Refusal> {
        let Arrived { now, chunk, exponent, flags, by_multicast, is_marked } = *arrived;
        let steps = self.steps.as_mut().ok_or(Refusal::NotOpen)?;
        if by_multicast {
            // One that comes after its repeat was answered is heard, too.
            self.hearing.take_heard();
        }
        let chunk = chunk.0.wrapping_sub(ctx.base);
        let sum = Sum { bytes: sum, exponent, flags, in_place: payload.keeps_sum(chunk) };
        match steps.take_answer(step, now, self.path.rtt().shortest(), sum) {
            Answer::New { sent, is_awaited, was_lost, in_flight, used } => {
                if was_lost {
                    self.path.on_found();
                }
                stats.answers += 1;
                if by_multicast {
                    stats.answers_by_multicast += 1;
                } else {
                    let rto = self.path.rtt().rto();
                    let is_repeated = was_lost || sent.is_some_and(|sent| sent.is_repeated());
                    stats.times_deaf += u64::from(self.hearing.take_unheard(now, rto, is_repeated));
                }
                let is_marked = is_marked || flags.contains(Flags::CONGESTION);
                stats.congestion_marks += u64::from(is_marked);
                // Where the limit has shown, the window comes near it slowly: a burst counts once.
                let filled = if self.path.was_halved() { in_flight } else { used };
                let is_limited = filled >= self.path.window();
                let halved = match sent {
                    Some(sent) if !is_awaited => {
                        self.path.on_answer(now, &sent, is_limited, is_marked)
                    }
                    Some(sent) => {
                        self.path.on_awaited_answer(now, &sent);
                        self.path.on_late_answer(now, is_limited, is_marked)
                    }
                    None => self.path.on_late_answer(now, is_limited, is_marked),
                };
                stats.window_reductions += u64::from(halved);
                stats.smoothed_rtt = self.path.rtt().smoothed().unwrap_or_default();
                payload.read_chunk(chunk, sum.exponent, sum.flags, sum.bytes);
                Ok(DataEvent::NewSum)
            }
            Answer::HandedOver => {
                stats.handovers_done += 1;
                Ok(DataEvent::HandedOver)
            }
            Answer::Duplicate => {
                stats.duplicate_answers += 1;
                Ok(DataEvent::None)
            }
            Answer::Unexpected => Err(Refusal::Chunk),
        }
    }

    /// Copies the sums that are in their places, before the caller may change those.
    pub(super) fn take_sums(&mut self, ctx: &Shared, payload: &dyn Payload) {
        let (index, shards) = (self.index, ctx.lease.map_or(1, |lease| lease.shards));
        if let Some(steps) = &mut self.steps {
            steps.take_sums(|step, sum| {
                payload.write_sum(chunk_of(step, shards, index).0 - ctx.base, sum);
            });
        }
    }

    fn take_state(
        &mut self,
        inbound: Inbound<'_>,
        step: u32,
        mask: Members,
        stats: &mut WorkerStats,
    ) -> Result<DataEvent, Refusal> {
        let Inbound { now, ctx, header, .. } = inbound;
        let steps = self.steps.as_mut().ok_or(Refusal::NotOpen)?;
        match header.outcome {
            Outcome::Have => {
                stats.have += 1;
                let named = header.members.contains(ctx.config.rank.bit());
                // Steps above the lowest may lack members who are only behind.
                if step == steps.low() || self.missing.is_none() {
                    // A word that names fewer than one before it is older: contributors of a step
                    // only become more.
                    let awaited = self.missing.filter(|_| self.missing_at == Some(step));
                    self.missing = Some(awaited.unwrap_or(mask).without(header.members));
                    self.missing_at = Some(step);
                }
                match steps.take_have(step, now, named) {
                    Have::Known(sent) => {
                        self.path.on_have(now, &sent);
                        stats.smoothed_rtt = self.path.rtt().smoothed().unwrap_or_default();
                    }
                    Have::Lost => {
                        stats.have_without_us += 1;
                        stats.window_reductions += u64::from(self.path.on_congestion(now));
                    }
                    Have::Ignored => {}
                }
            }
            Outcome::Stale => {
                stats.stale += 1;
                steps.take_stale(step, now);
            }
            Outcome::LEFT | Outcome::MISMATCH if steps.awaits(step) => return Ok(DataEvent::NoSum),
            // WAIT: the timers ask again.
            _ => {}
        }
        Ok(DataEvent::None)
    }
}

/// Whose cookie a frame of the box carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum CookieMatch {
    /// The one agreed for this direction.
    Down,
    /// Ours, sent back: the box does not know it.
    Echo,
    /// One of another epoch: an old frame, or the box has a new epoch.
    OtherEpoch,
}

fn judge_cookie(header: &Header, terms: Terms) -> Result<CookieMatch, Refusal> {
    let cookie: Cookie = header.cookie;
    if cookie == terms.cookie_down {
        Ok(CookieMatch::Down)
    } else if header.kind == Kind::State && cookie == terms.cookie_up {
        Ok(CookieMatch::Echo)
    } else if !cookie.is_of(terms.epoch) {
        Ok(CookieMatch::OtherEpoch)
    } else {
        Err(Refusal::ForeignCookie)
    }
}

fn check_row(header: &Header, lease: &LeaseInfo, lane: u16) -> Result<(), Refusal> {
    let right_members = match header.kind {
        Kind::Answer => header.members == lease.mask,
        // A sum has no strangers, so a word of it names none.
        _ => lease.mask.contains(header.members),
    };
    if !right_members {
        return Err(Refusal::Members);
    }
    if header.chunk.0 % u32::from(lease.shards) != u32::from(lane) {
        return Err(Refusal::Chunk);
    }
    let same_row = header.count == lease.elements
        && header.element_type == lease.element_type
        && header.operation == lease.operation
        && lease.exponent.is_none_or(|fixed| fixed == header.exponent);
    if header.kind == Kind::Answer && !same_row { Err(Refusal::Elements) } else { Ok(()) }
}

/// Checks the CRC where there is one, and that what protects the row is there.
pub(super) fn check_integrity(
    frame: &[u8],
    udp: &Udp,
    integrity: Integrity,
    ctx: &Shared,
) -> Result<(), Refusal> {
    let datagram = &frame[udp.payload_range()];
    let packet = Packet::new_unchecked(datagram);
    let good = if packet.crc() != 0 {
        packet.has_crc((ctx.crc32c)(datagram))
    } else {
        match integrity {
            Integrity::Crc32c => false,
            Integrity::Checksum16 => udp.checksum_ok(frame),
            Integrity::None => udp.checksum == 0 || udp.checksum_ok(frame),
        }
    };
    if good { Ok(()) } else { Err(Refusal::Integrity) }
}
