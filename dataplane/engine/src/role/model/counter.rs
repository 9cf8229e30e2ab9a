//! Counters that grow without bound, and the few bits of them that travel in a header.

/// The number near `reference` whose low 32 bits are `low`: how counters that grow without bound
/// travel in a field of 32 bits.
pub(crate) fn near(reference: u64, low: u32) -> u64 {
    const SPAN: u64 = 1 << 32;
    let candidate = (reference & !(SPAN - 1)) | u64::from(low);
    if candidate > reference.saturating_add(SPAN / 2) {
        candidate.checked_sub(SPAN).unwrap_or(candidate)
    } else if reference > candidate.saturating_add(SPAN / 2) {
        candidate.checked_add(SPAN).unwrap_or(candidate)
    } else {
        candidate
    }
}

/// The low 32 bits of a counter, for a header.
pub(crate) const fn low_bits(counter: u64) -> u32 {
    (counter & 0xffff_ffff) as u32
}

/// The low 16 bits of a counter, for a generation.
pub(crate) const fn generation_of(counter: u64) -> u16 {
    (counter & 0xffff) as u16
}
