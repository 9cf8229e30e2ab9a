//! What a seed lets happen.

use weft_engine::random::SplitMix64;
use weft_engine::role::keys::{Mode, ProcessLimits};
use weft_io::fault::FaultRates;

use crate::hash;

/// What a seed is about; the seed modulo their number chooses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A network that does what it likes.
    Faults,
    /// Sets among the adds.
    Sets,
    /// One key that everybody wants, all the time.
    Hot,
    /// The box restarts in the middle of moves.
    Restarts,
    /// A process is killed.
    Killed,
    /// A process is cut off until it is dead, and goes on.
    CutOff,
    /// Both: a process is killed and the box restarts.
    Both,
    /// Small maxima.
    Full,
}

/// Every kind.
pub const KINDS: [Kind; 8] = [
    Kind::Faults,
    Kind::Sets,
    Kind::Hot,
    Kind::Restarts,
    Kind::Killed,
    Kind::CutOff,
    Kind::Both,
    Kind::Full,
];

/// One seed's scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// What it is about.
    pub kind: Kind,
    /// Processes, 3 to 5.
    pub processes: u8,
    /// Sessions of each process: threads of the application.
    pub sessions: usize,
    /// Keys of the table.
    pub keys: u32,
    /// Operations of each session.
    pub operations: usize,
    /// Operations that a session has open at a time.
    pub open_max: usize,
    /// One in so many operations is a localize.
    pub localize_every: u64,
    /// Faults of the network.
    pub rates: FaultRates,
    /// Maxima of the processes.
    pub limits: ProcessLimits,
    /// When the box restarts, in nanoseconds.
    pub restarts: Vec<u64>,
    /// Which process is killed or cut off, and when.
    pub death: Option<(u8, u64)>,
    /// Where rows are.
    pub mode: Mode,
    /// Whether processes say what they are about to use, and clocks pass.
    pub is_managed: bool,
    /// Accesses to a key that a process may have in flight.
    pub in_flight: u8,
    /// Clocks that a copy may be older.
    pub staleness: u32,
    /// Whether processes remember who has a row.
    pub has_cache: bool,
    /// What arrives within so many nanoseconds is taken in one turn; 0: each in its own.
    pub burst_ns: u64,
}

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let kind = KINDS[usize::try_from(seed % KINDS.len() as u64).unwrap_or(0)];
        let mut random = SplitMix64::new(hash(&[seed, 0x6b65_7973]));
        let mut below = |count: u64| random.next_u64() % count;
        let processes = u8::try_from(3 + below(3)).unwrap_or(3);
        let some = |word: u64| [0.0, 0.01, 0.05, 0.15][usize::try_from(word).unwrap_or(0)];
        let rates = FaultRates {
            loss: some(below(4)),
            duplicate: some(below(4)),
            reorder: some(below(4)),
            delay: some(below(3)),
            corrupt: some(below(3)),
        };
        let is_hot = kind == Kind::Hot;
        let span = 2_000_000 + below(60_000_000);
        let restarts = match kind {
            Kind::Restarts => (0..=below(3)).map(|_| 1_000_000 + below(span)).collect(),
            Kind::Both => vec![1_000_000 + below(2 * span)],
            _ => Vec::new(),
        };
        let dies = matches!(kind, Kind::Killed | Kind::CutOff | Kind::Both);
        let victim = u8::try_from(below(processes.into())).unwrap_or(0);
        let death = dies.then(|| (victim, 1_000_000 + below(span)));
        let limits = ProcessLimits {
            active_keys_max: 64,
            key_queue_max: 64,
            queued_max: 256,
            remote_max: 64,
            transfers_max: 64,
            open_numbers_max: 256,
            intents_max: 64,
        };
        let small = ProcessLimits {
            active_keys_max: 3,
            key_queue_max: 3,
            queued_max: 6,
            remote_max: 1,
            transfers_max: 1,
            open_numbers_max: 2,
            intents_max: 64,
        };
        let sessions = usize::try_from(1 + below(3)).unwrap_or(1);
        let keys = if is_hot { 1 } else { u32::try_from(1 + below(40)).unwrap_or(1) };
        let operations = usize::try_from(20 + below(60)).unwrap_or(20);
        let open_max = usize::try_from(1 + below(4)).unwrap_or(1);
        let localize_every = if is_hot { 2 + below(4) } else { 3 + below(20) };
        let mode = match below(10) {
            0 => Mode::Classic,
            1 => Mode::ClassicFastLocal,
            _ => Mode::Relocation,
        };
        Self {
            seed,
            kind,
            processes,
            sessions,
            keys,
            operations,
            open_max,
            localize_every,
            mode,
            is_managed: false,
            in_flight: 1,
            staleness: 1,
            has_cache: below(2) == 0,
            burst_ns: [0, 0, 50_000, 400_000][usize::try_from(below(4)).unwrap_or(0)],
            rates,
            limits: if kind == Kind::Full { small } else { limits },
            restarts,
            death,
        }
    }

    /// The scenario of a seed with intents, clocks and copies. There are no sets, which would hide
    /// adds.
    #[must_use]
    pub fn managed(seed: u64) -> Self {
        let mut random = SplitMix64::new(hash(&[seed, 0x636f_7079]));
        let mut scenario = Self::new(seed);
        scenario.is_managed = true;
        scenario.kind = if scenario.kind == Kind::Sets { Kind::Faults } else { scenario.kind };
        scenario.staleness = u32::try_from(random.next_u64() % 3).unwrap_or(0);
        scenario.mode = match random.next_u64() % 4 {
            0 => Mode::StaleClient,
            1 => Mode::StaleServer,
            _ => Mode::Relocation,
        };
        scenario
    }

    /// The scenario of a seed with two to four accesses to a key in flight, of sessions that do not
    /// wait much. What they saw is held to what was done before what.
    #[must_use]
    pub fn lanes(seed: u64) -> Self {
        let mut random = SplitMix64::new(hash(&[seed, 0x6c61_6e65]));
        let mut scenario = Self::new(seed);
        scenario.in_flight = u8::try_from(2 + random.next_u64() % 3).unwrap_or(2);
        scenario.open_max = usize::try_from(1 + random.next_u64() % 12).unwrap_or(1);
        scenario
    }

    /// Sessions of all processes.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions * usize::from(self.processes)
    }

    /// Elements of a row: one a session, and which set was the last.
    #[must_use]
    pub fn row_len(&self) -> usize {
        self.session_count() + 1
    }
}
