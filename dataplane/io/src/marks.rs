//! What the frames of each job carry and how they leave: the label of its IP headers, and its band
//! (SPEC#labels-and-bands). Frames without elements leave before all bands: they ask for what the
//! other direction of the link is free for, which would idle while they wait. A table's frames in
//! bulk may have a label and a band of their own, so that small accesses go before them.
//! One table for all lanes of a box; an agent writes it while they send.
//!
//! Invariants: a lane waits for nobody; a frame has the label of before or after a change, never a
//! mixture; a box none of whose jobs has a label sends every frame as it was made.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use weft_wire::JobId;
use weft_wire::frame::label::{is_bare, is_bulk, job_of, set_dscp};

use crate::Frame;

/// The labels and bands of a box's jobs.
#[derive(Debug)]
pub struct JobMarks {
    /// The label in the lower byte, the band in the upper.
    marks: Box<[AtomicU16]>,
    /// The same of frames in bulk; with [`AS_OTHERS`] they are as the job's others.
    bulk: Box<[AtomicU16]>,
    is_labelled: AtomicBool,
    /// Frames with a label are handed to the kernel one by one.
    is_apart: AtomicBool,
}

impl Default for JobMarks {
    fn default() -> Self {
        let all = |word: u16| (0..JOBS_MAX).map(|_| AtomicU16::new(word)).collect();
        Self {
            marks: all(NONE),
            bulk: all(NONE | u16::from(AS_OTHERS)),
            is_labelled: AtomicBool::new(false),
            is_apart: AtomicBool::new(false),
        }
    }
}

impl JobMarks {
    /// Gives the frames of a job this label; 0: none. False for a job beyond [`JOBS_MAX`], and for
    /// a label that is none.
    pub fn set_label(&self, job: JobId, label: u8) -> bool {
        label <= LABEL_MAX && self.give(&self.marks, job, label)
    }

    /// Gives those of a job's frames that are in bulk this label instead; 0: none. False as above.
    pub fn set_bulk_label(&self, job: JobId, label: u8) -> bool {
        label <= LABEL_MAX && self.give(&self.bulk, job, label)
    }

    fn give(&self, marks: &[AtomicU16], job: JobId, label: u8) -> bool {
        let is_set = change(marks, job, 0x00ff, u16::from(label));
        if is_set && label > 0 {
            self.is_labelled.store(true, Ordering::Release);
        }
        is_set
    }

    /// Has the frames of a job leave in this band, 0 to 7. False for a job beyond [`JOBS_MAX`], and
    /// for a band that is none.
    pub fn set_band(&self, job: JobId, band: u8) -> bool {
        band <= REST && change(&self.marks, job, 0xff00, u16::from(band) << 8)
    }

    /// Has all frames with this label, above 0, leave in this band.
    pub fn set_band_of_label(&self, label: u8, band: u8) {
        for marks in [&self.marks, &self.bulk] {
            for (job, mark) in (0..).zip(&**marks) {
                if mark.load(Ordering::Relaxed).to_be_bytes()[1] == label {
                    change(marks, JobId(job), 0xff00, u16::from(band.min(REST)) << 8);
                }
            }
        }
    }

    /// Has all frames with a label leave one by one: the kernel orders them by bands, and takes a
    /// run of frames that it is given as one message for one packet of up to 64 KiB.
    pub fn keep_apart(&self) {
        self.is_apart.store(true, Ordering::Relaxed);
    }

    /// The label of a job's frames; 0: none.
    #[must_use]
    pub fn label(&self, job: JobId) -> u8 {
        get(&self.marks, job).to_be_bytes()[1]
    }

    /// The band of a job's frames; the last one where none was set.
    #[must_use]
    pub fn band(&self, job: JobId) -> u8 {
        get(&self.marks, job).to_be_bytes()[0]
    }

    /// Band and label of a frame.
    fn of(&self, frame: &[u8]) -> (u8, u8) {
        let Some(job) = job_of(frame) else { return (REST, 0) };
        let bulk = get(&self.bulk, job).to_be_bytes();
        let [band, label] = match bulk[1] != AS_OTHERS && is_bulk(frame) {
            true => bulk,
            false => get(&self.marks, job).to_be_bytes(),
        };
        (band, label)
    }

    /// Labels frames that are about to leave. Those without elements stay apart, for a host's
    /// filters know them by their length.
    pub fn label_all<F: Frame>(&self, frames: &mut [F]) {
        if !self.is_labelled.load(Ordering::Acquire) {
            return;
        }
        let is_apart = self.is_apart.load(Ordering::Relaxed);
        for frame in frames {
            let (_, label) = self.of(frame.as_ref());
            if label > 0 {
                set_dscp(frame.as_mut(), label);
                if is_apart || is_bare(frame.as_ref()) {
                    frame.keep_apart(true);
                }
            }
        }
    }

    /// The band of a frame that is about to leave; none of one without elements whose job has a
    /// band: it goes before all.
    #[must_use]
    pub fn band_of(&self, frame: &[u8]) -> Option<u8> {
        let (band, _) = self.of(frame);
        (band == REST || !is_bare(frame)).then_some(band)
    }
}

