//! Which lease a frame from a root is for, found without a look at the others.
//!
//! A root names its own row, so what comes from there is found by address and row; at most as many
//! steps as a search in 1,024 sorted rows takes. Fixed when the lane is made.

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::frame::UdpAddr;

use super::LeaseIndex;
use super::lease::Lease;

/// The roots of a lane's leases.
#[derive(Debug)]
pub(super) struct Roots {
    /// By where the root speaks from, and its row.
    leases: Vec<((UdpAddr, u16), LeaseIndex)>,
    /// A bit for each UDP port that a leaf sends up from; empty where there is no leaf.
    ports: Vec<u64>,
}

impl Roots {
    pub(super) fn new(leases: &[Lease]) -> Self {
        let mut found = Vec::new();
        let mut ports = Vec::new();
        for (lease, index) in leases.iter().zip(0..) {
            let (Some(upstream), Some(root)) = (&lease.upstream, &lease.row.parent) else {
                continue;
            };
            found.push(((upstream.root_addr().into(), root.row), LeaseIndex(index)));
            if ports.is_empty() {
                ports = vec![0; (1 << 16) / WORD_BITS];
            }
            let (word, bit) = place(upstream.port());
            ports[word] |= bit;
        }
        // Of two leases that name one row of a root the first hears it.
        found.sort_by_key(|(key, _)| *key);
        found.dedup_by_key(|(key, _)| *key);
        Self { leases: found, ports }
    }

    /// The lease of `row` at the root that speaks from `source`.
    pub(super) fn find(&self, source: UdpAddr, row: u16) -> Option<LeaseIndex> {
        let place = self.leases.binary_search_by_key(&(source, row), |(key, _)| *key).ok()?;
        Some(self.leases[place].1)
    }

    /// True when roots send to this port.
    pub(super) fn answer_to(&self, port: u16) -> bool {
        let (word, bit) = place(port);
        self.ports.get(word).is_some_and(|bits| bits & bit != 0)
    }
}

fn place(port: u16) -> (usize, u64) {
    (usize::from(port) / WORD_BITS, 1 << (usize::from(port) % WORD_BITS))
}

const WORD_BITS: usize = 64;
