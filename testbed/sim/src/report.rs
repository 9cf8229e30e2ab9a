//! What came of a seed.

/// What came of a seed, whose run saw `S`.
#[derive(Debug)]
pub struct Report<S> {
    /// Of all that happened, with its time.
    pub fingerprint: u64,
    /// When it ended.
    pub ended_ns: u64,
    /// What happened how often.
    pub seen: S,
    /// What the invariants say against it; empty is good.
    pub violations: Vec<String>,
}
