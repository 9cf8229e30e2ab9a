//! What a worker that asks is told of its group, or of the update that it announces. Checks run in the
//! order of SPEC#checks, all before anything changes (I7).

use weft_wire::header::{ElementType, Header, Kind, Outcome};
use weft_wire::{GroupId, Members, Rank};

use super::group::Opening;
use super::job::Job;
use super::receive::{RowKind, send};
use crate::drops::DropReason;
use crate::push::{GroupMember, Version};
use crate::role::aggregator::Verdict;
use crate::role::channel::Peer;
use crate::role::model::{Incoming, Refusal, near};
use crate::send::datagram::plain_header;

impl Job {
    /// STATUS of a group: what became of an update.
    pub(super) fn handle_status(
        &mut self,
        row: RowKind,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, Refusal> {
        let header = incoming.header;
        let peer = match row {
            RowKind::Direct(rank) if header.members != rank.bit() => {
                return Err(DropReason::BadMembers.into());
            }
            _ => Peer::worker(header.members)?,
        };
        self.identify(peer, incoming)?;
        self.check_intact(incoming)?;
        let Peer::Worker(rank) = peer else { return Err(DropReason::BadMembers.into()) };
        let reply = self.status_of(row, rank, incoming);
        send(self.host.write(peer, &reply, incoming.buffer, 0))
    }

    fn status_of(&mut self, row: RowKind, rank: Rank, incoming: &Incoming<'_>) -> Header {
        let header = &incoming.header;
        if let Some(decided) = self.outcomes.get(rank, header.group) {
            // One that a former life held was never in this log: leaving the replica frees it too.
            let is_held = self.is_held_for_replica()
                && decided.held_by.is_some_and(|order| !self.has_replica(order));
            return match is_held || !self.is_durable(decided.position) {
                true => self.word(header.group, Outcome::Wait),
                false => self.ack(decided, rank.bit()),
            };
        }
        let outcome = match (self.open(header.group).map(|index| self.group(index)), row) {
            (Some(group), _) if group.mask.union(group.closed).contains(rank.bit()) => {
                Outcome::Wait
            }
            (None, RowKind::Direct(_)) => self.admit_direct(rank, incoming),
            _ => self.forswear(rank, header.group),
        };
        self.word(header.group, outcome)
    }

    fn word(&self, group: GroupId, outcome: Outcome) -> Header {
        Header { outcome, ..plain_header(Kind::State, self.id(), group, Members::EMPTY) }
    }

    /// A worker announces an update that no controller planned.
    fn admit_direct(&mut self, rank: Rank, incoming: &Incoming<'_>) -> Outcome {
        let header = &incoming.header;
        let is_pushed = matches!(header.element_type, ElementType::I32 | ElementType::F32);
        let fits = is_pushed && header.count == self.config.model.elements;
        if !fits || self.outcomes.is_old_news(rank, header.group) {
            return Outcome::Stale;
        }
        let version = Version(near(self.model.version, header.chunk.0));
        let opening = Opening {
            id: header.group,
            members: &[GroupMember { rank, version }],
            element_type: header.element_type,
            exponent: header.exponent,
            via: None,
            rate_bytes_per_sec: None,
            train_chunks: 0,
            after: None,
            lateness_ns: self.config.lateness_ns,
        };
        self.open_direct(incoming.now, rank, &opening);
        // Too many are open, or it is open now: either way it may ask again.
        Outcome::Wait
    }
}
