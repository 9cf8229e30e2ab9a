//! A ring of frames in shared memory: one process puts in, one takes out.
//!
//! Decides from words that the other side may have made up. Invariants: an index read from memory
//! is checked against the private ones before it is used and read once; a length is read once and
//! bounds what is copied; a frame is copied out before anybody looks at it. So the other side can
//! at worst make this one refuse its frames, counted as [`Taken::Refused`], or give the ring up
//! ([`Broken`]).
//!
//! The way of a frame has no system call: indices are published once per burst, and the taker is
//! woken only when it has said that it sleeps. Source: the single-producer single-consumer ring of
//! L. Lamport, with each side's index in a line of its own.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use weft_wire::frame::ETHERNET_LEN;

use super::cast::CastReader;
use super::region::{self, Region, WORD_LEN};

/// How many frames a ring holds, and how long they may be. Both sides keep their own copy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Geometry {
    /// Longest frame in bytes.
    pub(super) frame_len_max: usize,
    /// Frames; a power of two.
    pub(super) slot_count: usize,
}

/// Where a ring lies in its region, in words.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Frames put in so far. The putter's.
    head: usize,
    /// Frames taken out so far. The taker's.
    tail: usize,
    /// Not 0: the taker sleeps. Set by it, cleared by whoever wakes it.
    asleep: usize,
    first_slot: usize,
}

impl Geometry {
    /// For frames of this length: few enough for a cache, enough for a window.
    pub(super) fn of(frame_len_max: usize) -> Self {
        let slot_len = (1 + frame_len_max.div_ceil(WORD_LEN)) * WORD_LEN;
        let fit = (RING_BYTES / slot_len).clamp(SLOTS_MIN, SLOTS_MAX);
        Self { frame_len_max, slot_count: 1 << fit.ilog2() }
    }

    /// Words of a slot: the length, and the frame.
    fn slot_words(self) -> usize {
        (1 + self.frame_len_max.div_ceil(WORD_LEN)).next_multiple_of(LINE_WORDS)
    }

    fn ring_words(self) -> usize {
        INDEX_LINES * LINE_WORDS + self.slot_count * self.slot_words()
    }

    /// Bytes of the memory for what goes to all workers.
    pub(super) fn cast_bytes(self) -> usize {
        (HEADER_WORDS + self.slot_count * self.slot_words()) * WORD_LEN
    }

    /// Words of that memory in which the frame with this number lies.
    pub(super) fn cast_slot(self, number: u64) -> Range<usize> {
        let first = HEADER_WORDS + self.slot_index(number) * self.slot_words();
        first..first + self.slot_words()
    }

    fn slot_index(self, number: u64) -> usize {
        usize::try_from(number & (self.slot_count as u64 - 1)).unwrap_or(0)
    }

    /// Bytes of a region with a ring in each direction.
    pub(super) fn region_bytes(self) -> usize {
        (HEADER_WORDS + 2 * self.ring_words()) * WORD_LEN
    }

    /// True when rings like this may be.
    pub(super) fn is_sound(self) -> bool {
        (ETHERNET_LEN..=FRAME_LEN_MAX).contains(&self.frame_len_max)
            && self.slot_count.is_power_of_two()
            && (SLOTS_MIN..=SLOTS_MAX).contains(&self.slot_count)
    }

    fn place(self, direction: Direction) -> Place {
        let base = HEADER_WORDS + direction as usize * self.ring_words();
        Place {
            head: base,
            tail: base + 2 * LINE_WORDS,
            asleep: base + 4 * LINE_WORDS,
            first_slot: base + INDEX_LINES * LINE_WORDS,
        }
    }
}

/// Which of the two rings of a region.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Direction {
    /// From the worker to the box.
    Up = 0,
    /// From the box to the worker.
    Down = 1,
}

/// The other side has written indices that cannot be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Broken;

/// What came of looking for a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Taken {
    /// Nothing is there.
    Empty,
    /// A frame of this many bytes was copied out.
    Frame(usize),
    /// Something was there that is no frame, or none that fits; it is gone.
    Refused,
}

/// The side that puts frames in.
#[derive(Debug)]
pub(super) struct Putter {
    region: Arc<Region>,
    geometry: Geometry,
    place: Place,
    /// Frames put in; published up to `published`.
    head: u64,
    published: u64,
    /// The taker's index when it was last looked at.
    tail_seen: u64,
}

impl Putter {
    pub(super) fn new(region: Arc<Region>, geometry: Geometry, direction: Direction) -> Self {
        let place = geometry.place(direction);
        Self { region, geometry, place, head: 0, published: 0, tail_seen: 0 }
    }

    /// Copies a frame in; false when the ring is full. The taker sees it after
    /// [`Putter::publish`].
    pub(super) fn put(&mut self, frame: &[u8]) -> Result<bool, Broken> {
        debug_assert!(frame.len() <= self.geometry.frame_len_max, "the port has compared them");
        let Some(slot) = self.next_slot()? else { return Ok(false) };
        slot[0].store(frame.len() as u64, Ordering::Relaxed);
        region::write(&slot[1..], frame);
        self.head = self.head.wrapping_add(1);
        Ok(true)
    }

    /// As [`Putter::put`], of the frame with this number that all workers may read.
    pub(super) fn put_cast(&mut self, number: u64, len: usize) -> Result<bool, Broken> {
        let Some(slot) = self.next_slot()? else { return Ok(false) };
        slot[0].store(CAST | len as u64, Ordering::Relaxed);
        slot[1].store(number, Ordering::Relaxed);
        self.head = self.head.wrapping_add(1);
        Ok(true)
    }

