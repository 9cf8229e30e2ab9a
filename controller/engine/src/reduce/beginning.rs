//! What is known of a cohort's beginning. What comes of it is in `begin`.

use alloc::string::String;

/// How a cohort's beginning stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Beginning {
    /// All its workers have begun its first round, as this life of the controller saw.
    pub(super) is_seen: bool,
    /// As this life or one before saw.
    pub(super) is_known: bool,
    /// Since when it is waited for.
    pub(super) since_ns: Option<u64>,
    /// It took too long: why.
    pub(super) overdue: Option<String>,
}

impl Beginning {
    /// Of a cohort that a former life of the controller knew.
    pub(super) fn restored(has_begun: bool) -> Self {
        Self { is_known: has_begun, ..Self::default() }
    }
}
