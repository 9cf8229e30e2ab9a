//! Lists of places, as they are kept and read back. Pure.

use alloc::vec::Vec;

/// How many workers places are of.
pub(super) fn width(places: &[u16]) -> u16 {
    u16::try_from(places.len()).unwrap_or(u16::MAX)
}

/// Places of so many workers that were saved, or the first ones; none where they do not fit the
/// `count` places that there are.
pub(super) fn placed(saved: &[u16], workers: u16, count: u16) -> Option<Vec<u16>> {
    if saved.is_empty() {
        return (workers <= count).then(|| (0..workers).collect());
    }
    let fits = width(saved) == workers
        && saved.is_sorted_by(|one, next| one < next)
        && saved.last().is_some_and(|last| *last < count);
    fits.then(|| saved.to_vec())
}

/// Places to be saved: those that are not the first ones.
pub(super) fn unless_first(places: &[u16]) -> Vec<u16> {
    let are_first = places.iter().copied().eq(0..width(places));
    if are_first { Vec::new() } else { places.to_vec() }
}
