//! Keeps what an engine draws beside the frames that it meets.

use std::sync::Arc;

use weft_engine::random::{Label, Tape};
use weft_io::record::DrawLog;

/// Notes every draw, and leaves it as it is.
#[derive(Debug)]
pub struct DrawTape(Arc<DrawLog>);

impl DrawTape {
    /// A tape that notes in `log`.
    #[must_use]
    pub fn new(log: Arc<DrawLog>) -> Self {
        Self(log)
    }
}

impl Tape for DrawTape {
    fn draw(&self, label: Label, word: u64) -> u64 {
        self.0.note(label, word);
        word
    }
}
