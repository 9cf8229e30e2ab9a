//! Which process this is, and what the table is.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_engine::role::keys::{ProcessLimits, TableConfig};
use weft_wire::JobId;
use weft_wire::keys::Number;

/// What becomes of a job when a process dies and rows die with it.
#[derive(Clone, Default)]
pub enum OnLoss {
    /// Every call ends with [`KeyError::Lost`](super::KeyError::Lost), which names the first of
    /// them.
    #[default]
    End,
    /// The row is what this function says: what a checkpoint has of the key, or zeros. What was
    /// pushed since is lost.
    Restore(Arc<dyn Fn(u64) -> Option<KeptRow> + Send + Sync>),
}

impl fmt::Debug for OnLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::End => "End",
            Self::Restore(_) => "Restore",
        })
    }
}

/// A row as a checkpoint has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptRow {
    /// Its value.
    pub value: Vec<f32>,
    /// Per process the last number that it was applied for; without these a push that is in the
    /// checkpoint, but was never answered, would be added again.
    pub lasts: Vec<Number>,
}

/// What a session is told.
#[derive(Clone, Debug)]
pub struct KeyConfig {
    pub(super) me: u8,
    pub(super) home: SocketAddr,
    pub(super) processes: Vec<SocketAddr>,
    pub(super) table: TableConfig,
    pub(super) limits: ProcessLimits,
    pub(super) resend: (Duration, Duration),
    pub(super) beat: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) timeout: Duration,
    pub(super) on_loss: OnLoss,
}

impl KeyConfig {
    /// Process `me` of these; it listens at its address among them. The box of the table is at
    /// `home`.
    #[must_use]
    pub fn new(me: u8, home: SocketAddr, processes: &[SocketAddr]) -> Self {
        let table = TableConfig {
            job: JobId(0),
            table: 0,
            row_len: 1,
            first_key: 0,
            key_count: 1,
            processes: u8::try_from(processes.len()).unwrap_or(u8::MAX),
            payload_max: PAYLOAD_MAX,
        };
        Self {
            me,
            home,
            processes: processes.to_vec(),
            table,
            limits: ProcessLimits::default(),
            resend: (Duration::from_millis(5), Duration::from_millis(100)),
            beat: Duration::from_millis(100),
            connect_timeout: Duration::from_secs(30),
            timeout: Duration::from_secs(30),
            on_loss: OnLoss::End,
        }
    }

    /// Keys 0 to `key_count`, of `row_len` elements each.
    #[must_use]
    pub fn rows(mut self, key_count: u32, row_len: u16) -> Self {
        (self.table.key_count, self.table.row_len) = (key_count, row_len);
        self
    }

    /// The first key; by default 0.
    #[must_use]
    pub fn first_key(mut self, key: u64) -> Self {
        self.table.first_key = key;
        self
    }

    /// Which table of which job; by default 0 of 0.
    #[must_use]
    pub fn table(mut self, job: JobId, table: u16) -> Self {
        (self.table.job, self.table.table) = (job, table);
        self
    }

    /// UDP payload bytes of the longest datagram; by default 1472, what an MTU of 1500 has over
    /// IPv4.
    #[must_use]
    pub fn payload_max(mut self, len_bytes: u16) -> Self {
        self.table.payload_max = len_bytes;
        self
    }

    /// Maxima of this process.
    #[must_use]
    pub fn limits(mut self, limits: ProcessLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How long to wait until all have joined; by default 30 s.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long a call waits for an answer; by default 30 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What becomes of the job when rows are lost; by default it ends.
    #[must_use]
    pub fn on_loss(mut self, on_loss: OnLoss) -> Self {
        self.on_loss = on_loss;
        self
    }
}

/// What an MTU of 1500 has over IPv4.
pub(super) const PAYLOAD_MAX: u16 = 1472;
