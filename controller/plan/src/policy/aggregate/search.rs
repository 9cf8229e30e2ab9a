//! Which numbers of direct updates, and which waits of the server's link, are tried.

use alloc::vec::Vec;

use crate::case::{Case, ServerId};

use super::{Cost, Cutter};

impl Cutter<'_> {
    /// Time of a transfer at the server's full rate.
    pub(super) fn link_ns(&self, size_bytes: u64) -> u64 {
        link_ns(self.case, self.server, size_bytes)
    }

    /// What a transfer into the server costs those who ask later.
    pub(super) fn price(&self, size_bytes: u64) -> u128 {
        price(self.case, self.server, size_bytes)
    }

    /// How long the server's link may wait for a group: what is tried.
    pub(super) fn patiences(&self) -> Vec<u64> {
        let sizes = self.sequence.iter().map(|id| self.case.update(*id).size_bytes);
        let link_ns = self.link_ns(sizes.max().unwrap_or(0));
        let idle_max = self.case.options.idle_max;
        let tried = PATIENCES.into_iter().take_while(|share| *share <= idle_max);
        tried.map(|share| times(link_ns, share)).collect()
    }

    /// The best cost, and the number of direct updates that it takes.
    pub(super) fn search(&mut self) -> (Cost, usize) {
        let n = self.sequence.len();
        let every = n <= self.case.options.direct_search as usize;
        let mut best = (Cost::MAX, 0);
        if every {
            self.scan(0..=n, &mut best);
            return best;
        }
        // 0, 1, 2, 4, 8, ..: then halve the gaps beside the best.
        let mut tried = vec![0];
        tried.extend(core::iter::successors(Some(1), |nd| Some(nd * 2)).take_while(|nd| *nd <= n));
        self.scan(tried.iter().copied(), &mut best);
        for _ in 0..REFINEMENTS {
            let place = tried.partition_point(|nd| *nd < best.1);
            let below = place.checked_sub(1).map(|below| usize::midpoint(tried[below], best.1));
            let above = tried.get(place + 1).map(|above| usize::midpoint(*above, best.1));
            let fresh: Vec<usize> =
                [below, above].into_iter().flatten().filter(|nd| !tried.contains(nd)).collect();
            if fresh.is_empty() {
                break;
            }
            tried.extend(&fresh);
            tried.sort_unstable();
            self.scan(fresh.into_iter(), &mut best);
        }
        best
    }

    /// Tries ascending numbers of direct updates.
    fn scan(&mut self, counts: impl Iterator<Item = usize>, best: &mut (Cost, usize)) {
        let start = self.ledger.mark();
        self.reset();
        for count in counts {
            while self.at < count {
                if self.go_direct(None).is_none() {
                    self.ledger.rollback(start);
                    return;
                }
            }
            // More direct updates only make this later.
            if self.least() >= best.0 {
                break;
            }
            let mark = self.ledger.mark();
            let saved = (self.at, self.sum, self.done_ns);
            self.next_aggregator = 0;
            if let Some(cost) = self.tail(Some(best.0), None)
                && (cost, count) < *best
            {
                *best = (cost, count);
            }
            self.ledger.rollback(mark);
            (self.at, self.sum, self.done_ns) = saved;
        }
        self.ledger.rollback(start);
    }
}

fn link_ns(case: &Case, server: ServerId, size_bytes: u64) -> u64 {
    let rate = case.host(case.server(server).host).down_bytes_per_sec.max(1);
    let link_ns = u128::from(size_bytes) * 1_000_000_000 / u128::from(rate);
    u64::try_from(link_ns).unwrap_or(u64::MAX)
}

/// What a transfer into a server costs those who ask later.
pub(in crate::policy) fn price(case: &Case, server: ServerId, size_bytes: u64) -> u128 {
    times(link_ns(case, server, size_bytes), case.options.link_price).into()
}

fn times(span_ns: u64, factor: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    let product = (span_ns as f64 * factor) as u64;
    product
}

/// Waits of the server's link that are tried, in transfer times.
const PATIENCES: [f64; 5] = [0.0, 0.5, 1.0, 2.0, 4.0];
/// Times that the gaps beside the best number of direct updates are halved.
const REFINEMENTS: usize = 3;
