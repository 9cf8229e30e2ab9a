//! What a worker that asks is told of its group. Checks run in the order of SPEC#checks, all before
//! anything changes (I7).

use weft_wire::header::{Header, Kind, Outcome};
use weft_wire::{GroupId, Members, Rank};

use super::job::Job;
use super::receive::{RowKind, send};
use crate::drops::DropReason;
use crate::role::Verdict;
use crate::role::channel::Peer;
use crate::role::model::{Incoming, Refusal};
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
        if let Some(decided) = self.ledger.outcomes().get(rank, header.group) {
            // One that a former life held was never in this log: leaving the replica frees it too.
            let replica = self.replica.as_ref().filter(|replica| replica.gates_acks());
            let lacks = |order| replica.is_some_and(|replica| !replica.has(order));
            let is_held = decided.held_by.is_some_and(lacks);
            return match is_held || !self.is_durable(decided.position) {
                true => self.word(header.group, Outcome::Wait),
                false => self.ack(decided, rank.bit()),
            };
        }
        let outcome =
            match (self.staging.find(header.group).map(|index| self.staging.get(index)), row) {
                (Some(group), _) if group.mask.union(group.closed).contains(rank.bit()) => {
                    Outcome::Wait
                }
                (None, RowKind::Direct(_)) => self.admit_direct(rank, incoming),
                _ => self.withdraw(rank, header.group),
            };
        self.word(header.group, outcome)
    }

    fn word(&self, group: GroupId, outcome: Outcome) -> Header {
        Header { outcome, ..plain_header(Kind::State, self.id(), group, Members::EMPTY) }
    }
}
