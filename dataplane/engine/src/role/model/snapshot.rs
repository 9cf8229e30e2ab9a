//! Versions of a model that are being pulled (SPEC#pull).
//!
//! A pull takes many datagrams, and commits go on meanwhile; so a version is copied when somebody
//! first asks for it, once, whoever asks. The number of copies is fixed. Each peer pulls one at a
//! time, the one that it was offered, or asked for a chunk of, last; so with one more copy than
//! there are peers there always is one for a new version, however fast versions come. When all of
//! fewer are in use, a new puller is offered the newest copy instead of the newest version: a
//! slightly old model now beats a fresh one that is gone before it has arrived.

use alloc::vec;
use alloc::vec::Vec;

use weft_kernel::Kernels;
use weft_wire::{MEMBERS_MAX, Nanos};

use super::counter::generation_of;
use super::params::Model;
use crate::role::channel::Peer;

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
    pullers: Pullers,
    /// Somebody was offered it.
    is_shown: bool,
    w: Vec<f32>,
    h: Vec<f32>,
}

/// Who pulls a copy: workers by rank, then boxes by index.
type Pullers = u128;

fn bit(peer: Peer) -> Pullers {
    let bit = Pullers::from(peer.bit().0);
    match peer {
        Peer::Worker(_) => bit,
        Peer::Box(_) => bit << MEMBERS_MAX,
    }
}

/// A version on offer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Offer {
    pub(crate) version: u64,
    /// The order number that is decided next in this version.
    pub(crate) next_order: u64,
}

impl Snapshots {
    /// Takes the memory of `count` copies. One whose pullers have asked for nothing for `idle_ns`
    /// may be replaced.
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
            pullers: 0,
            is_shown: false,
            w: vec![0.0; len],
            h: vec![0.0; len],
        };
        let slots = core::iter::repeat_with(empty).take(count.max(1)).collect();
        Self { kernels, slots, idle_ns, elements, chunks }
    }

    /// The version that the peer should pull that asks now, if there is one that may be
    /// shown: its next order number is at most `shown`. `next_order` is the model's.
    pub(crate) fn offer(
        &mut self,
        now: Nanos,
        puller: Peer,
        model: &Model,
        next_order: u64,
        shown: u64,
    ) -> Option<Offer> {
        // Whoever asks has what it pulled, or wants it no more.
        self.leave(puller);
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
        slot.pullers |= bit(puller);
        slot.is_shown = true;
        Some(Offer { version: slot.version?, next_order: slot.next_order })
    }

    /// The peer pulls none of the copies.
    fn leave(&mut self, puller: Peer) {
        self.slots.iter_mut().for_each(|slot| slot.pullers &= !bit(puller));
    }

    /// Copies the model into the copy that is needed least, if one is not in use.
    fn copy(&mut self, now: Nanos, model: &Model, next_order: u64) {
        let need = |slot: &&mut Snapshot| (slot.version.is_some(), slot.pullers > 0, slot.used_at);
        let idle_ns = self.idle_ns;
        let Some(slot) = self.slots.iter_mut().min_by_key(need) else { return };
        if slot.pullers > 0 && now.since(slot.used_at).0 < idle_ns {
            return;
        }
        let (w, h) = model.parts();
        slot.version = Some(model.version());
        slot.next_order = next_order;
        slot.used_at = now;
        slot.pullers = 0;
        slot.is_shown = false;
        slot.w.copy_from_slice(w);
        slot.h.copy_from_slice(h);
    }

    /// Writes a chunk of the version with this generation for a peer, if there is a copy of it:
    /// chunks below the model's count are weights, those above the momentum term.
    pub(crate) fn emit(
        &mut self,
        now: Nanos,
        puller: Peer,
        generation: u16,
        chunk: u32,
        wire: &mut [u8],
    ) -> Option<()> {
        let is_it = |slot: &Snapshot| slot.version.map(generation_of) == Some(generation);
        let at = self.slots.iter().position(is_it)?;
        if self.slots[at].pullers & bit(puller) == 0 {
            // It has asked twice, was offered two, and took the first.
            self.leave(puller);
            self.slots[at].pullers |= bit(puller);
        }
        let slot = &mut self.slots[at];
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
