//! What a worker sends, accepts and keeps (rules 2 and 3).
//!
//! A worker sends step n+1 of a slot only after the answer to step n. It keeps a slot's sum until
//! it holds the sum of the slot's next step; the last window is kept until the close exchange.

use super::message::{Layout, Message, Parts, Sum};
use super::{Allreduce, Broken, Rules, State};
use crate::model::network::Network;

/// A member of the group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Worker {
    /// The epoch that it is in or asks to join.
    epoch: u8,
    /// False while it waits for the epoch's welcome.
    is_welcome: bool,
    /// The chunks that it is to hand over, as far as it holds them.
    wanted: u8,
    /// For each chunk the computation whose sum it has had; 0 for none.
    had: [u8; CHUNK_COUNT_MAX],
    /// Chunks that it has something for.
    chunks: u8,
    /// It has ended on MISMATCH or LEFT.
    pub(crate) was_told: bool,
    /// It knows that all members have all sums and keeps nothing any more.
    pub(crate) has_left: bool,
}

/// Chunk bitmaps are bytes.
const CHUNK_COUNT_MAX: usize = 8;

impl Worker {
    pub(super) const fn new(chunks: u8) -> Self {
        let had = [0; CHUNK_COUNT_MAX];
        let (was_told, has_left) = (false, false);
        Self { epoch: 1, is_welcome: true, wanted: 0, had, chunks, was_told, has_left }
    }

    /// Learns that the aggregator lives in `epoch`. From here on answers of the old epoch are
    /// refused, so that what the worker reports in its join stays true.
    pub(super) fn notice_epoch(&mut self, epoch: u8) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.is_welcome = false;
            self.wanted = 0;
        }
    }

    /// Sends all that the worker's state allows.
    pub(super) fn send(&self, model: &Allreduce, worker: u8, network: &mut Network<Message>) {
        let (layout, epoch) = (model.layout, self.epoch);
        if self.was_told {
            return;
        }
        if !self.is_welcome {
            let holds = self.chunks_had(layout);
            network.send(Message::Join { epoch, worker, holds });
            return;
        }
        for slot in 0..layout.window {
            if let Some(chunk) = self.next_chunk(layout, slot) {
                network.send(model.contribution(epoch, worker, chunk));
            }
        }
        for chunk in (0..layout.chunks()).filter(|chunk| self.wanted >> chunk & 1 == 1) {
            if !self.keeps(layout, chunk) {
                continue;
            }
            network.send(match model.rules {
                Rules::RestartWithoutHandOver => continue,
                Rules::RestartSumsAgain => model.contribution(epoch, worker, chunk),
                _ => Message::HandOver { epoch, chunk, sum: self.sum(layout, chunk) },
            });
        }
        if self.has_all() && !self.has_left {
            network.send(Message::Close { epoch, worker });
        }
    }

    /// True if the worker still has the data of `chunk`'s sum.
    fn keeps(&self, layout: Layout, chunk: u8) -> bool {
        let next = chunk + layout.window;
        self.has_had(chunk) && !(next < layout.chunks() && self.has_had(next)) && !self.has_left
    }

    /// The sum as it was accepted: exact, or the search would have ended there.
    fn sum(&self, layout: Layout, chunk: u8) -> Sum {
        let computation = self.had[usize::from(chunk)];
        Sum { parts: Parts::exact(layout, chunk), computation }
    }

    fn next_chunk(&self, layout: Layout, slot: u8) -> Option<u8> {
        let chunks = (0..layout.steps).map(|step| layout.chunk(slot, step));
        chunks.into_iter().find(|&chunk| chunk < self.chunks && !self.has_had(chunk))
    }

    fn has_had(&self, chunk: u8) -> bool {
        self.had[usize::from(chunk)] != 0
    }

    pub(super) fn has_all(&self) -> bool {
        (0..self.chunks).all(|chunk| self.has_had(chunk))
    }

    fn chunks_had(&self, layout: Layout) -> u8 {
        let had = (0..layout.chunks()).filter(|&chunk| self.has_had(chunk));
        had.fold(0, |bitmap, chunk| bitmap | 1 << chunk)
    }

    /// Says what the worker waits for.
    pub(super) fn wants(&self, layout: Layout) -> String {
        if !self.is_welcome {
            return format!("for the welcome to epoch {}", self.epoch);
        }
        let chunks: Vec<String> = (0..layout.window)
            .filter_map(|slot| self.next_chunk(layout, slot))
            .map(|chunk| format!("c{chunk}"))
            .collect();
        if chunks.is_empty() { "for the close".into() } else { chunks.join(" and ") }
    }
}

impl Allreduce {
    fn contribution(&self, epoch: u8, worker: u8, chunk: u8) -> Message {
        let (.., length) = self.part(worker, chunk).expect("it has something for the chunk");
        Message::Contribution { epoch, worker, chunk, length }
    }

    /// Lets `message` arrive at `worker`.
    pub(super) fn at_worker(&self, state: &mut State, worker: u8, message: Message) {
        let this = &mut state.workers[usize::from(worker)];
        if this.was_told {
            return;
        }
        match message {
            Message::Mismatch { epoch, worker: to, chunk }
            | Message::Left { epoch, worker: to, chunk }
                if to == worker && epoch == this.epoch && !this.has_had(chunk) =>
            {
                this.was_told = true;
                if self.vectors.iter().all(|vectors| *vectors == self.vectors[0]) {
                    state.broken = Some(Broken::ToldWrongly { worker, chunk });
                }
            }
            Message::Answer { epoch, chunk, sum } => {
                let tag_fits = this.is_welcome && epoch == this.epoch;
                let is_awaited =
                    this.next_chunk(self.layout, self.layout.slot(chunk)) == Some(chunk);
                if (tag_fits || self.rules == Rules::AnswersOfAnyEpoch) && is_awaited {
                    self.accept(state, worker, chunk, sum);
                }
            }
            Message::Welcome { epoch, wanted } if epoch == this.epoch && !this.is_welcome => {
                this.is_welcome = true;
                this.wanted = wanted;
            }
            Message::Closed { epoch } if epoch == this.epoch => {
                this.is_welcome = true;
                this.has_left = true;
            }
            _ => {}
        }
    }

    /// Takes a sum, and checks I1 and I2 on it.
    fn accept(&self, state: &mut State, worker: u8, chunk: u8, sum: Sum) {
        if sum.parts != Parts::exact(self.layout, chunk) {
            state.broken = Some(Broken::WrongSum { worker, chunk, sum });
        }
        for (other, holder) in (0..).zip(&state.workers) {
            let computation = holder.had[usize::from(chunk)];
            if computation != 0 && computation != sum.computation {
                state.broken = Some(Broken::OtherBits { worker, other, chunk });
            }
        }
        let this = &mut state.workers[usize::from(worker)];
        this.had[usize::from(chunk)] = sum.computation;
        let returned = match self.rules {
            Rules::CallsEndOutOfOrder => chunk..chunk + 1,
            _ => 0..(0..this.chunks).find(|&chunk| !this.has_had(chunk)).unwrap_or(this.chunks),
        };
        if self.rules == Rules::LeaveWithoutClose && this.has_all() {
            this.has_left = true;
        }
        for chunk in returned {
            let is_other = |&other: &u8| self.part(worker, chunk) != self.part(other, chunk);
            if let Some(other) = (0..self.layout.workers).find(is_other) {
                state.broken = Some(Broken::OtherPart { worker, other, chunk });
            }
        }
    }
}
