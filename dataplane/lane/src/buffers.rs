//! How much a socket of a box has to hold. Decides only.
//!
//! Members send as much as their windows allow, and on a host with few cores the box may not run
//! until all have: what its socket has no room for is lost, and a loss costs a timeout.

use weft_engine::table::BoxConfig;
use weft_io::udp::GrantedBuffers;
use weft_wire::header::HEADER_LEN;

/// Bytes to ask for: what the members of all rows may have under way together, at least
/// `configured`, at most 64 MiB. The kernel doubles it for its own book-keeping.
#[must_use]
pub fn asked(table: &BoxConfig, configured: usize) -> usize {
    let under_way = table.rows.iter().map(|row| {
        let chunk = usize::from(row.elements) * row.element_type.len_bytes();
        row.members.len() * usize::from(row.window) * (HEADER_LEN + chunk + OVERHEAD)
    });
    configured.max(under_way.sum::<usize>().min(ASKED_MAX))
}

/// What to say when the kernel granted less than was asked for.
#[must_use]
pub fn shortfall(granted: GrantedBuffers, asked: usize) -> Option<String> {
    let rx_bytes = granted.rx_bytes / 2;
    (rx_bytes < asked).then(|| {
        format!(
            "the kernel grants {rx_bytes} bytes of receive buffer of the {asked} that the members \
             may fill, so bursts may be lost: `sysctl -w net.core.rmem_max={asked}`, or run with \
             CAP_NET_ADMIN"
        )
    })
}

/// A limit, for every socket may hold as much.
const ASKED_MAX: usize = 64 << 20;
/// What the kernel counts for a datagram besides twice its bytes, halved.
const OVERHEAD: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_was_asked_for_is_worth_a_line() {
        let granted = |rx_bytes| GrantedBuffers { rx_bytes, tx_bytes: 0 };
        assert_eq!(shortfall(granted(8 << 20), 4 << 20), None);
        let line = shortfall(granted(425_984), 4 << 20).unwrap();
        assert!(line.contains("212992") && line.contains("rmem_max=4194304"), "{line}");
    }
}
