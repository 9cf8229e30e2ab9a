//! Pulls of the model (SPEC#pull): which version is on offer, and its chunks.

use weft_wire::header::{ElementType, Flags, Header, Kind, Operation, Outcome};
use weft_wire::rows::ROW_MODEL;
use weft_wire::{ChunkIndex, GroupId, Members};

use super::job::Job;
use super::receive::send;
use crate::drops::DropReason;
use crate::role::Verdict;
use crate::role::channel::Peer;
use crate::role::model::{Incoming, Offer, Refusal, generation_of, low_bits};
use crate::send::datagram::plain_header;

impl Job {
    /// STATUS(0xfffd): the version that the asker should pull.
    pub(super) fn handle_model_status(
        &mut self,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, Refusal> {
        let peer = self.puller(incoming)?;
        self.check_intact(incoming)?;
        if self.journal.as_ref().is_some_and(|journal| journal.holds_offer(peer)) {
            return Ok(Verdict::Hold);
        }
        let is_box = matches!(peer, Peer::Box(_));
        let replica = self.replica.as_ref().filter(|_| !is_box);
        let shown = replica.map_or(u64::MAX, |replica| replica.shown_below());
        let (model, next_order) = (self.ledger.model(), self.ledger.next_order());
        let offer = self.snapshots.offer(incoming.now, peer, model, next_order, shown);
        let Some(offer) = offer else {
            let group = GroupId::new(ROW_MODEL, 0);
            let wait = Header {
                outcome: Outcome::Wait,
                ..plain_header(Kind::State, self.id(), group, Members::EMPTY)
            };
            return send(self.host.write(peer, &wait, incoming.buffer, 0));
        };
        // What was decided since without a commit left the newest version as it is: a replica that
        // is behind the log by such decisions alone would be offered one older than its own.
        let is_newest = is_box && offer.version == model.version();
        let offer = if is_newest { Offer { next_order, ..offer } } else { offer };
        // What the replica has is durable, so this holds up only what does not wait for the
        // replica.
        if self.journal.as_mut().is_some_and(|journal| journal.hold_offer(peer, offer)) {
            return Ok(Verdict::Hold);
        }
        let header = self.offer(peer, offer);
        send(self.host.write(peer, &header, incoming.buffer, 0))
    }

    /// The ACK that offers a version.
    pub(super) fn offer(&self, peer: Peer, offer: Offer) -> Header {
        let (members, flags) = match matches!(peer, Peer::Box(_)) {
            true => (Members(offer.next_order), Flags::REPLICA),
            false => (Members::EMPTY, Flags::NONE),
        };
        let group = GroupId::new(ROW_MODEL, generation_of(offer.version));
        Header {
            flags,
            chunk: ChunkIndex(low_bits(offer.version)),
            ..plain_header(Kind::Ack, self.id(), group, members)
        }
    }

    /// CONTRIB(0xfffd): a chunk of a version. Weights for all, the momentum term for boxes.
    pub(super) fn handle_model_pull(
        &mut self,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, Refusal> {
        let peer = self.puller(incoming)?;
        let header = incoming.header;
        let parts = if matches!(peer, Peer::Box(_)) { 2 } else { 1 };
        if header.chunk.0 >= parts * self.chunks {
            return Err(DropReason::ChunkOutOfRange.into());
        }
        if header.count != 0 {
            return Err(DropReason::ElementCount.into());
        }
        self.check_intact(incoming)?;
        let elements = self.config.model.elements;
        let payload_len = usize::from(elements) * 4;
        let start = self.host.payload_start(peer);
        let wire = incoming.buffer.get_mut(start..start + payload_len);
        let wire = wire.ok_or(DropReason::Length)?;
        let generation = header.group.generation();
        let flags = header.flags.only(Flags::REPLICA);
        let chunk = header.chunk.0;
        if self.snapshots.emit(incoming.now, peer, generation, chunk, wire).is_none() {
            self.stats.model_stale += 1;
            let stale = Header {
                flags,
                outcome: Outcome::Stale,
                chunk: header.chunk,
                ..plain_header(Kind::State, self.id(), header.group, Members::EMPTY)
            };
            return send(self.host.write(peer, &stale, incoming.buffer, 0));
        }
        self.stats.model_chunks_sent += 1;
        let answer = Header {
            flags,
            chunk: header.chunk,
            element_type: ElementType::F32,
            operation: Operation::None,
            count: elements,
            ..plain_header(Kind::Answer, self.id(), header.group, header.members)
        };
        send(self.host.write(peer, &answer, incoming.buffer, payload_len))
    }

    fn puller(&self, incoming: &mut Incoming<'_>) -> Result<Peer, Refusal> {
        let header = &incoming.header;
        let peer = match header.flags.contains(Flags::REPLICA) {
            true => Peer::of_box(header.members)?,
            false => Peer::worker(header.members)?,
        };
        self.identify(peer, incoming)?;
        Ok(peer)
    }
}