fn change(marks: &[AtomicU16], job: JobId, mask: u16, bits: u16) -> bool {
    let Some(mark) = marks.get(usize::from(job.0)) else { return false };
    // Only the agent writes, and before it whoever reads the file.
    let before = mark.load(Ordering::Relaxed);
    mark.store(before & !mask | bits, Ordering::Relaxed);
    true
}

fn get(marks: &[AtomicU16], job: JobId) -> u16 {
    marks.get(usize::from(job.0)).map_or(NONE, |mark| mark.load(Ordering::Relaxed))
}

/// Jobs of a box that can have labels and bands, those below this index.
pub const JOBS_MAX: usize = 256;
/// Bits of a DSCP.
const LABEL_MAX: u8 = 63;
/// The band of all that has none.
const REST: u8 = 7;
/// No label, and that band.
const NONE: u16 = (REST as u16) << 8;
/// No label of their own for frames in bulk.
const AS_OTHERS: u8 = 0xff;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{Pool, PoolFrame};

    /// A frame of job 0 over IPv4: a header of Weft's, and so many bytes of elements.
    fn frame(pool: &Pool, elements_len: u16) -> PoolFrame {
        let mut frame = pool.alloc().expect("a buffer");
        let ip_len = 20 + 8 + 32 + elements_len;
        frame.set_len(14 + usize::from(ip_len));
        let bytes = frame.as_mut();
        bytes.fill(0);
        bytes[12..14].copy_from_slice(&[0x08, 0x00]);
        bytes[16..18].copy_from_slice(&ip_len.to_be_bytes());
        (bytes[14], bytes[23]) = (0x45, 17);
        frame
    }

    /// Whether frames without and with elements are kept apart, as they leave.
    fn are_apart(marks: &JobMarks) -> [bool; 2] {
        let pool = Pool::new(2, 256);
        let mut frames = [frame(&pool, 0), frame(&pool, 128)];
        marks.label_all(&mut frames);
        let class = |frame: &PoolFrame| frame.as_ref()[15] >> 2;
        assert!(frames.iter().all(|frame| class(frame) == marks.label(JobId(0))));
        frames.map(|frame| frame.is_apart())
    }

    #[test]
    fn frames_with_a_label_leave_one_by_one_where_the_kernel_orders_them() {
        let marks = JobMarks::default();
        assert_eq!(are_apart(&marks), [false, false], "no label, no band");
        marks.set_label(JobId(0), 19);
        // Filters of a host tell those without elements by their length.
        assert_eq!(are_apart(&marks), [true, false]);
        marks.keep_apart();
        assert_eq!(are_apart(&marks), [true, true]);
        marks.set_label(JobId(0), 0);
        assert_eq!(are_apart(&marks), [false, false], "without a label there is nothing to order");
    }

    #[test]
    fn frames_in_bulk_have_a_label_and_a_band_of_their_own_where_they_are_given_one() {
        let marks = JobMarks::default();
        let pool = Pool::new(2, 1600);
        let seen = |marks: &JobMarks| {
            // IPv4's length is 576, and one more.
            let mut frames = [frame(&pool, 516), frame(&pool, 517)];
            marks.label_all(&mut frames);
            let [small, bulk] = &frames;
            [small, bulk].map(|it| (it.as_ref()[15] >> 2, marks.band_of(it.as_ref()).unwrap()))
        };
        assert!(marks.set_label(JobId(0), 46) && marks.set_band(JobId(0), 0));
        assert_eq!(seen(&marks), [(46, 0), (46, 0)], "as the others");
        assert!(marks.set_bulk_label(JobId(0), 14));
        assert_eq!(seen(&marks), [(46, 0), (14, 7)]);
        marks.set_band_of_label(14, 3);
        marks.set_band_of_label(46, 1);
        assert_eq!(seen(&marks), [(46, 1), (14, 3)]);
        assert!(marks.set_bulk_label(JobId(0), 0), "with what has no label");
        assert_eq!(seen(&marks), [(46, 1), (0, 3)]);
        assert!(!marks.set_bulk_label(JobId(0), 64) && !marks.set_bulk_label(JobId(256), 1));
        let none: Vec<u8> =
            (1..=255).filter(|job| marks.band(JobId(*job)) != 7).map(|_| 0).collect();
        assert!(none.is_empty(), "no other job has changed");
    }

    #[test]
    fn labels_and_bands_do_not_touch_each_other() {
        let marks = JobMarks::default();
        let job = JobId(3);
        assert_eq!((marks.label(job), marks.band(job)), (0, 7));
        assert!(marks.set_label(job, 63) && marks.set_band(job, 0));
        assert_eq!((marks.label(job), marks.band(job)), (63, 0));
        assert!(marks.set_label(job, 0) && marks.set_band(job, 6));
        assert_eq!((marks.label(job), marks.band(job)), (0, 6));
        assert_eq!((marks.label(JobId(2)), marks.band(JobId(2))), (0, 7));
    }

    #[test]
    fn what_is_out_of_range_changes_nothing() {
        let marks = JobMarks::default();
        assert!(!marks.set_label(JobId(0), 64) && !marks.set_band(JobId(0), 8));
        assert!(!marks.set_label(JobId(256), 1) && !marks.set_band(JobId(u16::MAX), 1));
        assert_eq!((marks.label(JobId(0)), marks.band(JobId(u16::MAX))), (0, 7));
    }
}
