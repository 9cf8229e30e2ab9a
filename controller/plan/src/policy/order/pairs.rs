//! Sorts pairs of numbers fast: one number each, of 64 bits where that is enough.

use alloc::vec::Vec;

/// By the first, then by the second.
pub(super) fn sort(pairs: &mut [(u64, u32)]) {
    let firsts = pairs.iter().map(|(first, _)| *first);
    let (Some(least), Some(most)) = (firsts.clone().min(), firsts.max()) else { return };
    if most - least > u64::from(u32::MAX) {
        pairs.sort_unstable();
        return;
    }
    let join = |(first, second): &(u64, u32)| (first - least) << 32 | u64::from(*second);
    let mut joined: Vec<u64> = pairs.iter().map(join).collect();
    joined.sort_unstable();
    for (pair, joined) in pairs.iter_mut().zip(joined) {
        #[expect(clippy::cast_possible_truncation, reason = "its lower part")]
        let second = joined as u32;
        *pair = (least + (joined >> 32), second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Numbers;

    #[test]
    fn sorts_near_and_far_pairs() {
        let mut numbers = Numbers::new(1);
        for spread in [1, 10, 1 << 32, (1 << 32) + 1, 1 << 62] {
            let mut draw = || {
                let first = (1 << 50) + numbers.within(0, spread);
                (first, u32::try_from(numbers.within(0, 1 << 32)).expect("32 bits"))
            };
            let mut pairs: Vec<_> = (0..200).map(|_| draw()).collect();
            let mut sorted = pairs.clone();
            sorted.sort();
            sort(&mut pairs);
            assert_eq!(pairs, sorted);
        }
        sort(&mut []);
    }
}
