//! Seeded generators: cookies, epochs, lives and tokens come from them, so a run is a function of
//! its seed (I10). Not for secrets against an attacker on the path (PROTOCOL section 6).
//!
//! What an engine of a box draws it draws by [`Label`], through a [`Random`]. A [`Tape`] hears of
//! each draw and may answer with another number: one that records keeps what was drawn, one that
//! replays gives it back by its label. So code that draws once more, or in another order, finds
//! all other numbers as they were. Without a tape the numbers are the generator's own.

use alloc::sync::Arc;
use core::fmt;

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Starts the sequence of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next 32 bits.
    pub const fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// The next 64 bits that are not all zero.
    pub const fn next_non_zero(&mut self) -> u64 {
        loop {
            let word = self.next_u64();
            if word != 0 {
                return word;
            }
        }
    }
}

/// What an engine begins with: a seed, and who hears of what is drawn from it.
#[derive(Clone, Debug)]
pub struct Seed {
    value: u64,
    tape: Option<Arc<dyn Tape>>,
}

impl From<u64> for Seed {
    fn from(value: u64) -> Self {
        Self { value, tape: None }
    }
}

impl Seed {
    /// Has `tape` hear of every draw.
    #[must_use]
    pub fn with_tape(self, tape: Arc<dyn Tape>) -> Self {
        Self { tape: Some(tape), ..self }
    }

    /// The same with another value.
    #[must_use]
    pub(crate) fn map(&self, value: impl FnOnce(u64) -> u64) -> Self {
        Self { value: value(self.value), tape: self.tape.clone() }
    }

    /// The generator of this seed.
    #[must_use]
    pub(crate) fn random(self, owner: Owner) -> Random {
        Random { sequence: SplitMix64::new(self.value), owner, tape: self.tape }
    }
}

/// A generator whose draws have labels.
#[derive(Clone, Debug)]
pub struct Random {
    sequence: SplitMix64,
    owner: Owner,
    tape: Option<Arc<dyn Tape>>,
}

/// The generator as it is, for channels that belong to no engine of a box.
impl From<SplitMix64> for Random {
    fn from(sequence: SplitMix64) -> Self {
        Self { sequence, owner: Owner::Lane, tape: None }
    }
}

impl Random {
    /// A generator for `owner`, whose sequence this one decides.
    #[must_use]
    pub(crate) fn child(&mut self, owner: Owner) -> Self {
        let sequence = SplitMix64::new(self.sequence.next_u64());
        Self { sequence, owner, tape: self.tape.clone() }
    }

    /// The same generator; what comes next is drawn for `owner`.
    pub(crate) fn of(&mut self, owner: Owner) -> &mut Self {
        self.owner = owner;
        self
    }

    /// The next 64 bits.
    pub(crate) fn next_u64(&mut self, draw: Draw) -> u64 {
        let word = self.sequence.next_u64();
        self.told(draw, word)
    }

    /// The next 32 bits.
    pub(crate) fn next_u32(&mut self, draw: Draw) -> u32 {
        let word = self.sequence.next_u32();
        let told = self.told(draw, word.into());
        u32::try_from(told).unwrap_or(word)
    }

    /// The next 64 bits that are not all zero.
    pub(crate) fn next_non_zero(&mut self, draw: Draw) -> u64 {
        let word = self.sequence.next_non_zero();
        match self.told(draw, word) {
            0 => word,
            told => told,
        }
    }

    fn told(&self, draw: Draw, word: u64) -> u64 {
        let Some(tape) = &self.tape else { return word };
        tape.draw(Label { owner: self.owner, draw }, word)
    }
}

/// Who hears of every draw.
pub trait Tape: fmt::Debug + Send + Sync {
    /// `word` was drawn under this label; returns the number to use.
    fn draw(&self, label: Label, word: u64) -> u64;
}

/// What a number is drawn for. The text of a label is kept in recordings and does not change.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Label {
    /// Whose it is.
    pub owner: Owner,
    /// What it is.
    pub draw: Draw,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.owner, self.draw)
    }
}

/// Whose a drawn number is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Owner {
    /// Everybody's in a lane.
    Lane,
    /// The lease of a row.
    Row(u16),
    /// A push job's at an aggregator.
    Push(u16),
    /// A server's job's.
    Server(u16),
    /// A replica's job's.
    Replica(u16),
    /// That of a job whose replica has become its server.
    Successor(u16),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lane => f.write_str("lane"),
            Self::Row(row) => write!(f, "row-{row}"),
            Self::Push(job) => write!(f, "push-{job}"),
            Self::Server(job) => write!(f, "server-{job}"),
            Self::Replica(job) => write!(f, "replica-{job}"),
            Self::Successor(job) => write!(f, "successor-{job}"),
        }
    }
}

/// What is drawn.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Draw {
    /// The first epoch.
    Epoch,
    /// A half of the key of tokens.
    Secret(u8),
    /// The cookie of what a peer sends, by rank or place.
    CookieUp(u8),
    /// The cookie of what it is sent.
    CookieDown(u8),
    /// A session.
    Session,
    /// The life of a box, as its peers see it.
    Life,
}

impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Epoch => f.write_str("epoch"),
            Self::Secret(half) => write!(f, "secret-{half}"),
            Self::CookieUp(peer) => write!(f, "cookie_up-{peer}"),
            Self::CookieDown(peer) => write!(f, "cookie_down-{peer}"),
            Self::Session => f.write_str("session"),
            Self::Life => f.write_str("life"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers one label with a number of its own.
    #[derive(Debug)]
    struct Other(Label, u64);

    impl Tape for Other {
        fn draw(&self, label: Label, word: u64) -> u64 {
            if label == self.0 { self.1 } else { word }
        }
    }

    #[test]
    fn a_tape_changes_what_is_drawn_under_its_label_and_nothing_else() {
        let mut plain = Seed::from(7).random(Owner::Lane);
        let label = Label { owner: Owner::Row(3), draw: Draw::CookieUp(1) };
        let mut taped = Seed::from(7).with_tape(Arc::new(Other(label, 99))).random(Owner::Lane);
        assert_eq!(taped.next_u64(Draw::Secret(0)), plain.next_u64(Draw::Secret(0)));
        assert_eq!(taped.of(Owner::Row(3)).next_u32(Draw::CookieUp(1)), 99);
        plain.next_u32(Draw::CookieUp(1));
        assert_eq!(taped.next_u32(Draw::CookieUp(2)), plain.next_u32(Draw::CookieUp(2)));
        let (mut a, mut b) = (taped.child(Owner::Server(0)), plain.child(Owner::Server(0)));
        assert_eq!(a.next_non_zero(Draw::Life), b.next_non_zero(Draw::Life));
    }

    #[test]
    fn a_number_that_does_not_fit_is_not_taken() {
        let label = Label { owner: Owner::Lane, draw: Draw::Epoch };
        let taped =
            |word| Seed::from(1).with_tape(Arc::new(Other(label, word))).random(Owner::Lane);
        let drawn = Seed::from(1).random(Owner::Lane).next_u32(Draw::Epoch);
        assert_eq!(taped(u64::MAX).next_u32(Draw::Epoch), drawn);
        assert_ne!(taped(0).next_non_zero(Draw::Epoch), 0);
    }

    #[test]
    fn labels_have_words_that_recordings_keep() {
        let label = Label { owner: Owner::Successor(2), draw: Draw::CookieDown(63) };
        assert_eq!(alloc::format!("{label}"), "successor-2 cookie_down-63");
    }
}
