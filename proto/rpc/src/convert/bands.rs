//! Commands about bands that fit no box: they are answered all the same.

use super::{Invalid, invalid};
use crate::v1;

/// Reads a band; whether a job may have it is the box's to say.
pub(super) fn band(band: u32) -> Result<u8, Invalid> {
    u8::try_from(band).map_err(|_| invalid("band", "must be at most 255"))
}

/// What a command about bands is answered that cannot be read; none of any other command.
#[must_use]
pub fn answer_to_bad_bands(command: &v1::Command) -> Option<v1::Event> {
    let Some(v1::command::Command::SetBands(set)) = &command.command else { return None };
    let error = v1::BandError::OutOfRange.into();
    let refused = v1::BandRefused { band: set.band, error };
    Some(v1::Event { job: set.job, event: Some(v1::event::Event::BandRefused(refused)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::command;

    #[test]
    fn bands_of_no_job_and_bands_that_are_none_are_answered_with_what_was_asked() {
        let set = |job, band| v1::SetBands { job, label: 3, band };
        for (asked, field) in [
            (set(u32::MAX, Some(0)), "job"),
            (set(65_536, None), "job"),
            (set(0, Some(256)), "band"),
            (set(0, Some(u32::MAX)), "band"),
        ] {
            let word = v1::Command { command: Some(v1::command::Command::SetBands(asked)) };
            assert_eq!(command(&word).map_err(|invalid| invalid.field), Err(field), "{asked:?}");
            let answer = answer_to_bad_bands(&word).expect("an answer");
            let Some(v1::event::Event::BandRefused(refused)) = answer.event else {
                panic!("{answer:?}");
            };
            assert_eq!((answer.job, refused.band), (asked.job, asked.band));
            assert_eq!(refused.error(), v1::BandError::OutOfRange);
        }
        let skip = v1::command::Command::Skip(v1::Skip { job: u32::MAX, below: 0 });
        assert_eq!(answer_to_bad_bands(&v1::Command { command: Some(skip) }), None);
    }
}
