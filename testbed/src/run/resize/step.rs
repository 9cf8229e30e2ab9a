//! How far a word has come, by what the controller saved before it told anybody. Pure.

use weft_controller_engine::SavedReduce;

use crate::scenario::WordStep;

/// What is known when a word is said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    /// The cohort that runs.
    pub(super) cohort: u32,
    /// A step of the word was seen before.
    pub(super) is_heeded: bool,
}

/// The step, if the word was heeded. `is_kept`: the checkpoint was written since, or is being.
pub(super) fn step(begun: Begun, saved: &SavedReduce, is_kept: bool) -> Option<WordStep> {
    let is_told = saved.paused.is_some() || saved.resizing.is_some();
    if saved.cohort > begun.cohort {
        let is_leased = saved.leased == Some(saved.cohort);
        return Some(if is_leased { WordStep::Start } else { WordStep::Lease });
    }
    match (is_told, saved.boundary, saved.stands) {
        (true, None, _) => Some(WordStep::Hold),
        (true, Some(_), true) => Some(WordStep::Stand),
        (true, Some(_), false) if is_kept && saved.resizing.is_some() => Some(WordStep::Checkpoint),
        (true, Some(_), false) => Some(WordStep::Stop),
        (false, ..) => begun.is_heeded.then_some(WordStep::Resume),
    }
}

#[cfg(test)]
mod tests {
    use weft_controller_engine::Steerer;

    use super::*;

    #[test]
    fn the_steps_of_both_words_are_told_apart() {
        let of = |is_heeded, saved: &SavedReduce, is_kept| {
            step(Begun { cohort: 3, is_heeded }, saved, is_kept)
        };
        let plain = SavedReduce { cohort: 3, leased: Some(3), ..SavedReduce::default() };
        assert_eq!(of(false, &plain, false), None);
        let paused = SavedReduce { paused: Some(Steerer::Operator), ..plain.clone() };
        assert_eq!(of(false, &paused, false), Some(WordStep::Hold));
        let stops = SavedReduce { boundary: Some(9), ..paused };
        assert_eq!(of(true, &stops, true), Some(WordStep::Stop), "an older checkpoint");
        let stands = SavedReduce { stands: true, ..stops };
        assert_eq!(of(true, &stands, false), Some(WordStep::Stand));
        assert_eq!(of(true, &plain, false), Some(WordStep::Resume));
        let resized = SavedReduce { resizing: Some(4), ..plain };
        assert_eq!(of(false, &resized, false), Some(WordStep::Hold));
        let stops = SavedReduce { boundary: Some(9), ..resized };
        assert_eq!(of(true, &stops, false), Some(WordStep::Stop));
        assert_eq!(of(true, &stops, true), Some(WordStep::Checkpoint));
        let over = SavedReduce { cohort: 4, leased: Some(3), ..SavedReduce::default() };
        assert_eq!(of(true, &over, true), Some(WordStep::Lease));
        let leased = SavedReduce { leased: Some(4), ..over };
        assert_eq!(of(true, &leased, true), Some(WordStep::Start));
    }
}
