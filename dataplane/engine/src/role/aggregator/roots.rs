//! Which lease a frame from a root is for, found without a look at the others.
//!
//! A root names its own row, so what comes from there is found by address and row. O(1) per frame;
//! made anew when a lease comes or goes, in the memory that was taken at the start.

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
    /// Where they speak from, and their rows that leases here are members of.
    rows: Addresses<(UdpAddr, u16)>,
    /// By the number of the root's row.
    leases: Vec<LeaseIndex>,
    /// A bit for each UDP port that a leaf sends up from.
    ports: Vec<u64>,
}

impl Roots {
    /// Takes the memory of so many leases.
    pub(super) fn new(leases_max: usize) -> Self {
        Self {
            rows: Addresses::new(leases_max),
            leases: Vec::with_capacity(leases_max),
            ports: vec![0; PORT_COUNT / WORD_BITS],
        }
    }

    /// To be called when a lease has come or gone.
    pub(super) fn renew(&mut self, leases: &[Lease]) {
        let roots = leases.iter().zip(0..).filter_map(|(lease, index)| {
            let (upstream, root) = (lease.upstream.as_ref()?, lease.row.parent.as_ref()?);
            // A root has no other rows.
            let is_row = usize::from(root.row) < ROWS_MAX;
            let key = (upstream.root_addr().into(), root.row);
            is_row.then_some((key, upstream.port(), LeaseIndex(index)))
        });
        self.rows.renew(roots.clone().map(|(key, ..)| key));
        self.leases.clear();
        self.ports.fill(0);
        for (key, port, lease) in roots {
            // Of two leases that name one row of a root the first hears it.
            if self.rows.find(key) == Some(self.leases.len()) {
                self.leases.push(lease);
            }
            let (word, bit) = place(port);
            self.ports[word] |= bit;
        }
    }

    /// The lease of `row` at the root that speaks from `source`.
    pub(super) fn find(&self, source: UdpAddr, row: u16) -> Option<LeaseIndex> {
        if self.leases.is_empty() {
            return None;
        }
        self.leases.get(self.rows.find((source, row))?).copied()
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
