//! Model pulls passing through: requests up, answers down (SPEC#pull).

use weft_wire::header::{Flags, HEADER_LEN, Header, Kind, Outcome};
use weft_wire::{Members, Rank};

use super::Arrival;
use super::job::Job;
use super::relay::{Next, Wanted};
use super::stats::Transition;
use crate::drops::DropReason;
use crate::role::Verdict;
use crate::role::channel::Peer;
use crate::send::datagram::{is_intact, plain_header};

impl Job {
    /// A worker asks for a chunk of the model.
    pub(super) fn handle_request(
        &mut self,
        rank: Rank,
        arrival: &mut Arrival<'_>,
    ) -> Result<Verdict, DropReason> {
        let header = arrival.header;
        if header.kind != Kind::Contrib {
            // Which version is the newest only the server knows.
            return Err(DropReason::Kind);
        }
        // w and h.
        if header.chunk.0 >= 2 * self.config.chunks {
            return Err(DropReason::ChunkOutOfRange);
        }
        if arrival.udp.payload_len() != HEADER_LEN {
            return Err(DropReason::ElementCount);
        }
        if !is_intact(self.config.integrity, arrival.buffer, arrival.udp.payload_range()) {
            return Err(DropReason::Integrity);
        }
        let wanted = wanted(&header);
        let next = self.relay.request(wanted, rank);
        self.stats.count(match next {
            Next::Ask => Transition::PullAsk,
            Next::AskAgain => Transition::PullAskAgain,
            Next::Wait => Transition::PullJoin,
            Next::Kept => Transition::PullKept,
        });
        match next {
            Next::Wait => Ok(Verdict::Hold),
            Next::Ask | Next::AskAgain => {
                let bit = Peer::Box(self.config.box_index).bit();
                let request = Header {
                    flags: Flags::REPLICA,
                    chunk: header.chunk,
                    ..plain_header(Kind::Contrib, self.config.job, header.group, bit)
                };
                let len = self.server.write(&request, arrival.buffer, 0);
                // Without a channel to the server the puller's repeat will try again.
                Ok(len.map_or(Verdict::Hold, |len| Verdict::Send { len }))
            }
            Next::Kept => {
                let peer = Peer::Worker(rank);
                let answer =
                    Header { members: rank.bit(), ..self.model_header(header.group, header.chunk) };
                let start = self.workers.payload_start(peer);
                let data = self.relay.kept(wanted).ok_or(DropReason::Unsolicited)?;
                let wire = arrival.buffer.get_mut(start..start + data.len());
                wire.ok_or(DropReason::Length)?.copy_from_slice(data);
                let len = self.workers.write(peer, &answer, arrival.buffer, answer.payload_len());
                self.stats.pulls_answered += 1;
                len.map_or(Err(DropReason::StaleEpoch), |len| Ok(Verdict::Send { len }))
            }
        }
    }

    /// The server's answer, for all who asked.
    pub(super) fn handle_answer(
        &mut self,
        arrival: &mut Arrival<'_>,
    ) -> Result<Verdict, DropReason> {
        let header = arrival.header;
        let model = self.model_header(header.group, header.chunk);
        if header.count != model.count {
            return Err(DropReason::ElementCount);
        }
        if header.element_type != model.element_type {
            return Err(DropReason::ElementType);
        }
        let start = arrival.udp.payload_start() + HEADER_LEN;
        let data = &arrival.buffer[start..arrival.udp.payload_range().end];
        let askers = self.relay.answer(wanted(&header), data);
        let askers = self.present(askers);
        self.stats.count(Transition::PullAnswer);
        self.stats.pulls_answered += askers.len() as u64;
        let answer = Header { members: askers, ..model };
        self.send_to_all(askers, &answer, arrival)
    }

    /// The server has the version no more.
    pub(super) fn handle_gone(&mut self, arrival: &mut Arrival<'_>) -> Result<Verdict, DropReason> {
        let header = arrival.header;
        let askers = self.relay.gone(wanted(&header));
        let askers = self.present(askers);
        self.stats.count(Transition::PullGone);
        let state =
            Header { chunk: header.chunk, ..self.state(Outcome::Stale, header.group, askers) };
        self.send_to_all(askers, &state, arrival)
    }

    /// Those of `askers` that have a channel still.
    fn present(&self, askers: Members) -> Members {
        let open = askers.iter().filter(|rank| self.workers.is_open(Peer::Worker(*rank)));
        open.fold(Members::EMPTY, |mask, rank| mask.union(rank.bit()))
    }

    /// Turns the buffer, whose payload is in place, into the frame to the first of `askers`.
    fn send_to_all(
        &self,
        askers: Members,
        header: &Header,
        arrival: &mut Arrival<'_>,
    ) -> Result<Verdict, DropReason> {
        let first = askers.iter().next().ok_or(DropReason::Unsolicited)?;
        let payload_len = arrival.udp.payload_len() - HEADER_LEN;
        let len = self.workers.write(Peer::Worker(first), header, arrival.buffer, payload_len);
        let len = len.ok_or(DropReason::StaleEpoch)?;
        Ok(if askers.len() == 1 {
            Verdict::Send { len }
        } else {
            Verdict::Fan { len, push: self.push }
        })
    }
}

fn wanted(header: &Header) -> Wanted {
    Wanted { generation: header.group.generation(), chunk: header.chunk.0 }
}
