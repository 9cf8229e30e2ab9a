//! What a box counts and a controller shows: frames that it refused, by reason; frames that its
//! port lost; what became of the frames of each band, where its port has queues for them.
//!
//! Every refused frame counts under exactly one reason (DESIGN I7); the order of the checks is
//! SPEC#checks.

use alloc::format;
use alloc::string::String;

use crate::JOB_BANDS;

/// Why a frame changed nothing.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum DropReason {
    /// Frame or datagram shorter than it says, or longer than a datagram of its kind.
    Length,
    /// 802.1Q or 802.1ad tag.
    Vlan,
    /// IP fragment.
    Fragment,
    /// IPv4 options or wrong version nibble.
    IpHeader,
    /// IPv4 header checksum.
    IpChecksum,
    /// Neither IP nor anything that the host side of the port answers.
    NotIp,
    /// Addressed to another host or port.
    NotForUs,
    /// Unknown protocol version.
    Version,
    /// Unknown kind, element type or operation, or a kind that this box does not serve.
    Kind,
    /// The job is not in the table.
    UnknownJob,
    /// The row is not in the table, or is another job's.
    UnknownGroup,
    /// `members` is not exactly one bit inside the mask.
    BadMembers,
    /// The cookie is of an earlier epoch, or the lease is not open.
    StaleEpoch,
    /// The cookie is of this epoch but not of this member's life.
    BadCookie,
    /// The group's generation is not the present one.
    StaleGroup,
    /// The source is not the member's address in the table.
    WrongSource,
    /// The chunk or the source port belongs to another lane.
    WrongShard,
    /// The job's token bucket is empty.
    OverQuota,
    /// It does not show whose it is, and the bucket of its source is empty: it is not answered.
    StrangersQuota,
    /// Chunk at or above the group's count.
    ChunkOutOfRange,
    /// Element count not the row's.
    ElementCount,
    /// Element type not the row's.
    ElementType,
    /// Operation not the row's.
    Operation,
    /// Scale exponent without meaning, not the row's, or not the slot's.
    Exponent,
    /// CRC32C or UDP checksum wrong, or missing where the row demands it.
    Integrity,
    /// The step may not claim its bank: older or newer than the slot allows.
    StaleStep,
    /// The rank is already in the sum; it was told so.
    Duplicate,
    /// A hand-over that nobody asked this member for.
    Unwanted,
    /// Malformed handshake body, or a phase that does not go this way.
    Handshake,
    /// The handshake's token is not fresh.
    Token,
    /// An answer or state that matches nothing in flight.
    Unsolicited,
}

impl DropReason {
    /// Number of reasons.
    pub const COUNT: usize = Self::ALL.len();

    /// Every reason with its name in metrics and reports, in the order of the enum.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Length, "length"),
        (Self::Vlan, "vlan"),
        (Self::Fragment, "fragment"),
        (Self::IpHeader, "ip_header"),
        (Self::IpChecksum, "ip_checksum"),
        (Self::NotIp, "not_ip"),
        (Self::NotForUs, "not_for_us"),
        (Self::Version, "version"),
        (Self::Kind, "kind"),
        (Self::UnknownJob, "unknown_job"),
        (Self::UnknownGroup, "unknown_group"),
        (Self::BadMembers, "bad_members"),
        (Self::StaleEpoch, "stale_epoch"),
        (Self::BadCookie, "bad_cookie"),
        (Self::StaleGroup, "stale_group"),
        (Self::WrongSource, "wrong_source"),
        (Self::WrongShard, "wrong_shard"),
        (Self::OverQuota, "over_quota"),
        (Self::StrangersQuota, "strangers_quota"),
        (Self::ChunkOutOfRange, "chunk_out_of_range"),
        (Self::ElementCount, "element_count"),
        (Self::ElementType, "element_type"),
        (Self::Operation, "operation"),
        (Self::Exponent, "exponent"),
        (Self::Integrity, "integrity"),
        (Self::StaleStep, "stale_step"),
        (Self::Duplicate, "duplicate"),
        (Self::Unwanted, "unwanted"),
        (Self::Handshake, "handshake"),
        (Self::Token, "token"),
        (Self::Unsolicited, "unsolicited"),
    ];

    /// The reason's name in metrics and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The remedy for frames that lack what their sender's kernel leaves to hardware: a veth has
    /// none, and passes them on as they are.
    #[must_use]
    pub fn remedy(self) -> Option<String> {
        let cause = match self {
            Self::Length => "joined frames that nothing has cut",
            Self::IpChecksum | Self::Integrity => "checksums that nothing has filled in",
            _ => return None,
        };
        let name = self.name();
        Some(format!(
            "{name}: from a veth these are {cause}; at the sender's end of it, `{OFFLOADS_OFF}`"
        ))
    }
}

