//! What the server's link may receive for a job, as credits for it (SPEC#push "Credits").
//!
//! Credits leave a part of the link to what they do not call for: a link that is called for whole
//! has no room for requests, and a queue before it never ends, in which each of them waits. A link
//! that was idle has not saved anything: several groups would send that as one burst, at more than
//! its rate. What a late thread could have called for meanwhile is not lost, up to the bucket's
//! depth. O(1), no memory.

use weft_wire::Nanos;

use crate::send::pacer::{TokenBucket, burst_bytes};

/// The budget of a job's link.
#[derive(Debug)]
pub(super) struct Budget {
    /// `None`: as much as comes.
    bucket: Option<TokenBucket>,
    /// No group could use a credit when it was looked at last, whatever the bucket held.
    is_idle: bool,
}

impl Budget {
    pub(super) fn new(rate_bytes_per_sec: Option<u64>) -> Self {
        Self { bucket: rate_bytes_per_sec.map(of_link), is_idle: true }
    }

    /// What the link may receive from now on.
    pub(super) fn set_rate(&mut self, rate_bytes_per_sec: u64) {
        self.bucket = Some(of_link(rate_bytes_per_sec));
    }

    /// When a credit for so many bytes may go.
    pub(super) fn ready_at(&mut self, now: Nanos, bytes: u64) -> Nanos {
        let Some(bucket) = &mut self.bucket else { return Nanos(0) };
        if self.is_idle {
            bucket.limit(now, BEGIN_BYTES);
        }
        bucket.ready_at(bytes)
    }

    /// A credit for so many bytes goes.
    pub(super) fn charge(&mut self, now: Nanos, bytes: u64) {
        self.is_idle = false;
        if let Some(bucket) = &mut self.bucket {
            bucket.charge(now, bytes);
        }
    }

    /// No more credits go now; `is_wanted` says that some would later, by themselves.
    pub(super) fn rest(&mut self, is_wanted: bool) {
        self.is_idle = !is_wanted;
    }
}

/// A bucket of credits: they leave evenly, not in bursts.
pub(super) fn bucket(rate_bytes_per_sec: u64) -> TokenBucket {
    TokenBucket::new(rate_bytes_per_sec, burst_bytes(rate_bytes_per_sec, BEGIN_BYTES))
}

fn of_link(rate_bytes_per_sec: u64) -> TokenBucket {
    bucket((rate_bytes_per_sec - rate_bytes_per_sec / REQUESTS_PART).max(1))
}

/// What the token bucket of a group's credits, and of an idle link's, begins with; also its least
/// depth.
pub(super) const BEGIN_BYTES: u64 = 16 * 1024;
/// One part in so many of the link is left to what no credit calls for: requests for a model are
/// 1 % of an update, in jumbo frames. The rest lets queues end.
const REQUESTS_PART: u64 = 32;
