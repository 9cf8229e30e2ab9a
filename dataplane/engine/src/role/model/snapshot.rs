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

use super::counter::generation_of;
use super::params::Model;

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
    /// Somebody was offered it.
    is_shown: bool,
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
            is_shown: false,
            w: vec![0.0; len],
            h: vec![0.0; len],
        };
        let slots = core::iter::repeat_with(empty).take(count.max(1)).collect();
        Self { kernels, slots, idle_ns, elements, chunks }
    }

    /// The version that somebody who asks now should pull, if there is one that may be shown: its
    /// next order number is at most `shown`. `next_order` is the model's.
    pub(crate) fn offer(
        &mut self,
        now: Nanos,
        model: &Model,
        next_order: u64,
        shown: u64,
    ) -> Option<Offer> {
        let may_show = |slot: &Snapshot| slot.version.is_some() && slot.next_order <= shown;
        let is_known = self.slots.iter().any(|slot| slot.version == Some(model.version()));
        // One that waits to be shown, or was not shown yet, comes before the next: else a stream of
        // commits would replace each before anybody sees it.
        let is_due = self.slots.iter().any(|slot| !may_show(slot) && slot.version.is_some());
        let is_news = self.slots.iter().any(|slot| may_show(slot) && !slot.is_shown);
        if !is_known && (next_order <= shown || !(is_due || is_news)) {
            self.copy(now, model, next_order);
        }
        let shown = self.slots.iter_mut().filter(|slot| may_show(slot));
        let slot = shown.max_by_key(|slot| slot.version)?;
        slot.used_at = now;
        slot.is_shown = true;
        Some(Offer { version: slot.version?, next_order: slot.next_order })
    }

    /// Copies the model into the copy that was used least recently, if that one is idle.
    fn copy(&mut self, now: Nanos, model: &Model, next_order: u64) {
        let oldest = |slot: &&mut Snapshot| (slot.version.is_some(), slot.used_at);
        let idle_ns = self.idle_ns;
        let Some(slot) = self.slots.iter_mut().min_by_key(oldest) else { return };
        if slot.version.is_some() && now.since(slot.used_at).0 < idle_ns {
            return;
        }
        let (w, h) = model.parts();
        slot.version = Some(model.version());
        slot.next_order = next_order;
        slot.used_at = now;
        slot.is_shown = false;
        slot.w.copy_from_slice(w);
        slot.h.copy_from_slice(h);
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
