//! Why something is not done on an interface, for the controller and for the log.

use weft_control::BandError;

/// Why something is not done, and what the log says of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::bands) struct Problem {
    /// The reason.
    pub(in crate::bands) error: BandError,
    /// What is in the way, for people.
    pub(in crate::bands) words: String,
    /// Nothing of Weft's is there.
    pub(in crate::bands) is_bare: bool,
}

impl Problem {
    pub(in crate::bands) fn new(error: BandError, words: impl Into<String>) -> Self {
        Self { error, words: words.into(), is_bare: error == BandError::NoDevice }
    }

    /// One that leaves no place for anything of Weft's.
    pub(super) fn bare(error: BandError, words: impl Into<String>) -> Self {
        Self { is_bare: true, ..Self::new(error, words) }
    }
}
