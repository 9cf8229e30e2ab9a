//! Which lease a frame from a root is for, found without a look at the others.
//!
//! A root names its own row, so what comes from there is found by address and row. O(1) per frame;
//! fixed when the lane is made.

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::frame::UdpAddr;

use super::lease::Lease;
use crate::admit::addresses::Addresses;
use crate::role::LeaseIndex;
use crate::table::ROWS_MAX;

/// The roots of a lane's leases.
#[derive(Debug)]
pub(super) struct Roots {
    /// Where they speak from.
    addresses: Addresses,
    /// By the number of the root's address: its rows that leases here are members of.
    rows: Vec<Vec<Option<LeaseIndex>>>,
    /// A bit for each UDP port that a leaf sends up from; empty where there is no leaf.
    ports: Vec<u64>,
}

impl Roots {
    pub(super) fn new(leases: &[Lease]) -> Self {
        let roots = leases.iter().zip(0..).filter_map(|(lease, index)| {
            let (upstream, root) = (lease.upstream.as_ref()?, lease.row.parent.as_ref()?);
            // A root has no other rows.
            let row = usize::from(root.row);
            (row < ROWS_MAX).then_some((upstream, row, LeaseIndex(index)))
        });
        let addresses =
            Addresses::new(roots.clone().map(|(upstream, ..)| upstream.root_addr().into()));
        let mut rows = vec![Vec::new(); addresses.len()];
        let mut ports = Vec::new();
        for (upstream, row, index) in roots {
            let number = addresses.find(upstream.root_addr().into()).expect("it was just named");
            let rows: &mut Vec<Option<LeaseIndex>> = &mut rows[number];
            rows.resize(rows.len().max(row + 1), None);
            // Of two leases that name one row of a root the first hears it.
            rows[row].get_or_insert(index);
            ports.resize(PORT_COUNT / WORD_BITS, 0);
            let (word, bit) = place(upstream.port());
            ports[word] |= bit;
        }
        Self { addresses, rows, ports }
    }

    /// The lease of `row` at the root that speaks from `source`.
    pub(super) fn find(&self, source: UdpAddr, row: u16) -> Option<LeaseIndex> {
        if self.rows.is_empty() {
            return None;
        }
        let rows = &self.rows[self.addresses.find(source)?];
        rows.get(usize::from(row)).copied().flatten()
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

const PORT_COUNT: usize = 1 << 16;
const WORD_BITS: usize = 64;
