//! Whether a push job is paused: by whom, since when, and how long it took to stand still.
//!
//! Invariant: a pause comes to one standstill, which is measured once.

use weft_control::JobState;

use crate::steered::{PauseStatus, Steerer};

/// A job's pauses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pause {
    by: Option<Steerer>,
    /// When the word came; none for one that a former life of the controller was told.
    asked_ns: Option<u64>,
    stands: bool,
    /// Since when its server is away, which the standstill waits for.
    away_since_ns: Option<u64>,
    status: PauseStatus,
}

impl Pause {
    /// As a former life of the controller left it.
    pub(crate) fn restored(by: Option<Steerer>) -> Self {
        Self { by, ..Self::default() }
    }

    /// Who had it pause, while it is paused.
    pub(crate) const fn by(&self) -> Option<Steerer> {
        self.by
    }

    pub(crate) const fn state(&self) -> JobState {
        match (self.by, self.stands) {
            (None, _) => JobState::Running,
            (Some(_), false) => JobState::Pausing,
            (Some(_), true) => JobState::Paused,
        }
    }

    pub(crate) const fn status(&self) -> PauseStatus {
        self.status
    }

    /// The word is given. One of a greater authority takes a pause over.
    pub(crate) fn begin(&mut self, now_ns: u64, by: Steerer) {
        if self.by.is_none() {
            self.asked_ns = Some(now_ns);
            self.stands = false;
        }
        self.by = Some(by);
    }

    /// Nothing of the job moves any more. How long that took; none if it stood before.
    pub(crate) fn stand(&mut self, now_ns: u64) -> Option<Option<u64>> {
        if self.by.is_none() || self.stands {
            return None;
        }
        (self.stands, self.away_since_ns) = (true, None);
        let after_ns = self.asked_ns.take().map(|asked_ns| now_ns.saturating_sub(asked_ns));
        if let Some(after_ns) = after_ns {
            self.status.note(after_ns);
        }
        Some(after_ns)
    }

    /// Something of the job moves that nobody knew of. True if that is news.
    pub(crate) const fn stir(&mut self) -> bool {
        core::mem::replace(&mut self.stands, false)
    }

    /// Whether the job's server is there, while the job does not stand still. How long it has been
    /// away is known then.
    pub(crate) fn note_server(&mut self, now_ns: u64, is_there: bool) {
        let away_ns = self.away_since_ns.unwrap_or(now_ns);
        self.away_since_ns = (!is_there && self.asked_ns.is_some()).then_some(away_ns);
    }

    /// When a word is given up whose standstill waits for a server that is away. One that a former
    /// life was told never is: nobody would hear of it.
    pub(crate) fn given_up_ns(&self) -> Option<u64> {
        let since_ns = self.away_since_ns.filter(|_| self.asked_ns.is_some())?;
        Some(since_ns.saturating_add(AWAY_MAX_NS))
    }

    /// It goes on.
    pub(crate) fn end(&mut self) {
        *self = Self { status: self.status, ..Self::default() };
    }
}

/// How long a pause waits for a server that has no stream to the controller: as long as a stop of
/// an allreduce waits for such a worker.
pub(crate) const AWAY_MAX_NS: u64 = 10_000_000_000;
