//! Frames coming in: the checks that all kinds share, and what their effect means for the worker.
//!
//! Order of the checks: frame, addressee, length, version, kind, job, row; then those of the kind
//! (SPEC "Checks"). What fails changes nothing but one counter.

use core::net::SocketAddr;

use weft_wire::Nanos;
use weft_wire::frame::{Encap, Udp};
use weft_wire::header::{HEADER_LEN, Header, HeaderError, Kind, Outcome, Packet};
use weft_wire::hello::{Integrity, Reason};

use super::config::{LeaseInfo, Part, Payload};
use super::data::{DataEvent, check_integrity};
use super::event::{Event, Extent, Refusal, WorkerError};
use super::handshake::LaneEvent;
use super::lane::{Inbound, Lane, Shared};
use super::{EVENTS_KEPT, EVENTS_MAX, Worker, WorkerState};
use crate::random::SplitMix64;
use crate::session::client::Standing;

impl Worker {
    /// Takes a frame. Its octets are put back as they were.
    ///
    /// # Errors
    /// [`Refusal`] saying why the frame changed nothing; it has been counted.
    pub fn handle_frame(
        &mut self,
        now: Nanos,
        frame: &mut [u8],
        payload: &mut dyn Payload,
    ) -> Result<(), Refusal> {
        let outcome = match self.take_quickly(now, frame, payload) {
            Some(outcome) => outcome,
            None => self.receive(now, frame, payload),
        };
        self.note_refusal(outcome)
    }

    /// Counts why a frame changed nothing, if it did not.
    pub(super) fn note_refusal(&mut self, outcome: Result<(), Refusal>) -> Result<(), Refusal> {
        if let Err(refusal) = outcome {
            self.stats.refused[refusal as usize] += 1;
        }
        outcome
    }

    /// The long way.
    pub(super) fn receive(
        &mut self,
        now: Nanos,
        frame: &mut [u8],
        payload: &mut dyn Payload,
    ) -> Result<(), Refusal> {
        if self.state == WorkerState::Stopped {
            return Err(Refusal::NotOpen);
        }
        let udp = Udp::parse(frame).map_err(|_| Refusal::Frame)?;
        let index = self.lane_of(udp.target).ok_or(Refusal::Addressee)?;
        let packet = Packet::new_unchecked(&frame[udp.payload_range()]);
        let header = Header::parse(&packet).map_err(|error| match error {
            HeaderError::Length => Refusal::Length,
            HeaderError::Version => Refusal::Version,
            HeaderError::Kind => Refusal::Kind,
            HeaderError::Exponent => Refusal::Elements,
        })?;
        if !matches!(header.kind, Kind::Answer | Kind::State | Kind::Hello) {
            return Err(Refusal::Kind);
        }
        if header.job != self.shared.config.job {
            return Err(Refusal::Job);
        }
        if header.group.row() != self.shared.config.row {
            return Err(Refusal::Group);
        }
        let ctx = &self.shared;
        let inbound = Inbound { now, ctx, header: &header, udp: &udp };
        let lane = &mut self.lanes[index];
        if header.kind != Kind::Hello {
            let event = lane.handle_data(inbound, frame, payload, &mut self.stats)?;
            if event == DataEvent::NoSum && self.state == WorkerState::InRound {
                let error = self.no_sum(&header, payload);
                self.stop(Event::Failed(error));
            }
            self.take_data_event(now, event, payload);
            return Ok(());
        }
        if udp.source != lane.box_addr() {
            return Err(Refusal::Source);
        }
        check_integrity(frame, &udp, Integrity::Crc32c, ctx)?;
        let body = &frame[udp.payload_range()][HEADER_LEN..];
        let event = lane.handle_hello(inbound, body, &mut self.stats)?;
        self.take_event(now, index, event);
        let ctx = &self.shared;
        self.lanes.iter_mut().for_each(|lane| lane.renew_known(ctx));
        Ok(())
    }

    /// Why the box gives no sum of a chunk of the round.
    fn no_sum(&self, header: &Header, payload: &dyn Payload) -> WorkerError {
        let Shared { config, lease, base, .. } = &self.shared;
        if header.outcome == Outcome::LEFT {
            return WorkerError::MembersLeft { members: header.members };
        }
        let full = lease.map_or(0, |lease| lease.elements);
        let Part { before, last } = payload.part(header.chunk.0 - base);
        let (own, other) = Extent::of_two(before, full, last, header.count);
        let agrees = header.members.contains(config.rank.bit());
        let (first, other) = if agrees { (own, other) } else { (other, own) };
        let mask = lease.map_or(header.members, |lease| lease.mask);
        let others = mask.without(header.members);
        WorkerError::LengthsDiffer { members: header.members, first, others, other }
    }

