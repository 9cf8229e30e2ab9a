//! Who pays for a frame, and what it costs (SPEC#checks; PROTOCOL section 10).
//!
//! A frame that shows whose it is, by the address and the cookie, token or life of a member, is
//! paid by its job. Every other is paid by the *strangers*, and so is a HELLO, which shows nothing:
//! one bucket for each address of the table and one for all other addresses, in each lane. Whoever
//! forges the addresses of a job's members thus takes nothing from the job, and what the box
//! computes and sends because of forged frames has a bound. Invariant: the buckets are taken at the
//! start; no frame adds one (I7, I8), and time alone fills them, whatever a controller says. O(1)
//! per frame.

use alloc::vec::Vec;
use core::fmt;

use weft_wire::Nanos;
use weft_wire::frame::UdpAddr;

use super::addresses::Addresses;
use crate::drops::DropReason;
use crate::send::pacer::TokenBucket;

/// What each address may cost a lane with frames that do not show whose they are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StrangersQuota {
    /// Bytes of frames per second that are answered. Default 1 MB/s: some 900 padded HELLOs, or
    /// 6,800 short ones, which cost a lane about 2 ms; a member sends at most 50.
    pub rate_bytes_per_sec: u64,
    /// Bytes that are answered at once. Default 64 KiB.
    pub burst_bytes: u64,
}

impl Default for StrangersQuota {
    fn default() -> Self {
        Self { rate_bytes_per_sec: 1_000_000, burst_bytes: 64 * 1024 }
    }
}

impl StrangersQuota {
    /// Judges a configured quota.
    ///
    /// # Errors
    /// [`QuotaError`] naming the field and the remedy.
    pub fn check(&self) -> Result<(), QuotaError> {
        let error = |field, problem| Err(QuotaError { field, problem });
        if self.rate_bytes_per_sec == 0 {
            return error("rate_bytes_per_sec", "must be positive, or no member could join");
        }
        if self.burst_bytes < FRAME_BYTES {
            return error("burst_bytes", "must hold at least one frame (2048)");
        }
        Ok(())
    }

    fn bucket(self) -> TokenBucket {
        TokenBucket::new(self.rate_bytes_per_sec, self.burst_bytes)
    }
}

/// Why a quota is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QuotaError {
    /// The key.
    pub field: &'static str,
    /// What is wrong and what would be right.
    pub problem: &'static str,
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "strangers: `{}` {}", self.field, self.problem)
    }
}

impl core::error::Error for QuotaError {}

/// Who has to pay for a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Payer {
    /// It has not shown whose it is.
    Strangers,
    /// It has: the job.
    Job,
    /// It is paid for, or answers something that was.
    Nobody,
}

/// The strangers' buckets of one lane.
#[derive(Debug)]
pub(crate) struct Strangers {
    quota: StrangersQuota,
    addresses: Addresses,
    /// One for each address, and the last for all others.
    buckets: Vec<TokenBucket>,
    /// Memory for both, for when the addresses change.
    spare: (Addresses, Vec<TokenBucket>),
}

impl Strangers {
    /// Takes the memory of so many addresses.
    pub(crate) fn new(quota: StrangersQuota, addresses_max: usize) -> Self {
        let memory = || {
            let addresses = Addresses::new(addresses_max);
            let buckets = Vec::with_capacity(addresses.len_max() + 1);
            (addresses, buckets)
        };
        let (addresses, mut buckets) = memory();
        buckets.push(quota.bucket());
        Self { quota, addresses, buckets, spare: memory() }
    }

    /// Names the addresses of the table anew. Whoever stays keeps what its bucket holds; who comes
    /// begins with what all others have left. Those that find no room share that.
    pub(crate) fn renew(&mut self, addresses: impl Iterator<Item = UdpAddr>) {
        let (named, buckets) = &mut self.spare;
        named.renew(addresses);
        let others = self.buckets[self.addresses.len()];
        let of = |addr| self.addresses.find(addr).map_or(others, |index| self.buckets[index]);
        buckets.clear();
        buckets.extend(named.iter().map(of).chain([others]));
        core::mem::swap(&mut self.addresses, named);
        core::mem::swap(&mut self.buckets, buckets);
    }

    /// The same with another quota.
    pub(crate) fn with_quota(mut self, quota: StrangersQuota) -> Self {
        self.quota = quota;
        self.buckets.fill_with(|| quota.bucket());
        self
    }

    /// Takes a frame of `bytes` from the bucket of its source.
    ///
    /// # Errors
    /// [`DropReason::StrangersQuota`] when that lacks them: the frame is not to be answered.
    pub(crate) fn take(
        &mut self,
        source: UdpAddr,
        now: Nanos,
        bytes: usize,
    ) -> Result<(), DropReason> {
        let index = self.addresses.find(source).unwrap_or(self.addresses.len());
        let has = self.buckets[index].take(now, bytes as u64);
        if has { Ok(()) } else { Err(DropReason::StrangersQuota) }
    }
}

