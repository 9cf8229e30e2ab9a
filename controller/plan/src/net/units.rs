//! The units of plans, in which a rate times a time is exact: nanoseconds, bytes per second, and
//! bytes times 1e9.

/// Beyond this nothing is planned.
pub const HORIZON_NS: u64 = 1 << 62;

pub(crate) const NS_PER_SEC: u64 = 1_000_000_000;

/// Division that rounds up; 64-bit where that is enough, which is much faster.
pub(super) fn div_up(value: u128, by: u64) -> u128 {
    match u64::try_from(value) {
        Ok(value) => u128::from(value.div_ceil(by)),
        Err(_) => value.div_ceil(u128::from(by)),
    }
}
