//! What a leaf sends to its root: the handshake, hand-overs, and sums again when asked.

use weft_wire::header::{Flags, HEADER_LEN, Header, Kind, Outcome, Packet};
use weft_wire::hello::{Hello, Phase as Step};
use weft_wire::{ChunkIndex, GroupId, Nanos};

use super::super::{Aggregator, dispatch_out};
use crate::role::LeaseIndex;
use crate::send::datagram::{plain_header, write_hello};
use crate::session::client::Standing;
use crate::slot::State;
use crate::steps::StepSet;

impl Aggregator {
    /// Writes the next frame that this lease's leaf owes the root.
    pub(in super::super) fn poll_upstream(
        &mut self,
        index: LeaseIndex,
        now: Nanos,
        frame: &mut [u8],
    ) -> Option<usize> {
        while let Some(step) = self.next_resend(index) {
            if let Some(len) = self.emit_up(index, step, frame, false) {
                return Some(len);
            }
        }
        let upstream = self.leases[index.index()].upstream.as_mut()?;
        if upstream.session.standing() == Standing::Open {
            let is_due = upstream.poll.at() <= now;
            return is_due.then(|| self.poll_hand_over(index, now, frame)).flatten();
        }
        let body = upstream.session.poll(now)?;
        self.emit_hello_up(index, body, frame)
    }

    fn next_resend(&mut self, index: LeaseIndex) -> Option<u32> {
        let upstream = self.leases[index.index()].upstream.as_mut()?;
        (upstream.session.standing() == Standing::Open).then(|| upstream.resend.pop()).flatten()
    }

    fn emit_hello_up(&self, index: LeaseIndex, mut body: Hello, frame: &mut [u8]) -> Option<usize> {
        let lease = &self.leases[index.index()];
        let mut held = StepSet::new(u32::from(lease.window));
        let upstream = lease.upstream.as_ref().expect("polled");
        if body.phase == Step::Join && body.session != 0 {
            lease.held(&mut held);
            body.low_step = held.low();
            body.step_bits = u16::try_from(held.capacity()).expect("at most 8192 bits");
        }
        // A root closes a life, whatever epoch and cookie it names: a leaf has always named none.
        (body.epoch, body.cookie_up) = Default::default();
        let group = GroupId::new(upstream.row, 0);
        let mut header = Header {
            chunk: ChunkIndex(u32::from(self.lane)),
            ..plain_header(Kind::Hello, upstream.job, group, upstream.bit)
        };
        // A leaf names no more than its members.
        if body.phase == Step::Join && lease.members.iter().all(|member| member.names_lengths) {
            (header.element_type, header.operation) = (lease.row.element_type, lease.row.operation);
            header.outcome = Outcome::LAST;
        }
        write_hello(&upstream.encap, &header, &body, held.bitmap(), frame)
    }

    /// Asks the root for a step, whichever it is, to learn whether the root still knows this leaf:
    /// a leaf whose members are all silent would never hear that the session was broken above.
    fn emit_status_up(&self, index: LeaseIndex, frame: &mut [u8]) -> Option<usize> {
        let lease = &self.leases[index.index()];
        let upstream = lease.upstream.as_ref()?;
        let terms = upstream.session.terms()?;
        let bank = lease.slots.occupied().find(|bank| bank.state() == State::Sent);
        let bank = bank.or_else(|| lease.slots.occupied().next()).copied().unwrap_or_default();
        let header = Header {
            cookie: terms.cookie_up,
            group: terms.group,
            members: upstream.bit,
            ..self.data_header(lease, Kind::Status, &bank)
        };
        let start = upstream.encap.header_len();
        let datagram = frame.get_mut(start..start + HEADER_LEN)?;
        header.emit(&mut Packet::new_unchecked(datagram));
        Some(dispatch_out(&upstream.encap, lease.row.integrity, frame, HEADER_LEN))
    }

    /// Hands over the sums that the root wants, one per call; pauses after each pass.
    fn poll_hand_over(&mut self, index: LeaseIndex, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        let upstream = self.leases[index.index()].upstream.as_mut()?;
        if upstream.hand_over.is_empty() {
            upstream.poll.sent(now);
            return self.emit_status_up(index, frame);
        }
        let from = upstream.hand_over_next;
        let Some(step) = upstream.hand_over.iter().find(|step| *step >= from) else {
            upstream.hand_over_next = 0;
            upstream.poll.sent(now);
            return None;
        };
        upstream.hand_over_next = step + 1;
        self.emit_data_up(index, step, Kind::Answer, frame, false)
    }

    /// Writes this leaf's sum of `step` as its contribution to the root. `in_place`: the payload
    /// is in the frame already. `None` when there is nothing to send or no root to send it to.
    pub(in super::super) fn emit_up(
        &mut self,
        index: LeaseIndex,
        step: u32,
        frame: &mut [u8],
        in_place: bool,
    ) -> Option<usize> {
        let lease = &self.leases[index.index()];
        let bank = lease.slots.bank(lease.slots.locate(step));
        if bank.state() != State::Sent || bank.step() != step {
            return None;
        }
        self.emit_data_up(index, step, Kind::Contrib, frame, in_place)
    }

    fn emit_data_up(
        &self,
        index: LeaseIndex,
        step: u32,
        kind: Kind,
        frame: &mut [u8],
        in_place: bool,
    ) -> Option<usize> {
        let lease = &self.leases[index.index()];
        let upstream = lease.upstream.as_ref()?;
        if upstream.session.standing() != Standing::Open {
            return None;
        }
        let terms = upstream.session.terms()?;
        let place = lease.slots.locate(step);
        let bank = lease.slots.bank(place);
        let mut header = Header {
            cookie: terms.cookie_up,
            group: terms.group,
            members: if kind == Kind::Answer { upstream.mask } else { upstream.bit },
            ..self.data_header(lease, kind, bank)
        };
        if kind == Kind::Contrib {
            (header.count, header.outcome) = (bank.length().count(), bank.length().outcome());
        }
        if !in_place {
            header.flags = header.flags.union(Flags::RETRANSMIT);
        }
        let start = upstream.encap.header_len();
        let datagram_len = HEADER_LEN + lease.payload_len;
        let datagram = frame.get_mut(start..start + datagram_len)?;
        if !in_place {
            lease.slots.store().emit(place, &mut datagram[HEADER_LEN..]);
        }
        header.emit(&mut Packet::new_unchecked(datagram));
        Some(dispatch_out(&upstream.encap, lease.row.integrity, frame, datagram_len))
    }
}
