//! What a box says to all its workers at once: frames in memory that it alone writes and every
//! worker reads.
//!
//! A frame is written once, and a worker's own ring tells it which one ([`super::ring`]): so who
//! hears what, in which order, and who sleeps is decided there. Nobody waits for a slow worker: its
//! frame is overwritten, and it finds that out after it has copied, as a reader of a sequence lock
//! does. Then the frame is lost, as at a switch.
//!
//! Invariants: the workers' mappings cannot be written to, for the memory is sealed against it
//! before it is shared; a frame that was overwritten while it was copied is never given out.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::region::{self, Region};
use super::ring::Geometry;

/// The box's side.
#[derive(Debug)]
pub(super) struct CastWriter {
    region: Region,
    geometry: Geometry,
    /// Frames written so far.
    count: u64,
}

/// A worker's side.
#[derive(Clone, Debug)]
pub(super) struct CastReader {
    region: Arc<Region>,
    geometry: Geometry,
}

impl CastWriter {
    /// Takes the memory; returns it with the descriptor by which others may read it.
    pub(super) fn create(geometry: Geometry) -> std::io::Result<(Self, OwnedFd)> {
        let (region, fd) = Region::create_to_show(geometry.cast_bytes())?;
        Ok((Self { region, geometry, count: 0 }, fd))
    }

    /// Writes a frame over the oldest one; returns its number.
    pub(super) fn put(&mut self, frame: &[u8]) -> u64 {
        let number = self.count;
        self.count = number.wrapping_add(1);
        let words = self.region.words();
        words[BEGUN].store(self.count, Ordering::Relaxed);
        // Pairs with the fence in `CastReader::take`: who has read a byte of the new frame sees
        // that it was begun.
        fence(Ordering::Release);
        region::write(&words[self.geometry.cast_slot(number)], frame);
        number
    }
}

impl CastReader {
    /// Maps the memory that a box shows.
    pub(super) fn map(fd: BorrowedFd<'_>, geometry: Geometry) -> std::io::Result<Self> {
        let region = Region::map_to_read(fd, geometry.cast_bytes())?;
        Ok(Self { region: Arc::new(region), geometry })
    }

    /// Copies frame `number` out; false when it is there no more.
    pub(super) fn take(&self, number: u64, buffer: &mut [u8]) -> bool {
        let words = self.region.words();
        region::read(&words[self.geometry.cast_slot(number)], buffer);
        fence(Ordering::Acquire);
        let begun = words[BEGUN].load(Ordering::Relaxed);
        // The slot is written over when as many more as there are slots have been begun.
        (1..=self.geometry.slot_count as u64).contains(&begun.wrapping_sub(number))
    }
}

/// The word that says how many frames were begun.
const BEGUN: usize = 0;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::sync::atomic::AtomicU64;

    use super::*;

    const GEOMETRY: Geometry = Geometry { frame_len_max: 200, slot_count: 64 };

    fn pair() -> (CastWriter, CastReader) {
        let (writer, fd) = CastWriter::create(GEOMETRY).expect("memory");
        let reader = CastReader::map(fd.as_fd(), GEOMETRY).expect("it is shown");
        (writer, reader)
    }

    #[test]
    fn a_frame_is_there_until_its_slot_is_begun_anew() {
        let (mut writer, reader) = pair();
        let mut buffer = [0; 200];
        assert!(!reader.take(0, &mut buffer), "nothing was written");
        for number in 0..64 {
            assert_eq!(writer.put(&[number; 200]), number.into());
        }
        for number in 0..64 {
            assert!(reader.take(number.into(), &mut buffer[..100]));
            assert_eq!(buffer[..100], [number; 100]);
        }
        writer.put(&[64; 200]);
        assert!(!reader.take(0, &mut buffer), "it was overwritten");
        assert!(reader.take(1, &mut buffer) && reader.take(64, &mut buffer));
        assert!(!reader.take(65, &mut buffer), "a number that somebody made up");
    }

    #[test]
    fn a_frame_that_is_written_over_meanwhile_is_never_given_out_torn() {
        let (mut writer, reader) = pair();
        // A worker's ring names a frame once it is written.
        let named = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| {
                let mut taken = 0;
                let mut buffer = [0; 200];
                for number in (0..20_000_u64).cycle().take(2_000_000) {
                    let is_named = number < named.load(Ordering::Acquire);
                    if is_named && reader.take(number, &mut buffer) {
                        let byte = u8::try_from(number % 251).expect("it is small");
                        assert!(buffer.iter().all(|it| *it == byte), "frame {number}: {buffer:?}");
                        taken += 1;
                    }
                }
                taken
            });
            for number in 0..20_000_u64 {
                writer.put(&[u8::try_from(number % 251).expect("it is small"); 200]);
                named.store(number + 1, Ordering::Release);
            }
            assert!(taken.join().expect("no frame was torn") > 0);
        });
    }

    #[test]
    fn a_worker_cannot_write_what_is_for_all() {
        let (_writer, fd) = CastWriter::create(GEOMETRY).expect("memory");
        assert!(Region::map(fd.as_fd(), GEOMETRY.cast_bytes()).is_err(), "its seal says no");
    }
}
