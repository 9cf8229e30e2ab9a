//! What the port's thread does for checkpoints: it notes rows that come while a round is open, and
//! has a round read without waiting for it.

use std::sync::Arc;

use weft_wire::keys::{Number, RowEpoch};

use super::KeyError;
use super::part::KeptRow;
use super::parts::{Parts, Round};

/// Rows that come while a round is open.
#[derive(Debug, Default)]
pub(super) struct Capture {
    is_open: bool,
    rows: Vec<KeptRow>,
}

impl Capture {
    /// From now on they are kept.
    pub(super) fn open() -> Self {
        Self { is_open: true, rows: Vec::new() }
    }

    /// Those that have come.
    pub(super) fn rows(&mut self) -> Vec<KeptRow> {
        std::mem::take(&mut self.rows)
    }

    /// A row has come.
    pub(super) fn take(&mut self, key: u64, epoch: RowEpoch, value: &[f32], lasts: &[Number]) {
        if self.is_open {
            let (value, lasts) = (value.to_vec(), lasts.to_vec());
            self.rows.push(KeptRow { key, epoch, is_copy: false, lasts, value });
        }
    }
}

/// Reads the newest whole round on a thread of its own, for it may take long, and hands it over.
pub(super) fn read_aside(
    parts: Parts,
    hand_over: impl FnOnce(Result<Round, KeyError>) + Send + 'static,
) -> Result<(), KeyError> {
    std::thread::Builder::new()
        .name("weft-keys-read".to_owned())
        .spawn(move || hand_over(parts.newest().map_err(KeyError::from)))
        .map(drop)
        .map_err(|error| KeyError::Thread(Arc::new(error)))
}
