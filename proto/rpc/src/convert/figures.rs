//! What a box counts: a part of its telemetry.

use weft_control::figures::{BandFigures, BoxFigures, DropReason, QUEUES};

use super::{Invalid, code, invalid};
use crate::v1;

/// Writes figures into telemetry.
pub fn figures_to_proto(figures: &BoxFigures, telemetry: &mut v1::Telemetry) {
    (telemetry.rx_dropped, telemetry.tx_dropped) = (figures.rx_dropped, figures.tx_dropped);
    let drops = DropReason::ALL.iter().zip(figures.drops).filter(|(_, frames)| *frames > 0);
    let known = drops.map(|((reason, _), frames)| v1::FrameDrops {
        reason: v1::FrameDrop::from(*reason).into(),
        frames,
    });
    let other = (figures.drops_other > 0).then_some(v1::FrameDrops {
        reason: v1::FrameDrop::Unspecified.into(),
        frames: figures.drops_other,
    });
    telemetry.drops = known.chain(other).collect();
    let bands = figures.bands.iter().flat_map(|bands| (0..).zip(bands));
    telemetry.bands = bands.map(|(queue, band)| band_to_proto(queue, band)).collect();
}

/// Writes what became of the frames of a band.
#[must_use]
pub const fn band_to_proto(queue: u32, band: &BandFigures) -> v1::BandFrames {
    v1::BandFrames {
        queue,
        sent: band.sent,
        sent_bytes: band.sent_bytes,
        full: band.full,
        aged: band.aged,
        wait_max_ns: band.wait_max_ns,
        waiting: band.waiting,
        waiting_bytes: band.waiting_bytes,
        oldest_ns: band.oldest_ns,
    }
}

/// Reads the figures of telemetry. What a box of a later version counts and this one does not know
/// is counted as such.
///
/// # Errors
/// A list that is longer than there are reasons or queues, or has one of them twice; a queue that
/// is none; not all queues.
pub fn figures(telemetry: &v1::Telemetry) -> Result<BoxFigures, Invalid> {
    let mut figures = BoxFigures {
        rx_dropped: telemetry.rx_dropped,
        tx_dropped: telemetry.tx_dropped,
        ..BoxFigures::default()
    };
    if telemetry.drops.len() > DROPS_MAX {
        return Err(invalid("drops", "must be at most 256"));
    }
    let mut seen = [false; DropReason::COUNT];
    for row in &telemetry.drops {
        match code::<DropReason>(row.reason) {
            Ok(reason) if std::mem::replace(&mut seen[reason as usize], true) => {
                return Err(invalid("drops", "must have each reason at most once"));
            }
            Ok(reason) => figures.drops[reason as usize] = row.frames,
            Err(_) => figures.drops_other = figures.drops_other.saturating_add(row.frames),
        }
    }
    if telemetry.bands.is_empty() {
        return Ok(figures);
    }
    let is_in_order = (0..).zip(&telemetry.bands).all(|(queue, band)| band.queue == queue);
    if telemetry.bands.len() != QUEUES.len() || !is_in_order {
        return Err(invalid("bands", "must be one for each queue, 0 to 8 in order"));
    }
    figures.bands = Some(std::array::from_fn(|queue| band(&telemetry.bands[queue])));
    Ok(figures)
}

const fn band(band: &v1::BandFrames) -> BandFigures {
    BandFigures {
        sent: band.sent,
        sent_bytes: band.sent_bytes,
        full: band.full,
        aged: band.aged,
        wait_max_ns: band.wait_max_ns,
        waiting: band.waiting,
        waiting_bytes: band.waiting_bytes,
        oldest_ns: band.oldest_ns,
    }
}

/// Reasons in one message: more than this version knows.
const DROPS_MAX: usize = 256;
const _: () = assert!(DropReason::COUNT < DROPS_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> BoxFigures {
        let band = |queue: u64| BandFigures {
            sent: queue,
            sent_bytes: 10 + queue,
            full: 20 + queue,
            aged: 30 + queue,
            wait_max_ns: 40 + queue,
            waiting: 50 + queue,
            waiting_bytes: 60 + queue,
            oldest_ns: 70 + queue,
        };
        BoxFigures {
            drops: std::array::from_fn(|at| at as u64),
            drops_other: 3,
            rx_dropped: 1,
            tx_dropped: 2,
            bands: Some(std::array::from_fn(|queue| band(queue as u64))),
        }
    }

    fn told(figures: &BoxFigures) -> v1::Telemetry {
        let mut telemetry = v1::Telemetry::default();
        figures_to_proto(figures, &mut telemetry);
        telemetry
    }

    #[test]
    fn figures_come_back() {
        for sent in [sample(), BoxFigures::default(), BoxFigures { bands: None, ..sample() }] {
            assert_eq!(figures(&told(&sent)), Ok(sent));
        }
        // Reasons that count nothing are not sent: 30 of 31, and the other ones.
        assert_eq!(told(&sample()).drops.len(), DropReason::COUNT - 1 + 1);
    }

    #[test]
    fn a_reason_has_the_same_name_in_the_interface_and_in_metrics() {
        for (reason, name) in DropReason::ALL {
            let there = v1::FrameDrop::from(*reason).as_str_name();
            assert_eq!(there, format!("FRAME_DROP_{}", name.to_uppercase()));
        }
    }

    #[test]
    fn what_a_later_version_counts_is_counted_and_lists_are_bounded() {
        let mut telemetry = told(&sample());
        let row = |reason, frames| v1::FrameDrops { reason, frames };
        telemetry.drops.push(row(9999, 5));
        telemetry.drops.push(row(-1, u64::MAX));
        assert_eq!(figures(&telemetry).map(|read| read.drops_other), Ok(u64::MAX));
        let bad = |field: &str, change: fn(&mut v1::Telemetry)| {
            let mut telemetry = told(&sample());
            change(&mut telemetry);
            assert_eq!(figures(&telemetry).map_err(|invalid| invalid.field), Err(field));
        };
        bad("drops", |it| it.drops.push(it.drops[0]));
        bad("drops", |it| it.drops = vec![v1::FrameDrops { reason: 999, frames: 1 }; 257]);
        bad("bands", |it| it.bands.truncate(8));
        bad("bands", |it| it.bands.push(it.bands[8]));
        bad("bands", |it| it.bands[8].queue = 7);
        bad("bands", |it| it.bands[0].queue = u32::MAX);
        bad("bands", |it| it.bands = vec![it.bands[0]; 100_000]);
    }
}