    /// The slot that the next frame comes into; `None` when the ring is full.
    fn next_slot(&mut self) -> Result<Option<&[AtomicU64]>, Broken> {
        let slot_count = self.geometry.slot_count as u64;
        if self.head.wrapping_sub(self.tail_seen) >= slot_count {
            let tail = self.region.words()[self.place.tail].load(Ordering::Acquire);
            if self.head.wrapping_sub(tail) > slot_count {
                return Err(Broken);
            }
            self.tail_seen = tail;
            if self.head.wrapping_sub(tail) == slot_count {
                return Ok(None);
            }
        }
        Ok(Some(slot(&self.region, self.geometry, self.place, self.head)))
    }

    /// Shows the taker what was put in; true when it sleeps and has to be woken.
    pub(super) fn publish(&mut self) -> bool {
        if self.published == self.head {
            return false;
        }
        self.published = self.head;
        let words = self.region.words();
        words[self.place.head].store(self.head, Ordering::Release);
        // Pairs with the fence in `Taker::fall_asleep`: the putter sees the sleeper, or the
        // sleeper sees the frames.
        fence(Ordering::SeqCst);
        let asleep = &words[self.place.asleep];
        asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::Relaxed) != 0
    }
}

/// The side that takes frames out.
#[derive(Debug)]
pub(super) struct Taker {
    region: Arc<Region>,
    geometry: Geometry,
    place: Place,
    /// Frames taken out; the putter knows of `released`.
    tail: u64,
    released: u64,
    /// The putter's index when it was last looked at.
    head_seen: u64,
    /// What goes to all workers, for one of them.
    casts: Option<CastReader>,
}

impl Taker {
    pub(super) fn new(region: Arc<Region>, geometry: Geometry, direction: Direction) -> Self {
        let place = geometry.place(direction);
        Self { region, geometry, place, tail: 0, released: 0, head_seen: 0, casts: None }
    }

    /// Also takes what goes to all workers.
    pub(super) fn with_casts(mut self, casts: CastReader) -> Self {
        self.casts = Some(casts);
        self
    }

    /// True when a frame is there, as far as the memory says. Looks at it anew.
    pub(super) fn has_frames(&mut self) -> Result<bool, Broken> {
        if self.head_seen == self.tail {
            let head = self.region.words()[self.place.head].load(Ordering::Acquire);
            if head.wrapping_sub(self.tail) > self.geometry.slot_count as u64 {
                return Err(Broken);
            }
            self.head_seen = head;
        }
        Ok(self.head_seen != self.tail)
    }

    /// Copies the next frame into `buffer`. Its slot is the putter's again after
    /// [`Taker::release`].
    pub(super) fn take(&mut self, buffer: &mut [u8]) -> Result<Taken, Broken> {
        if !self.has_frames()? {
            return Ok(Taken::Empty);
        }
        let slot = slot(&self.region, self.geometry, self.place, self.tail);
        self.tail = self.tail.wrapping_add(1);
        let word = slot[0].load(Ordering::Relaxed);
        let casts = self.casts.as_ref().filter(|_| word & CAST != 0);
        let len = if casts.is_some() { word & !CAST } else { word };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let longest = self.geometry.frame_len_max.min(buffer.len());
        if !(ETHERNET_LEN..=longest).contains(&len) {
            return Ok(Taken::Refused);
        }
        let buffer = &mut buffer[..len];
        match casts {
            Some(casts) if !casts.take(slot[1].load(Ordering::Relaxed), buffer) => {
                return Ok(Taken::Refused);
            }
            Some(_) => {}
            None => region::read(&slot[1..], buffer),
        }
        Ok(Taken::Frame(len))
    }

    /// Gives the slots of what was taken back.
    pub(super) fn release(&mut self) {
        if self.released != self.tail {
            self.released = self.tail;
            self.region.words()[self.place.tail].store(self.tail, Ordering::Release);
        }
    }

    /// Says that this side sleeps until it is woken; false when there is something to do first.
    pub(super) fn fall_asleep(&mut self) -> bool {
        self.region.words()[self.place.asleep].store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.has_frames() == Ok(false)
    }

    /// Says that this side does not sleep any more.
    pub(super) fn wake_up(&mut self) {
        self.region.words()[self.place.asleep].store(0, Ordering::Relaxed);
    }
}

/// The slot of the frame with this number.
#[inline]
fn slot(region: &Region, geometry: Geometry, place: Place, number: u64) -> &[AtomicU64] {
    let words = geometry.slot_words();
    &region.words()[place.first_slot + geometry.slot_index(number) * words..][..words]
}

/// With the length of a frame: it lies where all workers may read it, and its number comes next.
const CAST: u64 = 1 << 63;
/// Longest frame: an IP packet of 65,535 bytes and its Ethernet header.
pub(super) const FRAME_LEN_MAX: usize = 65_535 + ETHERNET_LEN;
/// What a ring takes of a cache, about.
const RING_BYTES: usize = 512 << 10;
/// Fewest and most frames of a ring: two bursts, and eight windows of a lane.
const SLOTS_MIN: usize = 64;
const SLOTS_MAX: usize = 1024;
/// Words of a cache line.
const LINE_WORDS: usize = 8;
/// Lines of head, tail and sleeper, each with a neighbour that prefetchers may fetch beside it.
const INDEX_LINES: usize = 6;
/// Words in front of the rings: a page, for the header and what may come.
pub(super) const HEADER_WORDS: usize = 4096 / WORD_LEN;

const _: () = assert!(SLOTS_MIN.is_power_of_two() && SLOTS_MAX.is_power_of_two());

#[cfg(test)]
mod tests;
