//! The arrivals of the train that a granted transfer begins with (SPEC#transfer-trains).
//!
//! The first chunks of a transfer leave back to back, so the slowest link of the path spaces them.
//! A [`Trains`] notes when they arrive and what else arrived meanwhile; what that says about a link
//! is the controller's business. One for all jobs of a port, for all share its link.
//!
//! Invariants: no allocation after [`Trains::new`]; at most [`TRAINS_MAX`] trains at a time, others
//! go unrecorded; a train whose sender had to wait, or that lost more than it may, is not reported.
//! O(1) per chunk of a train, one comparison per other chunk.

use alloc::vec::Vec;

use arrayvec::ArrayVec;
use weft_control::{TRAIN_CHUNKS_MAX, Train, TrainArrival};
use weft_wire::{GroupId, JobId, Nanos, Rank};

/// Trains recorded at a time.
pub const TRAINS_MAX: usize = 4;
/// Fewer arrivals show nothing.
pub const TRAIN_ARRIVALS_MIN: usize = 8;
/// A train of which nothing came for so long is over (SPEC#probe-trains).
const SILENCE_NS: u64 = 50_000_000;

/// Records the trains that arrive at a port.
#[derive(Debug)]
pub struct Trains {
    /// When the port got the frame that is handled next, where it can tell.
    stamp_ns: Option<u64>,
    now: TrainArrival,
    recorders: Vec<Recorder>,
    /// Trains that found no recorder, were too short, or had to wait.
    lost: u64,
}

#[derive(Debug)]
struct Recorder {
    train: Train,
    /// Chunks that it will have.
    wanted: u16,
    /// Chunks that came otherwise than in their turn.
    missed: u16,
    is_over: bool,
}

impl Default for Trains {
    fn default() -> Self {
        Self::new()
    }
}

impl Trains {
    /// Takes all memory that it will use.
    #[must_use]
    pub fn new() -> Self {
        Self {
            stamp_ns: None,
            now: TrainArrival { at_ns: 0, rx_bytes: 0 },
            recorders: Vec::with_capacity(TRAINS_MAX),
            lost: 0,
        }
    }

    /// The frame that is handled next arrived at `at_ns` by the port's own clock, which is better
    /// than the time of its burst.
    #[inline]
    pub fn note_arrival(&mut self, at_ns: u64) {
        self.stamp_ns = Some(at_ns);
    }

    /// A frame of the port's jobs has come.
    #[inline]
    pub(crate) fn on_frame(&mut self, now: Nanos, frame_len: usize) {
        self.now.at_ns = self.stamp_ns.take().unwrap_or(now.0);
        self.now.rx_bytes += frame_len as u64;
    }

    /// A chunk of a train of `wanted` chunks was taken. `is_repeat`: it did not leave in its turn.
    pub(crate) fn on_chunk(
        &mut self,
        (job, group, rank): (JobId, GroupId, Option<Rank>),
        wanted: u16,
        frame_len: u64,
        is_repeat: bool,
    ) {
        let now = self.now;
        let is_it = |r: &Recorder| {
            (r.train.job, r.train.group, r.train.rank) == (job, group, rank) && !r.is_over
        };
        let place = match self.recorders.iter().position(is_it) {
            Some(place) => place,
            // What begins with a repeat is the end of a train that was given up.
            None if is_repeat => return,
            None => {
                let Some(place) = self.free_place(now.at_ns) else {
                    self.lost += 1;
                    return;
                };
                let frame_len = u32::try_from(frame_len).unwrap_or(u32::MAX);
                let arrivals = ArrayVec::new_const();
                self.recorders[place] = Recorder {
                    train: Train { job, group, rank, frame_len, arrivals },
                    wanted: wanted.min(TRAIN_CHUNKS_MAX),
                    missed: 0,
                    is_over: false,
                };
                place
            }
        };
        let recorder = &mut self.recorders[place];
        if is_repeat || recorder.train.arrivals.try_push(now).is_err() {
            recorder.missed += 1;
        }
        let seen = recorder.train.arrivals.len() + usize::from(recorder.missed);
        if seen < usize::from(recorder.wanted) {
            return;
        }
        if recorder.train.arrivals.len() < TRAIN_ARRIVALS_MIN {
            self.recorders.swap_remove(place);
            self.lost += 1;
        } else {
            recorder.is_over = true;
        }
    }

    /// The sender of a group's sum had nothing to send: its spacing is not the network's.
    pub(crate) fn spoil(&mut self, job: JobId, group: GroupId) {
        let before = self.recorders.len();
        self.recorders.retain(|recorder| {
            let of_it = (recorder.train.job, recorder.train.group) == (job, group);
            recorder.is_over || !of_it || recorder.train.rank.is_some()
        });
        self.lost += (before - self.recorders.len()) as u64;
    }

