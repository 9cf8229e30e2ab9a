//! Decides what happens to a datagram: a pure function of seed, identity and attempt.
//!
//! DESIGN, "Seeds": fault decisions are a hash of (seed, job, group, chunk, rank, attempt), so the
//! same packet meets the same fate in every run and on every port, whatever arrives before it. The
//! kind is part of the identity, and the member set stands for the rank. Not in it: flags, cookie
//! and addresses, which differ from run to run.

use weft_wire::header::{HeaderError, Kind, Packet, VERSION};
use weft_wire::{ChunkIndex, GroupId, JobId, Members};

/// How often each fault happens, as probabilities from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultRates {
    /// The datagram vanishes; then no other fault matters.
    pub loss: f64,
    /// A second copy follows at once.
    pub duplicate: f64,
    /// Some later datagrams overtake it.
    pub reorder: f64,
    /// It comes later, by a time between the bounds of `FaultConfig`.
    pub delay: f64,
    /// A range of its bytes is overwritten.
    pub corrupt: f64,
}

impl FaultRates {
    /// No fault at all.
    pub const NONE: Self =
        Self { loss: 0.0, duplicate: 0.0, reorder: 0.0, delay: 0.0, corrupt: 0.0 };

    /// True when every rate is a probability.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let rates = [self.loss, self.duplicate, self.reorder, self.delay, self.corrupt];
        rates.iter().all(|rate| (0.0..=1.0).contains(rate))
    }
}

/// What makes two datagrams the same one, sent again.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Identity {
    /// What the datagram is.
    pub kind: Kind,
    /// The job.
    pub job: JobId,
    /// The group.
    pub group: GroupId,
    /// The chunk.
    pub chunk: ChunkIndex,
    /// A contribution's one bit, or a sum's contributors.
    pub members: Members,
}

impl Identity {
    /// Reads the identity off a datagram.
    ///
    /// # Errors
    /// [`HeaderError`] when this is no Weft datagram. Its payload is not looked at.
    pub fn of(datagram: &[u8]) -> Result<Self, HeaderError> {
        let packet = Packet::new_checked(datagram)?;
        if packet.version() != VERSION {
            return Err(HeaderError::Version);
        }
        Ok(Self {
            kind: packet.kind().ok_or(HeaderError::Kind)?,
            job: packet.job(),
            group: packet.group(),
            chunk: packet.chunk(),
            members: packet.members(),
        })
    }

    /// A hash of the identity, the same on every machine.
    #[must_use]
    pub fn key(&self) -> u64 {
        let kind_job = (self.kind as u64) << 16 | u64::from(self.job.0);
        let group_chunk = u64::from(self.group.0) << 32 | u64::from(self.chunk.0);
        mix(mix(mix(0, kind_job), group_chunk), self.members.0)
    }
}

/// What happens to one datagram. Words are uniform over 64 bits, for the details of a fault.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Fate {
    /// It vanishes. The other fields are then empty.
    pub lost: bool,
    /// A second copy follows at once.
    pub duplicated: bool,
    /// Later datagrams overtake it; the word says how many.
    pub reordered: Option<u64>,
    /// It is held; the word says for how long.
    pub delayed: Option<u64>,
    /// Bytes are overwritten; the word is the seed for [`corrupt`].
    pub corrupted: Option<u64>,
}

impl Fate {
    /// How many faults hit the datagram.
    #[must_use]
    pub fn fault_count(&self) -> u32 {
        [
            self.lost,
            self.duplicated,
            self.reordered.is_some(),
            self.delayed.is_some(),
            self.corrupted.is_some(),
        ]
        .into_iter()
        .map(u32::from)
        .sum()
    }
}

/// The fate of the `attempt`-th datagram with this identity key, counted from 0.
#[must_use]
pub fn fate(rates: &FaultRates, seed: u64, key: u64, attempt: u32) -> Fate {
    let base = mix(mix(seed, key), u64::from(attempt));
    // One independent draw per fault, so that changing one rate leaves the others' fates alone.
    let hit = |rate: f64, fault: u64| is_below(mix(base, fault), rate);
    let detail = |rate: f64, fault: u64| hit(rate, fault).then(|| mix(base, fault + 100));
    if hit(rates.loss, 1) {
        return Fate { lost: true, ..Fate::default() };
    }
    Fate {
        lost: false,
        duplicated: hit(rates.duplicate, 2),
        reordered: detail(rates.reorder, 3),
        delayed: detail(rates.delay, 4),
        corrupted: detail(rates.corrupt, 5),
    }
}

/// Overwrites a range of `bytes`, at most [`CORRUPT_LEN_MAX`] of them; each byte of the range
/// comes out different. Never single bits: those are what checksums are best at (PROTOCOL
/// section 8). Returns the range.
pub fn corrupt(bytes: &mut [u8], word: u64) -> std::ops::Range<usize> {
    if bytes.is_empty() {
        return 0..0;
    }
    let start = pick(mix(word, 1), bytes.len());
    let len = 1 + pick(mix(word, 2), CORRUPT_LEN_MAX.min(bytes.len() - start));
    for (index, byte) in bytes[start..start + len].iter_mut().enumerate() {
        let [noise, ..] = mix(word, 1000 + index as u64).to_be_bytes();
        *byte ^= if noise == 0 { 0xff } else { noise };
    }
    start..start + len
}

/// The seed of one member's port, so that members of one run do not all lose the same answer: a
/// multicast answer has one identity.
#[must_use]
pub fn member_seed(seed: u64, rank: u8) -> u64 {
    mix(seed, 1 + u64::from(rank))
}

/// Longest run of overwritten bytes.
pub const CORRUPT_LEN_MAX: usize = 64;

/// Maps a uniform word onto `0..count`. `count` is not 0.
#[expect(clippy::cast_possible_truncation, reason = "the product's high word is below count")]
const fn pick(word: u64, count: usize) -> usize {
    ((word as u128 * count as u128) >> 64) as usize
}

/// Maps a uniform word onto `min..=max`.
pub(super) fn between(word: u64, min: u64, max: u64) -> u64 {
    let count = u128::from(max - min) + 1;
    min + ((u128::from(word) * count) >> 64) as u64
}

/// True for a share `rate` of all words.
fn is_below(word: u64, rate: f64) -> bool {
    // 53 bits, which a double holds exactly; 1.0 is above all of them.
    ((word >> 11) as f64) < rate * (1_u64 << 53) as f64
}

/// Mixes a word into a hash: splitmix64's finaliser (Steele, Lea and Flood, OOPSLA 2014).
const fn mix(hash: u64, word: u64) -> u64 {
    let mut z =
        (hash ^ word.wrapping_mul(0xd6e8_feb8_6659_fd93)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
