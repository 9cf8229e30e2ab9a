//! What goes into an estimator and what comes out of it.

use super::PLANNED_SHARE;
use crate::net::topology::LinkId;

/// How much a link has to give.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Capacity less background, at least a tenth of the capacity.
    pub available_bytes_per_sec: f64,
    /// What the link carries when saturated, Ethernet headers included.
    pub capacity_bytes_per_sec: f64,
    /// What others put on it.
    pub background_bytes_per_sec: f64,
    /// 0 to 1, from the number, age and spread of the samples.
    pub confidence: f64,
    /// Whether the capacity was seen to limit, or only to be no less.
    pub bound: Bound,
}

impl Estimate {
    /// What a plan may use.
    #[must_use]
    pub fn plannable_bytes_per_sec(&self) -> f64 {
        self.available_bytes_per_sec * PLANNED_SHARE
    }
}

/// What a capacity is worth.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bound {
    /// The link was the slowest of a path.
    Measured,
    /// Something else was slower whenever it was tried.
    AtLeast,
    /// It once carried its line rate, and no longer does, by whatever path.
    Fallen,
}

/// Why a train was sent, which decides what it shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Context {
    /// As fast as the sender can: the link limits.
    Probe,
    /// The first chunks of a granted transfer, which no pacer holds back: the link limits, and the
    /// readings are the receiving box's own count, exact, of Weft's bytes alone.
    Reserved,
}

/// A finished transfer, or a stretch of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delivered {
    /// Bytes of its frames.
    pub bytes: u64,
    /// How long they took.
    pub duration_ns: u64,
    /// True when the grant and not the network held it back: a lower bound only.
    pub limited_by_grant: bool,
}

/// What became of a sample.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It agrees with what is known, or taught the first of it.
    InLine,
    /// It disagrees; another sample, best with other peers, must confirm it.
    Suspect,
    /// It was the confirmation: an estimate changed.
    Changed,
}

/// A change worth a new plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Changed {
    /// The link.
    pub link: LinkId,
    /// Available before.
    pub before_bytes_per_sec: f64,
    /// Available now.
    pub after_bytes_per_sec: f64,
}

/// Why an input was not used.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// A host that does not exist, or a path from a host to itself.
    #[error("there is no path between these hosts; use two different hosts of the topology")]
    NoPath,
    /// Zero, negative, NaN or infinite where a rate, size or time must be positive.
    #[error("a size, rate or duration is zero or not a number; report positive finite values")]
    Absurd,
    /// A clock or counter that went backwards.
    #[error("a clock or counter went backwards; the interval is not used")]
    Backwards,
    /// A train that came in bursts.
    #[error("the train came in bursts, as from a busy CPU; send another one")]
    Uneven,
    /// A train too short to outlast the shaper's burst.
    #[error("the train is too short to see past the shaper's burst; send a longer one")]
    Short,
}

/// How many inputs were refused, by reason.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Refused {
    /// [`Refusal::NoPath`].
    pub no_path: u64,
    /// [`Refusal::Absurd`].
    pub absurd: u64,
    /// [`Refusal::Backwards`].
    pub backwards: u64,
    /// [`Refusal::Uneven`].
    pub uneven: u64,
    /// [`Refusal::Short`].
    pub short: u64,
}

impl Refused {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.no_path + self.absurd + self.backwards + self.uneven + self.short
    }

    pub(super) fn count(&mut self, refusal: Refusal) -> Refusal {
        *match refusal {
            Refusal::NoPath => &mut self.no_path,
            Refusal::Absurd => &mut self.absurd,
            Refusal::Backwards => &mut self.backwards,
            Refusal::Uneven => &mut self.uneven,
            Refusal::Short => &mut self.short,
        } += 1;
        refusal
    }
}