    /// The job has gone: what has come of its trains says nothing of a later one's.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.recorders.retain(|recorder| recorder.is_over || recorder.train.job != job);
    }

    /// A place for a new train: a free one, else that of a train that nobody took, or that fell
    /// silent.
    fn free_place(&mut self, now_ns: u64) -> Option<usize> {
        if self.recorders.len() < TRAINS_MAX {
            self.recorders.push(Recorder::EMPTY);
            return Some(self.recorders.len() - 1);
        }
        let is_done = |recorder: &Recorder| {
            let last_ns = recorder.train.arrivals.last().map_or(0, |last| last.at_ns);
            recorder.is_over || now_ns.saturating_sub(last_ns) > SILENCE_NS
        };
        let place = self.recorders.iter().position(is_done)?;
        self.lost += 1;
        Some(place)
    }

    /// The next train that has arrived.
    pub fn poll(&mut self) -> Option<Train> {
        let place = self.recorders.iter().position(|recorder| recorder.is_over)?;
        Some(self.recorders.swap_remove(place).train)
    }

    /// Trains that were begun and not reported.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Recorder {
    const EMPTY: Self = Self {
        train: Train {
            job: JobId(0),
            group: GroupId(0),
            rank: None,
            frame_len: 0,
            arrivals: ArrayVec::new_const(),
        },
        wanted: 0,
        missed: 0,
        is_over: false,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId(3);
    const WANTED: u16 = 10;

    fn id(row: u16) -> (JobId, GroupId, Option<Rank>) {
        (JOB, GroupId::new(row, 1), Rank::new(0))
    }

    fn feed(trains: &mut Trains, row: u16, at_ns: u64, is_repeat: bool) {
        trains.on_frame(Nanos(at_ns), 100);
        trains.on_chunk(id(row), WANTED, 100, is_repeat);
    }

    #[test]
    fn a_train_is_told_once_when_its_last_chunk_has_come() {
        let mut trains = Trains::new();
        for chunk in 0..9 {
            feed(&mut trains, 1, 1000 + chunk, false);
            // Others' frames count among what the port got.
            trains.on_frame(Nanos(0), 50);
            assert_eq!(trains.poll(), None);
        }
        // The port's stamp goes before the time of the burst, for this one frame.
        trains.note_arrival(1009);
        feed(&mut trains, 1, 77_000, false);
        let train = trains.poll().expect("ten chunks");
        assert_eq!((train.group, train.frame_len), (GroupId::new(1, 1), 100));
        let times: Vec<u64> = train.arrivals.iter().map(|arrival| arrival.at_ns).collect();
        assert_eq!(times, (1000..1010).collect::<Vec<u64>>());
        assert_eq!(train.arrivals[9].rx_bytes - train.arrivals[0].rx_bytes, 9 * 150);
        assert_eq!((trains.poll(), trains.lost()), (None, 0));
    }

    #[test]
    fn repeats_fill_a_train_and_show_nothing() {
        let mut trains = Trains::new();
        for chunk in 0..8 {
            feed(&mut trains, 1, 1000 + chunk, false);
        }
        feed(&mut trains, 1, 5_000_000, true);
        assert_eq!(trains.poll(), None);
        feed(&mut trains, 1, 6_000_000, true);
        let train = trains.poll().expect("eight in their turn are enough");
        assert_eq!(train.arrivals.len(), 8);
        for chunk in 0..u64::from(WANTED) {
            feed(&mut trains, 2, 7_000_000 + chunk, chunk >= 7);
        }
        assert_eq!((trains.poll(), trains.lost()), (None, 1), "seven are not");
        feed(&mut trains, 2, 8_000_000, true);
        assert!(trains.recorders.is_empty(), "a repeat begins no train");
    }

    #[test]
    fn a_sum_that_waited_for_its_members_is_no_sample() {
        let mut trains = Trains::new();
        let sum = (JOB, GroupId::new(1, 1), None);
        trains.on_frame(Nanos(1), 100);
        trains.on_chunk(sum, WANTED, 100, false);
        feed(&mut trains, 1, 1, false);
        trains.spoil(JOB, GroupId::new(1, 1));
        assert_eq!((trains.recorders.len(), trains.lost()), (1, 1), "the member's goes on");
    }

    #[test]
    fn trains_are_bounded_and_silent_ones_give_way() {
        let mut trains = Trains::new();
        for row in 0..4 {
            feed(&mut trains, row, 1000, false);
        }
        feed(&mut trains, 9, 2000, false);
        assert_eq!(trains.lost(), 1);
        feed(&mut trains, 9, 1000 + SILENCE_NS + 1, false);
        assert_eq!((trains.recorders.len(), trains.lost()), (4, 2));
        assert_eq!(trains.recorders[0].train.group, GroupId::new(9, 1));
    }
}
