//! What the frames of each band have come to, by the kernel's classes. No I/O.
//!
//! The kernel counts by class, and forgets a class that is deleted; a job that moves leaves one
//! class for another. Invariant: what is counted of a band never shrinks, whatever becomes of its
//! classes; what waits is what waits now.

use std::collections::BTreeMap;

use weft_io::bands::{BandCounts, QUEUES};

use super::tree::queue;

/// The counts of one interface.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Of classes that are gone.
    gone: [BandCounts; QUEUES],
    /// As the kernel said last, by the number of the class.
    known: BTreeMap<u16, BandCounts>,
}

impl Counts {
    /// Takes in what the kernel says of all classes that there are.
    pub(super) fn note(&mut self, now: BTreeMap<u16, BandCounts>) {
        for (minor, before) in &self.known {
            let is_same = now.get(minor).is_some_and(|now| continues(now, before));
            if let Some(queue) = queue(*minor).filter(|_| !is_same) {
                add(&mut self.gone[queue], before);
            }
        }
        self.known = now;
    }

    /// Those of each band, in the order of `weft_control::figures::QUEUES`.
    #[must_use]
    pub(super) fn figures(&self) -> [BandCounts; QUEUES] {
        let mut figures = self.gone;
        for (minor, now) in &self.known {
            if let Some(queue) = queue(*minor) {
                add(&mut figures[queue], now);
                figures[queue].waiting += now.waiting;
                figures[queue].waiting_bytes += now.waiting_bytes;
            }
        }
        figures
    }

    /// Frames that wait in the classes of jobs.
    #[must_use]
    pub(super) fn waiting(&self) -> u64 {
        let of_jobs = self.known.iter().filter(|(minor, _)| **minor > u16::from(u8::MAX));
        of_jobs.map(|(_, now)| now.waiting).sum()
    }
}

/// It is the class that it was: one that is made anew begins at 0.
const fn continues(now: &BandCounts, before: &BandCounts) -> bool {
    now.sent >= before.sent && now.sent_bytes >= before.sent_bytes && now.full >= before.full
}

const fn add(to: &mut BandCounts, from: &BandCounts) {
    to.sent = to.sent.saturating_add(from.sent);
    to.sent_bytes = to.sent_bytes.saturating_add(from.sent_bytes);
    to.full = to.full.saturating_add(from.full);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sent: u64, full: u64, waiting: u64) -> BandCounts {
        let (sent_bytes, waiting_bytes) = (sent * 100, waiting * 100);
        BandCounts { sent, sent_bytes, full, waiting, waiting_bytes, ..BandCounts::default() }
    }

    #[test]
    fn a_band_has_what_its_jobs_sent_and_what_left_with_their_classes() {
        let mut counts = Counts::default();
        // Two jobs in band 0, one in band 1, the rest, and frames without elements.
        let first = [(0x103, of(5, 1, 2)), (0x107, of(3, 0, 0)), (0x203, of(7, 0, 1))];
        counts.note(first.into_iter().chain([(1, of(9, 0, 4)), (0x100, of(2, 0, 0))]).collect());
        let figures = counts.figures();
        let sent = |figures: &[BandCounts; QUEUES]| figures.map(|band| band.sent);
        assert_eq!(sent(&figures), [8, 7, 0, 0, 0, 0, 0, 9, 2]);
        assert_eq!((figures[0].full, figures[0].waiting, figures[0].waiting_bytes), (1, 2, 200));
        assert_eq!(counts.waiting(), 3, "what is no job's is not waited for");
        // One class goes on, one is made anew, the others are gone.
        counts.note(BTreeMap::from([(0x103, of(6, 1, 0)), (0x203, of(1, 0, 0))]));
        let figures = counts.figures();
        assert_eq!(sent(&figures), [9, 8, 0, 0, 0, 0, 0, 9, 2]);
        assert_eq!((figures[0].full, figures[0].waiting, figures[7].waiting), (1, 0, 0));
        counts.note(BTreeMap::new());
        assert_eq!(sent(&counts.figures()), sent(&figures));
    }
}
