//! Chunks of the model on their way down: who asked, and what the server said (SPEC#pull).
//!
//! Decides for each request whether the server must be asked, or the answer is awaited, or kept.
//! One entry per slot of a bounded cache, found by arithmetic from version and chunk; whoever comes
//! to an entry of another chunk takes it over, for the pullers repeat what they miss. No timers.
//! Invariant: kept data is of exactly the version and chunk that its entry names, in one life of
//! the server, and less than 2^15 versions old, so that the 16 bits of a version cannot mislead.

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::{Members, Rank};

/// What to do with a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Next {
    /// Ask the server; this is the first request.
    Ask,
    /// Ask the server again: the asker has waited in vain.
    AskAgain,
    /// Another one's request is on its way.
    Wait,
    /// The data is here.
    Kept,
}

/// A chunk of one version of the model.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Wanted {
    /// Low 16 bits of the version.
    pub(super) generation: u16,
    pub(super) chunk: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    era: u32,
    chunk: u32,
    generation: u16,
    has_data: bool,
    askers: Members,
}

/// The relay of one job.
#[derive(Debug)]
pub(super) struct Relay {
    entries: Vec<Entry>,
    /// Of these, so many are used.
    count: usize,
    data: Vec<u8>,
    chunk_len: usize,
    /// Entries of another era are void. 0 is no era.
    era: u32,
    newest: Option<u16>,
    era_began_at: u16,
}

impl Relay {
    /// Takes memory for so many chunks, which take no more bytes than these together.
    pub(super) fn vacant(slots_max: usize, bytes_max: usize) -> Self {
        let mut data = vec![0; bytes_max];
        // Every page is written to, so that the kernel gives the memory now.
        data.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
        Self {
            entries: vec![Entry::default(); slots_max],
            count: 0,
            data,
            chunk_len: 0,
            era: 1,
            newest: None,
            era_began_at: 0,
        }
    }

    /// Begins anew for another job: `slot_count` chunks of `chunk_len` bytes, none of them kept.
    pub(super) fn renew(&mut self, slot_count: u32, chunk_len: usize) {
        let count = slot_count as usize;
        debug_assert!(count <= self.entries.len() && count * chunk_len <= self.data.len());
        (self.count, self.chunk_len) = (count, chunk_len);
        self.forget();
    }

    /// Decides for a request of `rank`.
    pub(super) fn request(&mut self, wanted: Wanted, rank: Rank) -> Next {
        let index = self.index(wanted);
        let era = self.era;
        let entry = &mut self.entries[index];
        if !entry.is(wanted, era) {
            let Wanted { generation, chunk } = wanted;
            *entry = Entry { era, chunk, generation, has_data: false, askers: rank.bit() };
            return Next::Ask;
        }
        if entry.has_data {
            return Next::Kept;
        }
        let has_asked = entry.askers.contains(rank.bit());
        entry.askers = entry.askers.union(rank.bit());
        if has_asked { Next::AskAgain } else { Next::Wait }
    }

    /// Takes the server's answer and returns who waits for it; nobody when it was not asked for.
    pub(super) fn answer(&mut self, wanted: Wanted, data: &[u8]) -> Members {
        let index = self.index(wanted);
        let era = self.era;
        let entry = &mut self.entries[index];
        if !entry.is(wanted, era) || entry.has_data || data.len() != self.chunk_len {
            return Members::EMPTY;
        }
        entry.has_data = true;
        let askers = core::mem::take(&mut entry.askers);
        self.data[index * self.chunk_len..][..self.chunk_len].copy_from_slice(data);
        self.saw(wanted.generation);
        askers
    }

    /// Takes the server's word that it has the version no more; returns who waits for it.
    pub(super) fn gone(&mut self, wanted: Wanted) -> Members {
        let index = self.index(wanted);
        let era = self.era;
        let entry = &mut self.entries[index];
        if !entry.is(wanted, era) || entry.has_data {
            return Members::EMPTY;
        }
        core::mem::take(entry).askers
    }

    /// The kept data of a chunk.
    pub(super) fn kept(&self, wanted: Wanted) -> Option<&[u8]> {
        let index = self.index(wanted);
        let entry = &self.entries[index];
        let holds = entry.is(wanted, self.era) && entry.has_data;
        holds.then(|| &self.data[index * self.chunk_len..][..self.chunk_len])
    }

    /// Forgets everything: the server began a new life.
    pub(super) fn forget(&mut self) {
        self.newest = None;
        self.begin_era();
    }

