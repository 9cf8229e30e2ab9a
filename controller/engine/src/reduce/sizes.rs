//! How large the tensors are that a job sums, learnt from what its first worker counted. Pure.
//!
//! The skew of a model is its largest tensor's part of it (Tiresias, NSDI'19, section 3.4). A
//! round's is what was largest in it over all that was summed in it; a job's is the mean over
//! rounds, by bytes, so that a small round between two others, of a loss for example, weighs
//! little. Old rounds fade, so that a program that cuts its gradients otherwise is followed.
//!
//! Invariant: nothing that a worker says moves the skew out of 0 to 1, or the sums over their
//! range.

use weft_control::Messages;

/// What was seen of a job's messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sizes {
    rounds: u32,
    bytes: u64,
    largest_bytes: u64,
    last: Messages,
}

impl Sizes {
    /// A round's messages; they are sound.
    pub(super) fn note(&mut self, round: Messages) {
        if self.rounds >= FADING_ROUNDS {
            self.rounds /= 2;
            self.bytes /= 2;
            self.largest_bytes /= 2;
        }
        self.rounds += 1;
        self.bytes = self.bytes.saturating_add(round.bytes);
        self.largest_bytes = self.largest_bytes.saturating_add(round.largest_bytes);
        self.last = round;
    }

    /// Those of the last round.
    pub(crate) const fn last(&self) -> Messages {
        self.last
    }

    /// The largest tensor's part of all; none before enough was seen.
    pub(crate) fn skew(&self) -> Option<f64> {
        let is_known = self.rounds >= KNOWN_ROUNDS && self.bytes > 0;
        is_known.then(|| self.largest_bytes as f64 / self.bytes as f64)
    }
}

/// Rounds after which the sizes of a job's tensors are known.
const KNOWN_ROUNDS: u32 = 4;
/// Rounds after which what was seen weighs half.
const FADING_ROUNDS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn round(sizes: &[u64]) -> Messages {
        let mut round = Messages::default();
        sizes.iter().for_each(|bytes| round.note(*bytes));
        round
    }

    fn skew_of(rounds: &[Messages]) -> Option<f64> {
        let mut sizes = Sizes::default();
        rounds.iter().for_each(|round| sizes.note(*round));
        sizes.skew()
    }

    #[test]
    fn the_skew_is_the_largest_tensors_part() {
        let is = |skew: Option<f64>, expected: f64| {
            assert!(skew.is_some_and(|skew| (skew - expected).abs() < 1e-9), "{skew:?}");
        };
        is(skew_of(&[round(&[600, 100, 100, 100, 100]); 4]), 0.6);
        is(skew_of(&[round(&[100; 5]); 4]), 0.2);
        is(skew_of(&[round(&[100]); 4]), 1.0);
        assert_eq!(skew_of(&[round(&[100]); 3]), None, "too few");
        // A loss is summed between two gradients.
        let with_losses = [[round(&[100_000; 5]), round(&[4])]; 4].concat();
        assert!(skew_of(&with_losses).is_some_and(|skew| skew < 0.201));
    }

    #[test]
    fn a_program_that_cuts_its_gradients_otherwise_is_followed() {
        let mut sizes = Sizes::default();
        (0..10_000).for_each(|_| sizes.note(round(&[1000])));
        assert_eq!(sizes.skew(), Some(1.0));
        (0..1000).for_each(|_| sizes.note(round(&[100; 10])));
        assert!(sizes.skew().is_some_and(|skew| skew < 0.101), "{:?}", sizes.skew());
    }

    #[test]
    fn the_largest_messages_for_long_stay_in_range() {
        let huge = Messages { count: 1, bytes: 1 << 48, largest_bytes: 1 << 48 };
        assert!(huge.is_sound());
        let mut sizes = Sizes::default();
        (0..100_000).for_each(|_| sizes.note(huge));
        assert_eq!(sizes.skew(), Some(1.0));
        assert!(sizes.bytes < u64::MAX, "it did not saturate");
    }
}
