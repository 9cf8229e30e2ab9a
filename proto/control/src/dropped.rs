//! Why an update is not sent.

use alloc::boxed::Box;
use core::fmt;

use weft_wire::words::word_of;

/// Why an update is not sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DropReason {
    /// Its delay is over the bound already.
    TooOld,
    /// Too many updates have as early a deadline; one had to go.
    DeadlineCluster,
    /// Its deadline would hold up the others too long (the derived drop rule).
    DelaysOthers,
    /// Its path has no bandwidth left, ever.
    NoBandwidth,
    /// The round closed without it (synchronous policies with backup workers).
    RoundClosed,
    /// Its boxes refused its group again and again; the controller's word, no policy's.
    Refused,
    /// Its job has ended; the controller's word, no policy's.
    JobEnded,
    /// An outside policy's words.
    Other(Box<str>),
}

impl DropReason {
    /// Every reason of Weft's own with its word.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::TooOld, "too_old"),
        (Self::DeadlineCluster, "deadline_cluster"),
        (Self::DelaysOthers, "delays_others"),
        (Self::NoBandwidth, "no_bandwidth"),
        (Self::RoundClosed, "round_closed"),
        (Self::Refused, "refused"),
        (Self::JobEnded, "job_ended"),
    ];

    /// As in the JSON.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Other(words) => words,
            reason => word_of(Self::ALL, reason),
        }
    }

    /// Reads what a policy says. It cannot say what is the controller's to say.
    #[must_use]
    pub fn of_policy(words: &str) -> Self {
        let of_policies = Self::ALL.iter().map(|(reason, _)| reason);
        of_policies
            .filter(|reason| !matches!(reason, Self::Refused | Self::JobEnded))
            .find(|reason| reason.as_str() == words)
            .cloned()
            .unwrap_or_else(|| Self::Other(words.into()))
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
