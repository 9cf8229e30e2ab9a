//! Decides which bands jobs have after a controller has asked for others: what is refused, and what
//! each is answered. No I/O.
//!
//! Invariant: of all that was asked at once, what makes sense is done as one change or not at all,
//! and each is answered once.

use std::collections::BTreeMap;

use weft_config::node::FixedBand;
use weft_control::{BandError, Event};
use weft_wire::JobId;

use super::tree::{Wanted, is_band, is_label};

/// What a controller asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Asked {
    /// Of which job.
    pub job: JobId,
    /// The DSCP of its frames.
    pub label: u8,
    /// `None`: with the rest.
    pub band: Option<u8>,
}

/// The jobs that have bands, and the labels that have theirs for good.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Jobs {
    jobs: BTreeMap<JobId, (u8, u8)>,
    fixed: Wanted,
}

impl Jobs {
    /// No jobs yet; these labels have their bands whatever anybody asks for.
    #[must_use]
    pub(super) fn new(fixed: &[FixedBand]) -> Self {
        let fixed = fixed.iter().map(|fixed| (fixed.dscp, fixed.band)).collect();
        Self { jobs: BTreeMap::new(), fixed }
    }

    /// Their bands by label.
    #[must_use]
    pub(super) fn wanted(&self) -> Wanted {
        self.fixed
            .iter()
            .map(|(label, band)| (*label, *band))
            .chain(self.jobs.values().copied())
            .collect()
    }

    /// The jobs and their bands.
    pub(super) fn bands(&self) -> impl Iterator<Item = (JobId, u8)> {
        self.jobs.iter().map(|(job, (_, band))| (*job, *band))
    }

    /// Whether no label has a band.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.fixed.is_empty()
    }

    /// The jobs without those whose bands are to be taken away.
    #[must_use]
    pub(super) fn without(&self, asked: &[Asked]) -> Self {
        let mut next = self.clone();
        let gone = asked.iter().filter(|asked| asked.band.is_none());
        for asked in gone {
            next.jobs.remove(&asked.job);
        }
        next
    }

    /// The jobs after these changes, and for each change what is wrong with it.
    #[must_use]
    pub(super) fn after(&self, asked: &[Asked]) -> (Self, Vec<Option<BandError>>) {
        let mut next = self.clone();
        let judged = asked.iter().map(|asked| next.change(asked).err()).collect();
        (next, judged)
    }

    fn change(&mut self, asked: &Asked) -> Result<(), BandError> {
        let Asked { job, label, band } = *asked;
        let Some(band) = band else {
            self.jobs.remove(&job);
            return Ok(());
        };
        if !(is_band(band) && is_label(label)) {
            return Err(BandError::OutOfRange);
        }
        let is_taken = |(other, (taken, _)): (&JobId, &(u8, u8))| *other != job && *taken == label;
        if self.fixed.contains_key(&label) || self.jobs.iter().any(is_taken) {
            return Err(BandError::LabelTaken);
        }
        if self.jobs.len() >= JOBS_MAX && !self.jobs.contains_key(&job) {
            return Err(BandError::OutOfRange);
        }
        self.jobs.insert(job, (label, band));
        Ok(())
    }
}

/// What a change is answered.
#[must_use]
pub(super) fn answer(asked: &Asked, error: Option<BandError>) -> Event {
    let band = asked.band;
    error.map_or(Event::BandSet { band }, |error| Event::BandRefused { band, error })
}

/// Jobs that may have bands: labels end earlier.
const JOBS_MAX: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(job: u16, label: u8, band: Option<u8>) -> Asked {
        Asked { job: JobId(job), label, band }
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_the_rest_is_done() {
        let ask = [
            asked(0, 3, Some(0)),
            asked(1, 7, Some(7)),
            asked(2, 0, Some(1)),
            asked(3, 64, Some(1)),
            asked(4, 3, Some(1)),
            asked(5, 11, Some(6)),
        ];
        let (next, judged) = Jobs::default().after(&ask);
        let (range, taken) = (Some(BandError::OutOfRange), Some(BandError::LabelTaken));
        assert_eq!(judged, [None, range, range, range, taken, None]);
        assert_eq!(next.wanted(), Wanted::from([(3, 0), (11, 6)]));
    }

    #[test]
    fn a_label_with_a_band_for_good_is_no_jobs_and_stays() {
        let jobs = Jobs::new(&[FixedBand { dscp: 46, band: 0 }]);
        assert!(!jobs.is_empty() && Jobs::new(&[]).is_empty());
        let (next, judged) = jobs.after(&[asked(0, 46, Some(3)), asked(1, 3, Some(1))]);
        assert_eq!(judged, [Some(BandError::LabelTaken), None]);
        assert_eq!(next.wanted(), Wanted::from([(46, 0), (3, 1)]));
        let (left, judged) = next.after(&[asked(0, 46, None), asked(1, 3, None)]);
        assert_eq!((judged, left.wanted()), (vec![None, None], Wanted::from([(46, 0)])));
        assert_eq!(next.without(&[asked(1, 3, None)]).wanted(), Wanted::from([(46, 0)]));
        assert_eq!(next.bands().collect::<Vec<_>>(), [(JobId(1), 1)], "nobody is told of it");
    }

    #[test]
    fn what_is_to_be_taken_away_is_gone_where_nothing_is() {
        let (two, _) = Jobs::default().after(&[asked(0, 3, Some(0)), asked(1, 7, Some(1))]);
        let left = two.without(&[asked(0, 3, None), asked(1, 7, Some(4)), asked(9, 11, None)]);
        assert_eq!(left.bands().collect::<Vec<_>>(), [(JobId(1), 1)], "nothing is given");
        assert!(!left.is_empty() && left.without(&[asked(1, 7, None)]).is_empty());
    }

    #[test]
    fn a_job_may_change_its_label_and_give_it_back() {
        let (one, _) = Jobs::default().after(&[asked(0, 3, Some(0))]);
        let (two, judged) = one.after(&[
            asked(0, 7, Some(1)),
            asked(1, 3, Some(0)),
            asked(0, 0, None),
            asked(9, 0, None),
        ]);
        assert_eq!(judged, [None; 4]);
        assert_eq!(two.wanted(), Wanted::from([(3, 0)]));
    }
}
