//! Versions of a model that are being pulled (SPEC#pull).
//!
//! A pull takes many datagrams, and commits go on meanwhile; so a version is copied when somebody
//! first asks for it, once, whoever asks. The number of copies is fixed. When all of them are in
//! use, a new puller is offered the newest copy instead of the newest version: a slightly old model
//! now beats a fresh one that is gone before it has arrived.

use alloc::vec;
use alloc::vec::Vec;

use weft_kernel::Kernels;
use weft_wire::Nanos;

use super::{Model, generation_of};

/// The copies.
#[derive(Debug)]
pub(crate) struct Snapshots {
    kernels: &'static Kernels,
    slots: Vec<Snapshot>,
    idle_ns: u64,
    elements: usize,
    chunks: u32,
}

/// One version.
#[derive(Debug)]
struct Snapshot {
    version: Option<u64>,
    next_order: u64,
    used_at: Nanos,
    w: Vec<f32>,
    h: Vec<f32>,
}

/// A version on offer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Offer {
    pub(crate) version: u64,
    /// The order number that is decided next in this version.
    pub(crate) next_order: u64,
}

impl Snapshots {
    /// Takes the memory of `count` copies. A copy that nobody has asked for a chunk of for
    /// `idle_ns` may be replaced.
    pub(crate) fn new(
        kernels: &'static Kernels,
        count: usize,
        chunks: u32,
        elements: usize,
        idle_ns: u64,
    ) -> Self {
        let len = chunks as usize * elements;
        let empty = || Snapshot {
            version: None,
            next_order: 0,
            used_at: Nanos(0),
            w: vec![0.0; len],
            h: vec![0.0; len],
        };
        let slots = core::iter::repeat_with(empty).take(count.max(1)).collect();
        Self { kernels, slots, idle_ns, elements, chunks }
    }

    /// The version that somebody who asks now should pull. `next_order` is decided next.
    pub(crate) fn offer(&mut self, now: Nanos, model: &Model, next_order: u64) -> Offer {
        let known = self.slots.iter().position(|slot| slot.version == Some(model.version));
        let index = known.or_else(|| self.copy(now, model, next_order)).unwrap_or_else(|| {
            let newest = self.slots.iter().enumerate().max_by_key(|(_, slot)| slot.version);
            newest.map_or(0, |(index, _)| index)
        });
        let slot = &mut self.slots[index];
        slot.used_at = now;
        Offer { version: slot.version.unwrap_or(0), next_order: slot.next_order }
    }

    /// Copies the model into the copy that was used least recently, if that one is idle.
    fn copy(&mut self, now: Nanos, model: &Model, next_order: u64) -> Option<usize> {
        let oldest = |(_, slot): &(usize, &Snapshot)| (slot.version.is_some(), slot.used_at);
        let (index, _) = self.slots.iter().enumerate().min_by_key(oldest)?;
        let idle_ns = self.idle_ns;
        let slot = &mut self.slots[index];
        if slot.version.is_some() && now.since(slot.used_at).0 < idle_ns {
            return None;
        }
        slot.version = Some(model.version);
        slot.next_order = next_order;
        slot.w.copy_from_slice(&model.w);
        slot.h.copy_from_slice(&model.h);
        Some(index)
    }

    /// Writes a chunk of the version with this generation, if there is a copy of it: chunks below
    /// the model's count are weights, those above the momentum term.
    pub(crate) fn emit(
        &mut self,
        now: Nanos,
        generation: u16,
        chunk: u32,
        wire: &mut [u8],
    ) -> Option<()> {
        let is_it = |slot: &&mut Snapshot| slot.version.map(generation_of) == Some(generation);
        let slot = self.slots.iter_mut().find(is_it)?;
        slot.used_at = now;
        let (part, chunk) = match chunk.checked_sub(self.chunks) {
            None => (&slot.w, chunk),
            Some(chunk) => (&slot.h, chunk),
        };
        let start = chunk as usize * self.elements;
        self.kernels.emit_f32(part.get(start..start + self.elements)?, wire);
        Some(())
    }
}
