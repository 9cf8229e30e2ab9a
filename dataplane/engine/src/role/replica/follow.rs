//! What the replica asks its server for (SPEC#replica): the next decisions, chunks of a sum from
//! the log, or a whole version.

use weft_wire::header::{Flags, Header, Kind};
use weft_wire::rows::{ROW_LOG, ROW_MODEL};
use weft_wire::{ChunkIndex, GroupId, Members, Nanos};

use super::job::{Job, Phase};
use crate::role::channel::{Peer, Standing};
use crate::role::model::low_bits;
use crate::send::datagram::plain_header;

impl Job {
    /// Writes the next frame.
    pub(super) fn transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        if let Some(len) = self.server.poll_transmit(now, frame) {
            return Some(len);
        }
        if self.is_dirty || now >= self.grace_until {
            self.advance(now);
        }
        let len = self.ask(now, frame);
        self.is_dirty = len.is_some();
        len
    }

    /// When [`Job::transmit`] will have something to do.
    pub(super) fn due_at(&self) -> Nanos {
        if self.is_dirty {
            return Nanos(0);
        }
        let channel = self.server.poll_timeout();
        if self.server.standing() != Standing::Open {
            return channel;
        }
        let fetch = match self.phase {
            Phase::Repair | Phase::Copy { .. } => self.fetch.timeout(),
            Phase::Follow | Phase::Ask => Nanos::MAX,
        };
        channel.min(fetch).min(self.status_at).min(self.grace_until)
    }

    fn ask(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        if self.server.standing() != Standing::Open {
            return None;
        }
        if self.owes_status || now >= self.status_at {
            return self.ask_status(now, frame);
        }
        match self.phase {
            Phase::Follow | Phase::Ask => None,
            Phase::Repair => {
                let decision = self.decisions.first()?;
                let copies = &self.copies;
                let has = |chunk| copies.repaired(chunk) == decision.members;
                let (chunk, again) = self.fetch.poll(now, has)?;
                let order = Members(self.ledger.next_order());
                let header = plain_header(Kind::Pull, self.id(), decision.group, order);
                self.question(&header, chunk, again, frame)
            }
            Phase::Copy { generation } => {
                let draft = &self.draft;
                let has = |chunk| draft.has(chunk) == Some(true);
                let (chunk, again) = self.fetch.poll(now, has)?;
                let group = GroupId::new(ROW_MODEL, generation);
                let header = plain_header(Kind::Contrib, self.id(), group, self.bit());
                self.question(&header, chunk, again, frame)
            }
        }
    }

    fn question(
        &mut self,
        header: &Header,
        chunk: u32,
        again: bool,
        frame: &mut [u8],
    ) -> Option<usize> {
        let repeat = if again { Flags::RETRANSMIT } else { Flags::NONE };
        self.stats.questions_repeated += u64::from(again);
        let header =
            Header { flags: Flags::REPLICA.union(repeat), chunk: ChunkIndex(chunk), ..*header };
        self.server.write(&header, frame, 0)
    }

    /// Says what is applied and asks for what is next; or asks for a version to begin with. A
    /// server that answers nothing is asked who it is.
    fn ask_status(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        self.owes_status = false;
        self.status_at = now.saturating_add(Nanos(self.config.status_interval_ns));
        let silent_ns = self.config.status_interval_ns.saturating_mul(SILENT_QUESTIONS);
        if now.since(self.heard_at).0 >= silent_ns {
            self.server.ask(now);
        }
        let (row, chunk) = match self.phase {
            Phase::Ask => (ROW_MODEL, 0),
            _ => (ROW_LOG, low_bits(self.ledger.next_order())),
        };
        let header = Header {
            flags: Flags::REPLICA,
            chunk: ChunkIndex(chunk),
            ..plain_header(Kind::Status, self.id(), GroupId::new(row, 0), self.bit())
        };
        self.server.write(&header, frame, 0)
    }

    fn bit(&self) -> Members {
        Peer::Box(self.config.index).bit()
    }

    /// Forgets what is under way and begins with a version of the server's.
    pub(super) fn begin_snapshot(&mut self) {
        self.copies.end_repair();
        self.phase = Phase::Ask;
        self.decisions.clear();
        self.owes_status = true;
        self.is_dirty = true;
    }
}

/// Questions without an answer before the server is asked who it is.
const SILENT_QUESTIONS: u64 = 8;
