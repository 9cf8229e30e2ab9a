//! Cache hints. They change no value and cannot fault, so any slice will do.

const CACHE_LINE_BYTES: usize = 64;

/// Asks for the cache line that `byte` lies in, to be read soon.
#[inline(always)]
pub fn prefetch_line(byte: &u8) {
    read((&raw const *byte).cast());
}

#[inline(always)]
fn read(line: *const i8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86_64, and a prefetch never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// How far a loop over a vector asks ahead: more than a frame's share at an MTU of 1500, and than a
/// core has under way.
const AHEAD_BYTES: usize = 2048;

/// Asks for what lies [`AHEAD_BYTES`] behind these numbers, to be read soon.
#[inline(always)]
pub(crate) fn ahead_to_read<T, const N: usize>(numbers: &[T; N]) {
    read(numbers.as_ptr().cast::<i8>().wrapping_add(AHEAD_BYTES));
}

/// Asks for what lies [`AHEAD_BYTES`] behind these numbers, to be written soon.
#[inline(always)]
pub(crate) fn ahead_to_write<T, const N: usize>(numbers: &[T; N]) {
    write(numbers.as_ptr().cast::<i8>().wrapping_add(AHEAD_BYTES));
}

/// Asks for the cache lines of `data`, to be written soon.
///
/// The write hint reaches the processor only when the compilation target has it (`prfchw`);
/// otherwise it is a read hint, which serves a slot as well: its lines belong to one lcore.
#[inline]
pub fn prefetch_write<T>(data: &[T]) {
    for_each_line(data, write);
}

#[inline(always)]
fn write(line: *const i8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: SSE is part of x86_64, and a prefetch never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(line) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Visits one address in every cache line that `data` touches.
#[inline(always)]
fn for_each_line<T>(data: &[T], mut visit: impl FnMut(*const i8)) {
    let start = data.as_ptr().cast::<i8>();
    let len_bytes = size_of_val(data);
    if len_bytes == 0 {
        return;
    }
    let before = start.addr() % CACHE_LINE_BYTES;
    let mut line = start.wrapping_sub(before);
    let mut left = (before + len_bytes).div_ceil(CACHE_LINE_BYTES);
    // Four at a time: the bookkeeping of a line would cost more than its hint.
    while left >= 4 {
        for at in 0..4 {
            visit(line.wrapping_add(at * CACHE_LINE_BYTES));
        }
        line = line.wrapping_add(4 * CACHE_LINE_BYTES);
        left -= 4;
    }
    for at in 0..left {
        visit(line.wrapping_add(at * CACHE_LINE_BYTES));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_touched_line_is_visited_once() {
        let buffer = [0u8; 1024];
        for start in 0..70 {
            for len in 0..300 {
                let data = &buffer[start..start + len];
                let mut lines = Vec::new();
                for_each_line(data, |line| lines.push(line.addr() / CACHE_LINE_BYTES));
                let mut touched: Vec<usize> =
                    data.iter().map(|b| (&raw const *b).addr() / CACHE_LINE_BYTES).collect();
                touched.dedup();
                assert_eq!(lines, touched, "start {start} len {len}");
            }
        }
    }
}
