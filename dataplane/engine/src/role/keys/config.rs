//! What a table is, and the maxima of its processes (PROTOCOL section 13, "Maxima").

use core::fmt;

use weft_wire::frame::UdpAddr;
use weft_wire::header::HEADER_LEN;
use weft_wire::keys::{ELEMENT_LEN, HEAD_LEN, LAST_LEN, Number, ROW_HEAD_LEN};
use weft_wire::rows::{ROW_KEYS, TABLES_MAX};
use weft_wire::{JobId, MEMBERS_MAX, Members, Nanos};

/// Processes of a table.
pub const PROCESSES_MAX: usize = MEMBERS_MAX;
/// How often a frame is sent on before its sender has to ask again.
pub const HOPS_MAX: u8 = 4;
/// Kept copies of one key at one process.
pub const KEPT_PER_KEY_MAX: usize = 3;
/// Accesses to one key that a process may have in flight.
pub const IN_FLIGHT_MAX: u8 = 4;
/// Keys of one claim.
pub const BLOCK_LEN: u32 = 16;
/// Keys of a table at most.
pub const KEYS_MAX: u32 = 1 << 28;

/// A table, as all its processes and its box must have it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TableConfig {
    /// Whose it is.
    pub job: JobId,
    /// Which of the job's tables.
    pub table: u16,
    /// Elements of a row.
    pub row_len: u16,
    /// The first key.
    pub first_key: u64,
    /// Keys, one after the other.
    pub key_count: u32,
    /// Processes, 0 to this.
    pub processes: u8,
    /// UDP payload bytes of the longest datagram.
    pub payload_max: u16,
    /// Accesses to one key that a process may have in flight, each in a lane of its own. With more
    /// than one, what a process calls for a key without waiting is done in any order.
    pub in_flight: u8,
}

impl TableConfig {
    /// Says what is wrong with the table, if anything is.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn check(&self) -> Result<(), TableError> {
        if self.table >= TABLES_MAX {
            return Err(TableError::Table(self.table));
        }
        if self.row_len == 0 {
            return Err(TableError::NoElements);
        }
        let last = u64::from(self.key_count).saturating_sub(1);
        let is_range = self.first_key.checked_add(last).is_some();
        if self.key_count == 0 || self.key_count > KEYS_MAX || !is_range {
            return Err(TableError::Keys(self.key_count));
        }
        if self.processes == 0 || usize::from(self.processes) > PROCESSES_MAX {
            return Err(TableError::Processes(self.processes));
        }
        if self.in_flight == 0 || self.in_flight > IN_FLIGHT_MAX {
            return Err(TableError::InFlight(self.in_flight));
        }
        let needed = self.row_datagram_len();
        if needed > usize::from(self.payload_max) {
            let payload_max = self.payload_max;
            return Err(TableError::RowTooLong { needed, payload_max });
        }
        Ok(())
    }

    /// As [`TableConfig::check`], of a process in this mode: an answer does not tell which own
    /// operations of other lanes it has, so tables with copies have one.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn check_in(&self, mode: Mode) -> Result<(), TableError> {
        self.check()?;
        if self.in_flight > 1 && mode.is_stale() {
            return Err(TableError::InFlight(self.in_flight));
        }
        Ok(())
    }

    /// Bytes of the longest datagram that one row or one access can need.
    fn row_datagram_len(&self) -> usize {
        let value_len = usize::from(self.row_len) * ELEMENT_LEN;
        let floors_len = usize::from(self.processes) * LAST_LEN;
        let row = ROW_HEAD_LEN + floors_len + self.lasts_per_row() * LAST_LEN + value_len;
        let access = ROW_HEAD_LEN + 2 * value_len;
        HEADER_LEN + HEAD_LEN + row.max(access).max(CLAIM_BLOCK_LEN)
    }

    /// The table's row in headers.
    #[must_use]
    pub fn row(&self) -> u16 {
        ROW_KEYS + self.table
    }

    /// The place of a key in the table.
    #[must_use]
    pub fn index(&self, key: u64) -> Option<u32> {
        let index = key.checked_sub(self.first_key)?;
        u32::try_from(index).ok().filter(|index| *index < self.key_count)
    }

    /// The key at a place.
    #[must_use]
    pub fn key(&self, index: u32) -> u64 {
        self.first_key + u64::from(index)
    }

    /// At which process a key is in the first life.
    #[must_use]
    pub fn first_owner(&self, index: u32) -> u8 {
        let owner = u64::from(index) * u64::from(self.processes) / u64::from(self.key_count.max(1));
        u8::try_from(owner).unwrap_or(0)
    }

    /// Last numbers that a row can have.
    #[must_use]
    pub fn lasts_per_row(&self) -> usize {
        usize::from(self.processes) * usize::from(self.in_flight)
    }

    /// The lane of a number. In each the numbers of a process grow, and one is in flight.
    pub(super) fn lane(&self, number: Number) -> u8 {
        match self.in_flight {
            0 | 1 => 0,
            // A remainder of a byte fits a byte.
            lanes => u8::try_from(number.count() % u64::from(lanes)).unwrap_or(0),
        }
    }

    /// The place of a process's last number among those of a row.
    pub(super) fn last_place(&self, process: u8, number: Number) -> usize {
        usize::from(process) * usize::from(self.in_flight) + usize::from(self.lane(number))
    }

    /// All processes.
    pub(super) fn everybody(&self) -> Members {
        Members::first(usize::from(self.processes))
    }

    /// Blocks that are claimed one by one.
    pub(super) fn block_count(&self) -> u32 {
        self.key_count.div_ceil(BLOCK_LEN)
    }
}