/// The command that has a sender's kernel cut frames and fill in checksums itself.
pub const OFFLOADS_OFF: &str = "ethtool -K DEV tx off gso off tso off gro off";

const _: () = {
    let mut index = 0;
    while index < DropReason::COUNT {
        assert!(DropReason::ALL[index].0 as usize == index, "ALL is in the order of the enum");
        index += 1;
    }
};

/// What became of the frames of a band.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BandFigures {
    /// Frames sent.
    pub sent: u64,
    /// Bytes of them.
    pub sent_bytes: u64,
    /// Frames lost because the band's queue was full.
    pub full: u64,
    /// Of those sent: before better bands, because they had waited for the age limit.
    pub aged: u64,
    /// The longest that one waited.
    pub wait_max_ns: u64,
    /// Frames that wait.
    pub waiting: u64,
    /// Bytes of them.
    pub waiting_bytes: u64,
    /// How long the oldest of them has waited.
    pub oldest_ns: u64,
}

impl BandFigures {
    const fn counters(&self) -> [u64; 5] {
        [self.sent, self.sent_bytes, self.full, self.aged, self.wait_max_ns]
    }

    /// With what was counted elsewhere, or before.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            sent: self.sent.saturating_add(other.sent),
            sent_bytes: self.sent_bytes.saturating_add(other.sent_bytes),
            full: self.full.saturating_add(other.full),
            aged: self.aged.saturating_add(other.aged),
            wait_max_ns: self.wait_max_ns.max(other.wait_max_ns),
            waiting: self.waiting.saturating_add(other.waiting),
            waiting_bytes: self.waiting_bytes.saturating_add(other.waiting_bytes),
            oldest_ns: self.oldest_ns.max(other.oldest_ns),
        }
    }
}

/// What a box has counted since it started. Of fixed size, whatever anybody tells.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BoxFigures {
    /// Frames refused, in the order of [`DropReason::ALL`].
    pub drops: [u64; DropReason::COUNT],
    /// Frames refused for reasons that this version does not know.
    pub drops_other: u64,
    /// Frames that were to be received and found no room, or were damaged.
    pub rx_dropped: u64,
    /// Frames that were to be sent and were not.
    pub tx_dropped: u64,
    /// In the order of [`QUEUES`]; none where the port has no queues for bands.
    pub bands: Option<[BandFigures; QUEUES.len()]>,
}

impl Default for BoxFigures {
    fn default() -> Self {
        Self {
            drops: [0; DropReason::COUNT],
            drops_other: 0,
            rx_dropped: 0,
            tx_dropped: 0,
            bands: None,
        }
    }
}

impl BoxFigures {
    /// Whether all that only grows is what it was before, or more.
    #[must_use]
    pub fn continues(&self, before: &Self) -> bool {
        let grows = |now: &[u64], before: &[u64]| now.iter().zip(before).all(|(n, b)| n >= b);
        let bands = match (&self.bands, &before.bands) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(now), Some(before)) => {
                now.iter().zip(before).all(|(n, b)| grows(&n.counters(), &b.counters()))
            }
        };
        bands && grows(&self.drops, &before.drops) && grows(&self.others(), &before.others())
    }

    const fn others(&self) -> [u64; 3] {
        [self.drops_other, self.rx_dropped, self.tx_dropped]
    }

    /// With what was counted elsewhere, or before.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let bands = match (&self.bands, &other.bands) {
            (Some(some), Some(more)) => {
                Some(core::array::from_fn(|queue| some[queue].plus(&more[queue])))
            }
            (some, more) => (*some).or(*more),
        };
        Self {
            drops: core::array::from_fn(|at| self.drops[at].saturating_add(other.drops[at])),
            drops_other: self.drops_other.saturating_add(other.drops_other),
            rx_dropped: self.rx_dropped.saturating_add(other.rx_dropped),
            tx_dropped: self.tx_dropped.saturating_add(other.tx_dropped),
            bands,
        }
    }

    /// Of a box that is gone, or has begun anew: what waited is not known.
    pub fn forget_waiting(&mut self) {
        for band in self.bands.iter_mut().flatten() {
            (band.waiting, band.waiting_bytes, band.oldest_ns) = (0, 0, 0);
        }
    }
}

/// The name of frames refused for a reason that this version does not know.
pub const DROP_OTHER: &str = "other";

/// Queues of a port with bands, by name: those of jobs' bands, of which 0 goes first; the rest; and
/// frames without elements, which wait for no band.
pub const QUEUES: [&str; 9] = ["0", "1", "2", "3", "4", "5", "6", "rest", "bare"];
const _: () = assert!(QUEUES.len() == JOB_BANDS as usize + 2);

#[cfg(test)]
mod tests;