    pub(super) fn lane_of(&self, target: SocketAddr) -> Option<usize> {
        let config = &self.shared.config;
        let first = if target.ip() == config.local.addr.ip() {
            config.local.addr.port()
        } else if Some(target.ip()) == config.multicast {
            config.target.addr.port()
        } else {
            return None;
        };
        let index = usize::from(target.port().checked_sub(first)?);
        (index < self.lanes.len()).then_some(index)
    }

    pub(super) fn take_data_event(&mut self, now: Nanos, event: DataEvent, payload: &dyn Payload) {
        match event {
            DataEvent::None | DataEvent::NoSum => return,
            DataEvent::Lost => return self.ask_for_idle_lanes(now),
            DataEvent::NewSum => {
                self.missing_chunks -= 1;
                if self.missing_chunks == 0 {
                    let ctx = &self.shared;
                    self.lanes.iter_mut().for_each(|lane| lane.take_sums(ctx, payload));
                }
                self.finish_round();
            }
            DataEvent::HandedOver => {}
        }
        self.progress_at = now;
    }

    /// One box, one restart: a lane that has nothing to send would not notice.
    fn ask_for_idle_lanes(&mut self, now: Nanos) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.idle()) {
            lane.session.ask(now);
        }
    }

    fn take_event(&mut self, now: Nanos, lane: usize, event: LaneEvent) {
        match event {
            LaneEvent::None => return,
            LaneEvent::Lost => return self.ask_for_idle_lanes(now),
            LaneEvent::Opened(lease) => self.take_opened(now, lease),
            LaneEvent::Resynced => {
                if self.events.len() < EVENTS_MAX - EVENTS_KEPT {
                    let lane = self.lanes[lane].index;
                    self.events.push_back(Event::Resynced { lane });
                }
                // No step has moved.
                return;
            }
            LaneEvent::Closed => {
                if self.lanes.iter().all(|lane| lane.session.standing() == Standing::Closed) {
                    self.stop(Event::Closed { by_all: true });
                }
            }
            LaneEvent::Failed(WorkerError::Refused { reason: Reason::MemberLost, .. })
                if self.stats.answers == 0 =>
            {
                self.begin_anew(now);
            }
            LaneEvent::Failed(error) => self.stop(Event::Failed(error)),
        }
        self.progress_at = now;
    }

    /// Starts over as a new life, without a word to the caller: the session ended before it gave
    /// us a single sum. So ends a restart of the box between the WELCOMEs to two members. The old
    /// life must not go on in any lane, or a round could be of two sessions.
    fn begin_anew(&mut self, now: Nanos) {
        self.shared.life = SplitMix64::new(self.shared.life).next_non_zero();
        let Shared { config, life, .. } = &self.shared;
        let encap = Encap::new(config.local, config.target);
        let encap = encap.expect("the first life had the same addresses");
        self.lanes.clear();
        self.lanes.push(Lane::new(0, encap, config, *life, now));
        self.turn = 0;
    }

    /// A lane has its first lease: with lane 0 the others begin, with the last one rounds can.
    fn take_opened(&mut self, now: Nanos, lease: LeaseInfo) {
        self.shared.lease = Some(lease);
        if self.lanes.len() == 1 {
            self.lanes.reserve_exact(usize::from(lease.shards) - 1);
            for index in 1..lease.shards {
                let mut local = self.shared.config.local;
                local.addr.set_port(local.addr.port() + index);
                let target = self.lanes[0].encap.target();
                let encap = Encap::new(local, target).expect("lane 0 has the same addresses");
                let Shared { config, life, .. } = &self.shared;
                self.lanes.push(Lane::new(index, encap, config, *life, now));
            }
        }
        if self.state != WorkerState::Connecting {
            // A later life, in the middle of what the first one had begun.
            self.extend_lanes();
        } else if self.lanes.iter().all(|lane| lane.steps.is_some()) {
            self.state = WorkerState::Ready;
            self.events.push_back(Event::Opened);
        }
    }
}
