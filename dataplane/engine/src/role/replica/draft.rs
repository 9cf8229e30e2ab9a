//! A whole model on its way from the server.
//!
//! Invariant: it takes the place of the model only when every chunk of both parts is here.

use alloc::vec;
use alloc::vec::Vec;

use weft_kernel::Kernels;

use crate::role::model::{Ledger, ModelConfig};

/// The version that is fetched; the memory is taken at the start.
#[derive(Debug)]
pub(super) struct Draft {
    version: u64,
    next_order: u64,
    elements: usize,
    w: Vec<f32>,
    h: Vec<f32>,
    /// Which chunks are here: of the weights, then of the momentum term.
    has: Vec<bool>,
    missing: u32,
}

impl Draft {
    pub(super) fn new(shape: &ModelConfig) -> Self {
        let (chunks, elements) = (shape.chunks() as usize, usize::from(shape.elements));
        let part = || vec![0.0; chunks * elements];
        let has = vec![false; 2 * chunks];
        Self { version: 0, next_order: 0, elements, w: part(), h: part(), has, missing: 0 }
    }

    /// Begins with no chunk of this version; returns how many it has.
    pub(super) fn begin(&mut self, version: u64, next_order: u64) -> u32 {
        (self.version, self.next_order) = (version, next_order);
        self.has.fill(false);
        self.missing = u32::try_from(self.has.len()).expect("at most 2^21 chunks");
        self.missing
    }

    /// Whether a chunk is here; none if there is no such chunk.
    pub(super) fn has(&self, chunk: u32) -> Option<bool> {
        self.has.get(chunk as usize).copied()
    }

    /// Takes a chunk that was not here. True when it was the last that was missing.
    pub(super) fn add(&mut self, chunk: u32, wire: &[u8], kernels: &Kernels) -> bool {
        let place = chunk as usize;
        let chunks = self.has.len() / 2;
        let (part, at) = match place.checked_sub(chunks) {
            None => (&mut self.w, place),
            Some(at) => (&mut self.h, at),
        };
        kernels.store_f32(&mut part[at * self.elements..][..self.elements], wire);
        self.has[place] = true;
        self.missing -= 1;
        self.missing == 0
    }

    /// Takes the place of the model in the ledger. Call it once it is whole.
    pub(super) fn install(&mut self, ledger: &mut Ledger) {
        debug_assert_eq!(self.missing, 0, "a model that is half here is none");
        ledger.exchange(self.version, self.next_order, &mut self.w, &mut self.h);
    }
}
