//! A small pseudo-random generator with a fixed algorithm, so that a seed means the same split,
//! model and order for as long as this file stands.
//!
//! Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014),
//! the generator known as SplitMix64.

/// The generator: a counter with an odd step, and a mixing function.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Starts a generator from a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Starts one of many independent generators of one seed.
    #[must_use]
    pub fn keyed(seed: u64, stream: u64, key: u64) -> Self {
        let mut outer = Self::new(seed);
        let mut middle = Self::new(outer.next_u64() ^ stream);
        Self::new(middle.next_u64() ^ key)
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in [0, 1) with 24 random bits, which is every bit that an `f32` there can hold.
    pub fn next_f32(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1_u32 << 24) as f32
    }

    /// A number below `bound`; the bias of at most bound / 2^64 does not matter here.
    fn below(&mut self, bound: usize) -> usize {
        let scaled = (u128::from(self.next_u64()) * bound as u128) >> 64;
        usize::try_from(scaled).unwrap_or(0)
    }

    /// Puts `items` in random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last + 1);
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_published_sequence() {
        // First outputs for seed 1234567, as published with the reference implementation.
        let mut rng = SplitMix64::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(
            drawn,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn shuffle_is_a_permutation_and_depends_on_every_key() {
        let draw = |seed, stream, key| {
            let mut items: Vec<usize> = (0..100).collect();
            SplitMix64::keyed(seed, stream, key).shuffle(&mut items);
            items
        };
        let base = draw(1, 2, 3);
        let mut sorted = base.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
        assert_eq!(base, draw(1, 2, 3));
        for other in [draw(9, 2, 3), draw(1, 9, 3), draw(1, 2, 9)] {
            assert_ne!(base, other);
        }
    }
}
