//! Figures of memory that is shared with workers, as its port counts them.

use weft_engine::figures::{Figure, FigureKind};
use weft_io::shm::{Refusal, ShmCounts};

/// Each is read when the report is made.
pub(super) const SHM: &[Figure<ShmCounts>] = &[
    Figure {
        kind: FigureKind::Gauge,
        ..figure("links", "Connections, one a worker and lane", ShmCounts::links)
    },
    figure("joined", "Workers let in", ShmCounts::joined),
    figure("ended", "Connections that ended with their worker", ShmCounts::ended),
    figure("broken", "Connections given up for indices that cannot be", ShmCounts::broken),
    figure("ring_full", "Frames lost because a worker's ring was full", ShmCounts::ring_full),
    figure("bad_length", "Frames refused for their length", ShmCounts::bad_length),
    figure("bad_source", "Frames refused for another worker's source", ShmCounts::bad_source),
    figure("held_up", "Looks at which what others passed let nobody in", ShmCounts::held_up),
    figure("refused", "Workers not let in", |counts| {
        Refusal::ALL.into_iter().map(|refusal| counts.refused(refusal)).sum()
    }),
];

const fn figure(
    name: &'static str,
    help: &'static str,
    read: fn(&ShmCounts) -> u64,
) -> Figure<ShmCounts> {
    Figure { name, kind: FigureKind::Counter, help, read }
}
