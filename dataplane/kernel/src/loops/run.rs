//! Several contributions to one slot in one pass: the slot is read and written once, not once for
//! each.
//!
//! Additions go from the first payload to the last, so the bits are those of adding one by one.

use super::{sum_f32, words, words_mut};

/// An element that adds up.
pub(crate) trait Element: Copy {
    /// What changes nothing that it is added to, where a further addition follows.
    const NOTHING: Self;

    fn read(wire: [u8; 4]) -> Self;
    fn write(self) -> [u8; 4];
    fn plus(self, other: Self) -> Self;
}

impl Element for i32 {
    const NOTHING: Self = 0;

    #[inline(always)]
    fn read(wire: [u8; 4]) -> Self {
        Self::from_be_bytes(wire)
    }

    #[inline(always)]
    fn write(self) -> [u8; 4] {
        self.to_be_bytes()
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

impl Element for f32 {
    /// +0 would turn -0 into +0. A NaN that it makes the one NaN becomes that anyway.
    const NOTHING: Self = -0.0;

    #[inline(always)]
    fn read(wire: [u8; 4]) -> Self {
        Self::from_be_bytes(wire)
    }

    #[inline(always)]
    fn write(self) -> [u8; 4] {
        self.to_be_bytes()
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        sum_f32(self, other)
    }
}

/// Writes the two loops for a run of so many contributions. Each is an argument of its own, for
/// the compiler knows of arguments that they do not overlap. Indices below a known length leave
/// no check in the loop, and no element behind the vectors.
macro_rules! loops {
    ($add:ident, $emit:ident, $($wire:ident),+) => {
        #[inline(always)]
        fn $add<T: Element>(slot: &mut [T], before: impl Fn(&T) -> T, $($wire: &[u8]),+) {
            let len = slot.len();
            $(let $wire = &words($wire)[..len];)+
            for at in 0..len {
                slot[at] = before(&slot[at])$(.plus(T::read($wire[at])))+;
            }
        }

        #[inline(always)]
        fn $emit<T: Element>(slot: &mut [T], before: impl Fn(&T) -> T, $($wire: &mut [u8]),+) {
            let len = slot.len();
            $(let $wire = &mut words_mut($wire)[..len];)+
            for at in 0..len {
                slot[at] = before(&slot[at])$(.plus(T::read($wire[at])))+;
                $($wire[at] = slot[at].write();)+
            }
        }
    };
}

loops!(add_2, emit_2, a, b);
loops!(add_3, emit_3, a, b, c);
loops!(add_4, emit_4, a, b, c, d);

#[inline(always)]
fn add_run<T: Element>(slot: &mut [T], before: impl Fn(&T) -> T, wires: &[&[u8]]) {
    match wires {
        [a, b] => add_2(slot, before, a, b),
        [a, b, c] => add_3(slot, before, a, b, c),
        [a, b, c, d] => add_4(slot, before, a, b, c, d),
        _ => unreachable!("the caller has counted them"),
    }
}

#[inline(always)]
fn emit_run<T: Element>(slot: &mut [T], before: impl Fn(&T) -> T, wires: &mut [&mut [u8]]) {
    match wires {
        [a, b] => emit_2(slot, before, a, b),
        [a, b, c] => emit_3(slot, before, a, b, c),
        [a, b, c, d] => emit_4(slot, before, a, b, c, d),
        _ => unreachable!("the caller has counted them"),
    }
}

#[inline(always)]
fn dispatch<T: Element>(slot: &mut [T], stores: bool, wires: &[&[u8]]) {
    if stores { add_run(slot, |_| T::NOTHING, wires) } else { add_run(slot, |s| *s, wires) }
}

#[inline(always)]
fn dispatch_emit<T: Element>(slot: &mut [T], stores: bool, wires: &mut [&mut [u8]]) {
    if stores { emit_run(slot, |_| T::NOTHING, wires) } else { emit_run(slot, |s| *s, wires) }
}

#[inline(always)]
pub(crate) fn add_run_i32(slot: &mut [i32], stores: bool, wires: &[&[u8]]) {
    dispatch(slot, stores, wires);
}

#[inline(always)]
pub(crate) fn add_run_i32_emit(slot: &mut [i32], stores: bool, wires: &mut [&mut [u8]]) {
    dispatch_emit(slot, stores, wires);
}

#[inline(always)]
pub(crate) fn add_run_f32(slot: &mut [f32], stores: bool, wires: &[&[u8]]) {
    dispatch(slot, stores, wires);
}

#[inline(always)]
pub(crate) fn add_run_f32_emit(slot: &mut [f32], stores: bool, wires: &mut [&mut [u8]]) {
    dispatch_emit(slot, stores, wires);
}
