//! Gives drawn numbers back by their label, each label's in their order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use weft_engine::random::{Label, Tape};
use weft_io::record::DrawLog;

/// The draws of a lane.
#[derive(Debug, Default)]
pub(super) struct ReplayTape {
    draws: Mutex<BTreeMap<String, VecDeque<u64>>>,
    missing: AtomicU64,
    /// Where to note what is used, if this replay is recorded.
    log: Option<Arc<DrawLog>>,
}

impl ReplayTape {
    /// A tape of these labels and numbers, in order.
    pub(super) fn new<'a>(
        draws: impl Iterator<Item = (&'a str, u64)>,
        log: Option<Arc<DrawLog>>,
    ) -> Self {
        let mut all: BTreeMap<String, VecDeque<u64>> = BTreeMap::new();
        for (label, word) in draws {
            match all.get_mut(label) {
                Some(words) => words.push_back(word),
                None => drop(all.insert(label.to_owned(), [word].into())),
            }
        }
        Self { draws: Mutex::new(all), missing: AtomicU64::new(0), log }
    }

    /// Draws that the recording does not have.
    pub(super) fn missing(&self) -> u64 {
        self.missing.load(Ordering::Relaxed)
    }
}

impl Tape for ReplayTape {
    fn draw(&self, label: Label, word: u64) -> u64 {
        let mut draws = self.draws.lock().expect("no holder of it panics");
        let recorded = draws.get_mut(&label.to_string()).and_then(VecDeque::pop_front);
        if recorded.is_none() {
            self.missing.fetch_add(1, Ordering::Relaxed);
        }
        let word = recorded.unwrap_or(word);
        if let Some(log) = &self.log {
            log.note(label, word);
        }
        word
    }
}

#[cfg(test)]
mod tests {
    use weft_engine::random::{Draw, Owner};

    use super::*;

    #[test]
    fn one_draw_more_leaves_the_others_as_they_were() {
        let draws = [("row-1 epoch", 5), ("lane secret-0", 6), ("row-1 epoch", 7)];
        let tape = ReplayTape::new(draws.into_iter(), None);
        let epoch = Label { owner: Owner::Row(1), draw: Draw::Epoch };
        let secret = Label { owner: Owner::Lane, draw: Draw::Secret(0) };
        let new = Label { owner: Owner::Lane, draw: Draw::Session };
        assert_eq!(tape.draw(secret, 1), 6);
        assert_eq!(tape.draw(new, 2), 2, "what nobody recorded is the generator's");
        assert_eq!(tape.draw(epoch, 3), 5);
        assert_eq!(tape.draw(epoch, 4), 7);
        assert_eq!(tape.draw(epoch, 9), 9);
        assert_eq!(tape.missing(), 2);
    }
}
