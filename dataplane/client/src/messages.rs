//! What a session gave to sums since somebody asked: one message for each tensor, whether it had a
//! call of its own or shared a round with others. Decides nothing; a counter that two hold.

use std::sync::{Arc, Mutex, PoisonError};

use weft_control::Messages;

/// Counts a session's messages. Clones count the same.
#[derive(Clone, Debug, Default)]
pub struct MessageCounter {
    seen: Arc<Mutex<Messages>>,
}

impl MessageCounter {
    /// What was summed since it was last taken.
    #[must_use]
    pub fn take(&self) -> Messages {
        std::mem::take(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A round has ended in which tensors of so many elements were summed.
    pub(crate) fn note(&self, lens: impl Iterator<Item = usize>, element_bytes: usize) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for len in lens {
            seen.note(u64::try_from(len.saturating_mul(element_bytes)).unwrap_or(u64::MAX));
        }
    }
}
