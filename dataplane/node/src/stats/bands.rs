//! Bands of a node's own port, or of its host's link: what of each band was sent, was lost, and
//! waits. What the kernel orders it counts for itself; it says nothing of how long a frame waited.

use std::fmt::{self, Write};

use serde::Serialize;
use weft_control::figures as names;
use weft_engine::figures::{Figure, FigureKind};
use weft_io::bands::{BARE, BandCounts, QUEUES};
use weft_process::metrics::label;

use super::LaneSnapshot;
use super::figures::{self, Figures, table};

/// The frames of one band.
#[derive(Clone, Debug, Serialize)]
pub struct BandReport {
    /// `0` to `6`, of which 0 goes first; `rest`; `bare`: frames without elements, which wait for
    /// no band.
    pub band: &'static str,
    /// What became of them.
    #[serde(flatten)]
    pub figures: Figures,
}

/// The bands of all lanes whose ports have queues for them.
pub(super) fn reports(lanes: &[LaneSnapshot]) -> Vec<BandReport> {
    let queues: Vec<&[BandCounts; QUEUES]> =
        lanes.iter().filter_map(|lane| lane.bands.as_ref()).collect();
    if queues.is_empty() {
        return Vec::new();
    }
    let report = |(at, band)| {
        let counts = || queues.iter().map(move |queues| &queues[at]);
        BandReport { band, figures: Figures::sum(COUNTERS, counts()).and(GAUGES, counts()) }
    };
    names::QUEUES.into_iter().enumerate().map(report).collect()
}

/// What keeping the bands of the host's link took; none where the node does not.
pub(super) fn of_host(lanes: &[LaneSnapshot]) -> Option<Figures> {
    let repairs = lanes.iter().find_map(|lane| lane.band_repairs)?;
    Some(Figures::sum(HOST_BANDS, std::iter::once(&repairs)))
}

/// Writes what is not 0 for people.
pub(super) fn write_text(out: &mut String, bands: &[BandReport]) -> fmt::Result {
    for band in bands.iter().filter(|band| band.figures.any()) {
        writeln!(out, "  band {}:", band.band)?;
        figures::write_text(out, &band.figures)?;
    }
    Ok(())
}

/// Writes every figure of every band.
pub(super) fn write_metrics(out: &mut String, bands: &[BandReport]) -> fmt::Result {
    let things: Vec<_> =
        bands.iter().map(|it| (format!("{{band={}}}", label(it.band)), &it.figures)).collect();
    figures::write_metrics(out, "band", &things)
}

/// The port's queues in the order of their names.
const _: () = assert!(names::QUEUES.len() == QUEUES && BARE == QUEUES - 1);

const COUNTERS: &[Figure<BandCounts>] = table![BandCounts:
    sent "Frames of the band that left",
    sent_bytes "Bytes of the band that left",
    full "Frames lost because their band's queue was full",
    aged "Frames that left before better bands because they had waited for the age limit",
];

const HOST_BANDS: &[Figure<u64>] = &[Figure {
    name: "repairs",
    kind: FigureKind::Counter,
    help: "Times that bands on the host's link were installed again after somebody removed them",
    read: |repairs| *repairs,
}];

const GAUGES: &[Figure<BandCounts>] = &[
    gauge("wait_max_ns", "The longest that a frame waited", |band| band.wait_max_ns),
    gauge("waiting", "Frames that wait", |band| band.waiting),
    gauge("waiting_bytes", "Bytes that wait", |band| band.waiting_bytes),
    gauge("oldest_ns", "How long the oldest frame has waited", |band| band.oldest_ns),
];

const fn gauge(
    name: &'static str,
    help: &'static str,
    read: fn(&BandCounts) -> u64,
) -> Figure<BandCounts> {
    Figure { name, kind: FigureKind::Gauge, help, read }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_in_metrics() {
        let counts = BandCounts { wait_max_ns: 1_500_000_000, sent: 3, ..BandCounts::default() };
        let counts = || std::iter::once(&counts);
        let figures = Figures::sum(COUNTERS, counts()).and(GAUGES, counts());
        let mut page = String::new();
        write_metrics(&mut page, &[BandReport { band: "0", figures }]).unwrap();
        assert!(page.contains("weft_band_wait_max_seconds{band=\"0\"} 1.5\n"), "{page}");
        assert!(page.contains("weft_band_sent_total{band=\"0\"} 3\n"), "{page}");
        assert!(!page.contains("_ns"), "{page}");
    }
}
