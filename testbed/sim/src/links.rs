//! The links of the hosts: what a frame waits for before it is through. Work conserving, first come
//! first served, one queue for each host and direction; nothing is lost here.

use weft_wire::Nanos;

/// All links, by host.
#[derive(Clone, Debug)]
pub struct Links {
    hosts: Vec<[Link; 2]>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    rate_bytes_per_sec: u64,
    free_at: Nanos,
    carried_bytes: u64,
}

const UP: usize = 0;
const DOWN: usize = 1;

impl Links {
    /// Idle links with these rates up and down, bytes of Ethernet frames per second.
    #[must_use]
    pub fn new(rates: &[[u64; 2]]) -> Self {
        let link =
            |rate_bytes_per_sec| Link { rate_bytes_per_sec, free_at: Nanos(0), carried_bytes: 0 };
        Self { hosts: rates.iter().map(|rates| rates.map(link)).collect() }
    }

    /// Sends a frame from a host to another; when it is through both links. At once where the run
    /// has no rates.
    pub fn pass(&mut self, now: Nanos, from: usize, to: usize, len_bytes: usize) -> Nanos {
        let through = match self.hosts.get_mut(from) {
            Some(links) => links[UP].pass(now, len_bytes as u64),
            None => now,
        };
        match self.hosts.get_mut(to) {
            Some(links) => links[DOWN].pass(through, len_bytes as u64),
            None => through,
        }
    }

    /// Bytes that a host has received and sent.
    #[must_use]
    pub fn carried(&self, host: usize) -> (u64, u64) {
        self.hosts
            .get(host)
            .map_or((0, 0), |links| (links[DOWN].carried_bytes, links[UP].carried_bytes))
    }
}

impl Link {
    fn pass(&mut self, now: Nanos, len_bytes: u64) -> Nanos {
        let span_ns = len_bytes * 1_000_000_000 / self.rate_bytes_per_sec.max(1);
        self.free_at = self.free_at.max(now).saturating_add(Nanos(span_ns));
        self.carried_bytes += len_bytes;
        self.free_at
    }
}
