//! What workers of a live test sum, and what comes of it: integers, of which every bit counts.

/// A worker's integers in a round.
#[must_use]
pub fn integers(rank: u8, round: u32, len: usize) -> Vec<i32> {
    let mut state = u32::from(rank) << 24 | round;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.cast_signed()
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// The sums of so many workers' by plain loops, modulo 2^32 as a row that wraps has it.
#[must_use]
pub fn integer_sums(workers: u8, round: u32, len: usize) -> Vec<i32> {
    let mut sums = vec![0_i32; len];
    for rank in 0..workers {
        for (sum, value) in sums.iter_mut().zip(integers(rank, round, len)) {
            *sum = sum.wrapping_add(value);
        }
    }
    sums
}