/// What forming a lease costs, beside the JOINs themselves: its slots are emptied, and each is
/// seeded by what every member holds. An lcore that sums 11 bytes of contributions in a nanosecond
/// forms a lease of two members and 256 slots in 10 us, of 2,048 slots in 44 us (`cargo bench -p
/// weft-engine -- formation`).
pub(crate) fn formation_bytes(slot_count: u16, member_count: usize) -> u64 {
    let slot_bytes = SLOT_BYTES + member_count as u64 * SLOT_MEMBER_BYTES;
    FORMATION_BYTES + u64::from(slot_count) * slot_bytes
}

const FRAME_BYTES: u64 = 2048;
const FORMATION_BYTES: u64 = 55_000;
const SLOT_BYTES: u64 = 128;
const SLOT_MEMBER_BYTES: u64 = 40;

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;

    use super::*;

    fn addr(host: u8) -> UdpAddr {
        SocketAddr::from(([10, 0, 0, host], 7000)).into()
    }

    #[test]
    fn an_address_of_the_table_has_its_own_bucket_and_all_others_share_one() {
        let quota = StrangersQuota { rate_bytes_per_sec: 1_000, burst_bytes: 2_048 };
        let refused = Err(DropReason::StrangersQuota);
        let mut strangers = Strangers::new(quota, 2);
        strangers.renew([addr(2), addr(1), addr(2)].into_iter());
        for host in [1, 2, 3] {
            assert_eq!(strangers.take(addr(host), Nanos(0), 2_000), Ok(()), "{host}");
            assert_eq!(strangers.take(addr(host), Nanos(0), 100), refused, "{host}");
        }
        assert_eq!(strangers.take(addr(4), Nanos(0), 100), refused, "one for all others");
        let later = Nanos(1_000_000_000);
        assert_eq!(strangers.take(addr(4), later, 1_000), Ok(()));
        assert_eq!(strangers.take(addr(3), later, 100), refused);
        assert_eq!(strangers.take(addr(1), later, 1_000), Ok(()));
        assert_eq!(strangers.buckets.len(), 3);
    }

    /// A controller that names the addresses anew gives nobody more than the quota.
    #[test]
    fn whoever_comes_and_goes_a_bucket_is_never_filled_by_that() {
        let quota = StrangersQuota { rate_bytes_per_sec: 1_000_000, burst_bytes: 2_048 };
        let mut strangers = Strangers::new(quota, 4);
        let mut taken = [0; 5];
        for now_us in 0..10_000 {
            // Address 1 stays, 2 comes and goes, 3 is never named; 4 comes late.
            let named = [(1, true), (2, now_us % 2 == 0), (4, now_us > 5_000)];
            let named = named.iter().filter(|(_, is_named)| *is_named);
            strangers.renew(named.map(|(host, _)| addr(*host)));
            for host in [1, 2, 3, 4] {
                let is_taken = strangers.take(addr(host), Nanos(1_000 * now_us), 100).is_ok();
                taken[usize::from(host)] += if is_taken { 100 } else { 0 };
            }
        }
        // In 10 ms a bucket passes 10,000 bytes and its burst, and a frame at the end.
        let bound = 10_000 + 2_048 + 100;
        assert!(taken[1] > 10_000 && taken[1] <= bound, "{taken:?}");
        // Nobody has more than a bucket of its own and that of all others.
        let rest: u64 = taken[2..].iter().sum();
        assert!(taken[2..].iter().all(|taken| *taken <= 2 * bound), "{taken:?}");
        assert!(rest <= 4 * bound, "{taken:?}");
        assert_eq!(strangers.buckets.len(), 3, "1, 4 and all others");
    }

    #[test]
    fn a_quota_that_lets_nobody_in_is_refused() {
        let quota = StrangersQuota::default();
        assert_eq!(quota.check(), Ok(()));
        let no_rate = StrangersQuota { rate_bytes_per_sec: 0, ..quota };
        assert_eq!(no_rate.check().unwrap_err().field, "rate_bytes_per_sec");
        let one_frame = StrangersQuota { burst_bytes: 2_048, ..quota };
        assert_eq!(one_frame.check(), Ok(()));
        let no_burst = StrangersQuota { burst_bytes: 2_047, ..quota };
        assert_eq!(no_burst.check().unwrap_err().field, "burst_bytes");
    }

    #[test]
    fn forming_costs_what_its_slots_and_members_take() {
        assert_eq!(formation_bytes(1, 1), 55_168);
        assert_eq!(formation_bytes(1, 2), 55_208, "another member");
        assert_eq!(formation_bytes(256, 2), 108_248, "10 us at 11 bytes in a nanosecond");
        assert_eq!(formation_bytes(2_048, 2), 480_984, "44 us");
    }
}
