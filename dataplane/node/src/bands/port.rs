//! Decides what a node whose own port has queues for bands does with a word about one, as a host's
//! link has it judged. No I/O.

use weft_config::node::FixedBand;
use weft_control::{BandError, Event, REST_BAND};
use weft_io::marks::JobMarks;

use super::jobs::{Asked, Jobs, answer};

/// The bands that jobs have in the node's own port.
#[derive(Debug, Default)]
pub struct PortBands(Jobs);

impl PortBands {
    /// Beside labels that have their bands for good.
    #[must_use]
    pub fn new(fixed: &[FixedBand]) -> Self {
        Self(Jobs::new(fixed))
    }

    /// Gives a job's frames their band, or says why not.
    pub fn set(&mut self, asked: Asked, marks: &JobMarks) -> Event {
        let (next, judged) = self.0.after(&[asked]);
        let mut refused = judged.into_iter().next().flatten();
        let band = asked.band.unwrap_or(REST_BAND);
        if refused.is_none() && !marks.set_band(asked.job, band) {
            refused = Some(BandError::OutOfRange);
        }
        if refused.is_none() {
            self.0 = next;
        }
        answer(&asked, refused)
    }
}

/// What a node that gives nobody a band answers.
#[must_use]
pub const fn none(asked: &Asked) -> Event {
    Event::BandRefused { band: asked.band, error: BandError::NoBands }
}
