//! Why a frame was refused. Every refused frame counts under exactly one reason (DESIGN I7); the
//! order of the checks is SPEC#checks.

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
}

const _: () = {
    let mut index = 0;
    while index < DropReason::COUNT {
        assert!(DropReason::ALL[index].0 as usize == index, "ALL is in the order of the enum");
        index += 1;
    }
};

/// One counter per [`DropReason`].
#[derive(Clone, Debug)]
pub struct DropCounters([u64; DropReason::COUNT]);

impl Default for DropCounters {
    fn default() -> Self {
        Self([0; DropReason::COUNT])
    }
}

impl DropCounters {
    /// Counts one refused frame.
    pub fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// Counts frames that were refused elsewhere.
    pub fn count_many(&mut self, reason: DropReason, count: u64) {
        self.0[reason as usize] += count;
    }

    /// Frames refused for `reason`.
    #[must_use]
    pub fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Frames refused for any reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Reasons and counts, in the order of the enum.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|(reason, _)| (*reason, self.of(*reason)))
    }
}
