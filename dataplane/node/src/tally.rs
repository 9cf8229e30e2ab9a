//! What a lane counts, where the controller's agent reads it: frames refused by reason, lost at the
//! port, and by band. Of bands that the kernel has, the thread that applies them writes one too.
//!
//! A lane writes its own figures now and then, and waits for nobody; whoever reads adds up the
//! lanes. Each figure is whole by itself, and those of one moment may be read with others of the
//! next: they only grow, or say what waits.

use std::array;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weft_control::figures::{BandFigures, BoxFigures, DropReason, QUEUES};
use weft_engine::drops::DropCounters;
use weft_io::Port;
use weft_io::bands::{BandCounts, QUEUES as PORT_QUEUES};
use weft_lane::{LaneEngine, LanePort, RoleLane};
use weft_wire::Nanos;

use crate::stats::EngineSnapshot;

/// The figures of one lane.
#[derive(Debug)]
pub(crate) struct Tally {
    drops: [AtomicU64; DropReason::COUNT],
    rx_dropped: AtomicU64,
    tx_dropped: AtomicU64,
    /// The port has queues for bands.
    is_banded: AtomicBool,
    bands: [[AtomicU64; BAND_FIGURES]; QUEUES.len()],
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            drops: array::from_fn(|_| AtomicU64::new(0)),
            rx_dropped: AtomicU64::new(0),
            tx_dropped: AtomicU64::new(0),
            is_banded: AtomicBool::new(false),
            bands: array::from_fn(|_| array::from_fn(|_| AtomicU64::new(0))),
        }
    }
}

impl Tally {
    /// Writes a lane's figures. Only the lane calls it.
    pub(crate) fn note<P: Port, E: LaneEngine + EngineSnapshot>(
        &self,
        lane: &RoleLane<LanePort<P>, E>,
    ) {
        let (port, breaths) = (lane.port().stats(), lane.stats());
        let lost_between = lane.port().port().steer_counts().ring_full;
        self.note_drops(&lane.engine().drops());
        put(&self.rx_dropped, port.rx_missed + port.rx_errors + port.rx_nombuf + lost_between);
        put(&self.tx_dropped, port.tx_errors + breaths.tx_dropped + breaths.tx_nombuf);
        if let Some(bands) = lane.port().port().inner().band_counts() {
            self.note_bands(&bands);
        }
    }

    fn note_drops(&self, drops: &DropCounters) {
        drops.iter().zip(&self.drops).for_each(|((_, count), to)| put(to, count));
    }

    /// Writes the figures of bands. Only one thread calls it.
    pub(crate) fn note_bands(&self, bands: &[BandCounts; PORT_QUEUES]) {
        for (band, to) in bands.iter().zip(&self.bands) {
            to.iter().zip(figures_of(band)).for_each(|(to, figure)| put(to, figure));
        }
        self.is_banded.store(true, Ordering::Relaxed);
    }

    /// Reads the figures of bands; none were written where there are none.
    pub(crate) fn bands(&self) -> Option<[BandCounts; PORT_QUEUES]> {
        let band = |queue: usize| {
            let [sent, sent_bytes, full, aged, wait_max_ns, waiting, waiting_bytes, oldest_ns] =
                array::from_fn(|at| get(&self.bands[queue][at]));
            BandCounts {
                sent,
                sent_bytes,
                full,
                aged,
                wait_max_ns,
                waiting,
                waiting_bytes,
                oldest_ns,
            }
        };
        self.is_banded.load(Ordering::Relaxed).then(|| array::from_fn(band))
    }

    /// Reads a lane's figures.
    pub(crate) fn read(&self) -> BoxFigures {
        BoxFigures {
            drops: array::from_fn(|at| get(&self.drops[at])),
            drops_other: 0,
            rx_dropped: get(&self.rx_dropped),
            tx_dropped: get(&self.tx_dropped),
            bands: self.bands().map(|bands| bands.map(told)),
        }
    }
}

/// As controllers are told.
const fn told(band: BandCounts) -> BandFigures {
    let BandCounts { sent, sent_bytes, full, aged, wait_max_ns, waiting, waiting_bytes, oldest_ns } =
        band;
    BandFigures { sent, sent_bytes, full, aged, wait_max_ns, waiting, waiting_bytes, oldest_ns }
}

const fn figures_of(band: &BandCounts) -> [u64; BAND_FIGURES] {
    let BandCounts { sent, sent_bytes, full, aged, wait_max_ns, waiting, waiting_bytes, oldest_ns } =
        *band;
    [sent, sent_bytes, full, aged, wait_max_ns, waiting, waiting_bytes, oldest_ns]
}

fn put(to: &AtomicU64, value: u64) {
    to.store(value, Ordering::Relaxed);
}

fn get(from: &AtomicU64) -> u64 {
    from.load(Ordering::Relaxed)
}

/// How often a lane writes its figures, for somebody who asks for them as often as this.
pub(crate) const PERIOD: Nanos = Nanos(100_000_000);
const BAND_FIGURES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_lane_notes_is_read_figure_by_figure() {
        let tally = Tally::default();
        assert_eq!(tally.read(), BoxFigures::default());
        let mut drops = DropCounters::default();
        for (at, (reason, _)) in (1..).zip(DropReason::ALL) {
            drops.count_many(*reason, at);
        }
        tally.note_drops(&drops);
        let bands = array::from_fn(|queue| {
            let at = 100 * queue as u64;
            BandCounts {
                sent: at,
                sent_bytes: at + 1,
                full: at + 2,
                aged: at + 3,
                wait_max_ns: at + 4,
                waiting: at + 5,
                waiting_bytes: at + 6,
                oldest_ns: at + 7,
            }
        });
        tally.note_bands(&bands);
        let read = tally.read();
        assert_eq!(read.drops, array::from_fn(|at| at as u64 + 1));
        let expected = BandFigures {
            sent: 800,
            sent_bytes: 801,
            full: 802,
            aged: 803,
            wait_max_ns: 804,
            waiting: 805,
            waiting_bytes: 806,
            oldest_ns: 807,
        };
        assert_eq!(read.bands.expect("it has bands")[8], expected);
    }
}