    /// Notes a version that the server has.
    fn saw(&mut self, generation: u16) {
        match self.newest {
            None => {
                self.newest = Some(generation);
                self.era_began_at = generation;
            }
            Some(newest) if generation.wrapping_sub(newest).cast_signed() > 0 => {
                self.newest = Some(generation);
                if generation.wrapping_sub(self.era_began_at) >= ERA_VERSIONS_MAX {
                    self.begin_era();
                    self.era_began_at = generation;
                }
            }
            Some(_) => {}
        }
    }

    fn begin_era(&mut self) {
        self.era = self.era.wrapping_add(1);
        if self.era == 0 {
            self.entries.fill(Entry::default());
            self.era = 1;
        }
    }

    /// Versions of one chunk lie apart, so that who pulls the newest does not push out who still
    /// pulls the one before.
    fn index(&self, wanted: Wanted) -> usize {
        let apart = u32::from(wanted.generation).wrapping_mul(0x9e37_79b1) >> 8;
        wanted.chunk.wrapping_add(apart) as usize % self.count
    }
}

impl Entry {
    fn is(&self, wanted: Wanted, era: u32) -> bool {
        self.era == era && self.chunk == wanted.chunk && self.generation == wanted.generation
    }
}

/// Versions after which everything that is kept is forgotten.
const ERA_VERSIONS_MAX: u16 = 1 << 14;
const PAGE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn relay(slot_count: u32, chunk_len: usize) -> Relay {
        let mut relay = Relay::vacant(slot_count as usize, slot_count as usize * chunk_len);
        relay.renew(slot_count, chunk_len);
        relay
    }

    const fn wanted(generation: u16, chunk: u32) -> Wanted {
        Wanted { generation, chunk }
    }

    fn rank(rank: u8) -> Rank {
        Rank::new(rank).unwrap()
    }

    #[test]
    fn the_server_is_asked_once_and_again_only_for_a_repeat() {
        let mut relay = relay(8, 2);
        assert_eq!(relay.request(wanted(7, 1), rank(0)), Next::Ask);
        assert_eq!(relay.request(wanted(7, 1), rank(1)), Next::Wait);
        assert_eq!(relay.request(wanted(7, 1), rank(0)), Next::AskAgain);
        assert_eq!(relay.answer(wanted(7, 1), &[5, 6]), Members(0b11));
        assert_eq!(relay.answer(wanted(7, 1), &[5, 7]), Members::EMPTY, "nobody waits any more");
        assert_eq!(relay.request(wanted(7, 1), rank(2)), Next::Kept);
        assert_eq!(relay.kept(wanted(7, 1)), Some(&[5, 6][..]));
        assert_eq!(relay.kept(wanted(8, 1)), None);
    }

    #[test]
    fn what_nobody_asked_for_is_not_kept() {
        let mut relay = relay(8, 2);
        assert_eq!(relay.answer(wanted(7, 1), &[5, 6]), Members::EMPTY);
        assert_eq!(relay.kept(wanted(7, 1)), None);
        assert_eq!(relay.gone(wanted(7, 1)), Members::EMPTY);
        relay.request(wanted(7, 1), rank(3));
        assert_eq!(relay.gone(wanted(7, 1)), Members(8));
        assert_eq!(relay.request(wanted(7, 1), rank(3)), Next::Ask);
    }

    #[test]
    fn a_new_life_of_the_server_voids_what_is_kept() {
        let mut relay = relay(8, 2);
        relay.request(wanted(7, 1), rank(0));
        relay.answer(wanted(7, 1), &[5, 6]);
        relay.forget();
        assert_eq!(relay.kept(wanted(7, 1)), None);
        assert_eq!(relay.request(wanted(7, 1), rank(0)), Next::Ask);
    }

    /// A version that is 65,536 later has the same 16 bits; its chunk must not come from memory.
    #[test]
    fn a_version_that_looks_alike_is_asked_for() {
        let mut relay = relay(64, 1);
        relay.request(wanted(3, 0), rank(0));
        relay.answer(wanted(3, 0), &[1]);
        for step in 1..=(0x1_0000_u32 / 4096) {
            let generation = u16::try_from((3 + step * 4096) & 0xffff).unwrap();
            if generation == 3 {
                break;
            }
            // Chunk 40 and the like, so that the entry of chunk 0 is not simply taken over.
            relay.request(wanted(generation, 40), rank(0));
            relay.answer(wanted(generation, 40), &[2]);
        }
        assert_eq!(relay.request(wanted(3, 0), rank(0)), Next::Ask);
    }
}