/// Why a table cannot be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TableError {
    /// There is no such table.
    Table(u16),
    /// Rows without elements.
    NoElements,
    /// No keys, too many, or beyond the last u64.
    Keys(u32),
    /// No processes, or too many.
    Processes(u8),
    /// No accesses in flight, or too many; or several in a table whose rows have copies.
    InFlight(u8),
    /// A row with all that travels with it does not fit a datagram.
    RowTooLong {
        /// Bytes of UDP payload that it takes.
        needed: usize,
        /// Bytes that there are.
        payload_max: u16,
    },
    /// As many addresses are needed as there are processes.
    Addresses,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(table) => {
                write!(f, "table {table} cannot be made: tables are 0 to {}", TABLES_MAX - 1)
            }
            Self::NoElements => f.write_str("a row needs at least one element: set row_len"),
            Self::Keys(count) => {
                write!(
                    f,
                    "a table of {count} keys cannot be made: it needs 1 to {KEYS_MAX}, below 2^64"
                )
            }
            Self::Processes(count) => {
                write!(
                    f,
                    "a table of {count} processes cannot be made: it needs 1 to {PROCESSES_MAX}"
                )
            }
            Self::InFlight(count) => write!(
                f,
                "{count} accesses to a key in flight cannot be: 1 to {IN_FLIGHT_MAX} can, and 1 in \
                 modes with copies"
            ),
            Self::RowTooLong { needed, payload_max } => write!(
                f,
                "a row takes a datagram of {needed} bytes with what travels with it, and {payload_max} \
                 are allowed: use shorter rows, fewer processes or a larger MTU"
            ),
            Self::Addresses => f.write_str("a table needs one address for each of its processes"),
        }
    }
}

impl core::error::Error for TableError {}

/// Maxima of one process. Full is a refusal to the caller, or WAIT to a peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProcessLimits {
    /// Keys that are asked for, or waited for, at a time.
    pub active_keys_max: u16,
    /// Operations that wait for one key.
    pub key_queue_max: u16,
    /// Operations that wait for any key.
    pub queued_max: u32,
    /// Accesses of others that wait for rows that are on their way here.
    pub remote_max: u16,
    /// Kept copies of rows that were given away.
    pub transfers_max: u16,
    /// Numbers that are open at a time.
    pub open_numbers_max: u32,
    /// Intents whose time has not come.
    pub intents_max: u32,
}

impl Default for ProcessLimits {
    fn default() -> Self {
        Self {
            active_keys_max: 16_384,
            key_queue_max: 4_096,
            queued_max: 65_536,
            remote_max: 4_096,
            transfers_max: 16_384,
            open_numbers_max: 65_536,
            intents_max: 65_536,
        }
    }
}

/// Where the rows of a table are, and how a process comes to them. All its processes have the same.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// A localize has a row come; operations on a row that is here run at once.
    #[default]
    Relocation,
    /// Rows stay where the first life put them; operations on a row that is here run at once. A
    /// localize is done at once and moves nothing.
    ClassicFastLocal,
    /// As before, and every operation is a frame to the row's process, also from that itself.
    Classic,
    /// Rows stay, and a pull of one that is elsewhere leaves a copy, which is read while it is not
    /// older than the bound; then a pull brings a new one (Petuum's client-based synchronisation).
    StaleClient,
    /// As before, and with each clock come new copies of all rows that were read once
    /// (server-based synchronisation).
    StaleServer,
}

impl Mode {
    /// Whether rows stay where they are.
    #[must_use]
    pub const fn is_static(self) -> bool {
        !matches!(self, Self::Relocation)
    }

    /// Whether an intent to use a key has rows or copies come.
    #[must_use]
    pub const fn has_intents(self) -> bool {
        matches!(self, Self::Relocation) || self.is_stale()
    }

    /// Whether an operation on a row that is here runs at once.
    #[must_use]
    pub const fn is_fast(self) -> bool {
        !matches!(self, Self::Classic)
    }

    /// Whether a pull leaves a copy of a row that nobody has said he is about to use.
    #[must_use]
    pub const fn is_stale(self) -> bool {
        matches!(self, Self::StaleClient | Self::StaleServer)
    }
}

/// What a process is told.
#[derive(Clone, Debug)]
pub struct ProcessConfig<'a> {
    /// The table.
    pub table: TableConfig,
    /// Which of its processes this is.
    pub me: u8,
    /// Where the box is.
    pub home: UdpAddr,
    /// Where the processes are, this one among them.
    pub processes: &'a [UdpAddr],
    /// Where rows are.
    pub mode: Mode,
    /// Whether an access goes at first to the process that had the row when this one last knew, and
    /// not to the box.
    pub has_cache: bool,
    /// Clocks that a copy may be older than the one in which it is read.
    pub staleness: u32,
    /// Maxima.
    pub limits: ProcessLimits,
    /// Shortest and longest pause before something is sent again.
    pub resend_min: Nanos,
    /// See above.
    pub resend_max: Nanos,
    /// How often the box hears that this process is there.
    pub beat: Nanos,
}

/// A block of keys of which all is told.
const CLAIM_BLOCK_LEN: usize =
    BLOCK_LEN as usize * (1 + KEPT_PER_KEY_MAX) * weft_wire::keys::CLAIM_LEN;
