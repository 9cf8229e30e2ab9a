//! Which table, which of its processes, and where the others are.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use weft_engine::role::keys::{
    Mode, PROCESSES_MAX, ProcessConfig, ProcessLimits, TableConfig, TableError,
};
use weft_wire::frame::{IPV4_LEN, IPV6_LEN, UDP_LEN, UdpAddr};
use weft_wire::{JobId, MacAddr, Nanos};

use super::KeyError;
use crate::config::{Config, Io};

/// A process's configuration. Build it with [`KeyConfig::new`] and the methods named after the
/// fields. Table, keys, processes and MTU are as the home box and all processes have them.
#[derive(Clone, Debug)]
pub struct KeyConfig {
    /// Where the home box listens.
    pub home: SocketAddr,
    /// The home box's Ethernet address, for ports without a kernel; learnt when broadcast.
    pub home_mac: MacAddr,
    /// The processes by number; this one listens at its own entry.
    pub processes: Vec<SocketAddr>,
    /// Which of them this is.
    pub me: u8,
    /// Index of the job at the home box. Default 0.
    pub job: u16,
    /// Which of the job's tables. Default 0.
    pub table: u16,
    /// Elements of a row.
    pub row_len: u16,
    /// The first key. Default 0.
    pub first_key: u64,
    /// Keys, one after the other.
    pub key_count: u32,
    /// Largest IP packet on the path in bytes. Default 1500.
    pub mtu: u16,
    /// As [`crate::Config::offload`]. Default true.
    pub offload: bool,
    /// Which port: [`Io::Udp`], which [`Io::Auto`] is here, or [`Io::AfPacket`]; processes share
    /// memory with none of the others.
    pub io: Io,
    /// As [`crate::Config::interface`].
    pub interface: Option<String>,
    /// As [`crate::Config::router`]; by default the kernel's routes, for the home and each process.
    pub router: Option<IpAddr>,
    /// Frame buffers of the port, of `mtu + 14` bytes each. Default 4096.
    pub frame_count: usize,
    /// DSCP of this process's frames, 0 to 63, as the home's file has it. Default 0.
    pub dscp: u8,
    /// DSCP of those longer than [`SMALL_LEN`](weft_wire::frame::label::SMALL_LEN), so that small
    /// accesses can go before rows in bulk and calls of many keys. Default: as `dscp`.
    pub bulk_dscp: Option<u8>,
    /// How long the home box and the other processes may take to come. Default 10 s.
    pub connect_timeout: Duration,
    /// How long a call may take, or wait for room, before it is an error. Default 30 s.
    pub call_timeout: Duration,
    /// Shortest pause before something is sent again. It is as long as answers take (RFC 6298), and
    /// doubles. Default 5 ms.
    pub resend_min: Duration,
    /// Longest such pause. Default 100 ms.
    pub resend_max: Duration,
    /// How often the home box hears that this process is there. Default 200 ms.
    pub beat: Duration,
    /// Where rows are and how this process comes to them. All processes have the same. Default
    /// [`Mode::Relocation`].
    pub mode: Mode,
    /// Whether an access goes at first to the process that had the row when this one last knew, and
    /// not to the home box. What is wrong costs a frame more. Default true.
    pub has_cache: bool,
    /// Accesses to one key that this process may have in flight, 1 to 4. All processes have the
    /// same. Default 1: each key is sequentially consistent. With more, an operation on a row that
    /// is elsewhere does not wait for those before it, and the guarantee is a weaker one: each
    /// operation happens once, at one moment between its call and its end, so that what is called
    /// after another has ended comes after it, and each push and set counts exactly once; but of
    /// operations that are open at the same time any may come first, also of one thread: a pull may
    /// not see this thread's push whose ticket is not finished, and a set may undo a push that was
    /// called after it. [`KeySession::intend`](super::KeySession::intend) does nothing then, and
    /// modes with copies are refused.
    pub in_flight: u8,
    /// Clocks that a copy of a row may be older than the one in which it is read
    /// ([`KeySession::advance_clock`](super::KeySession::advance_clock)). Default 1.
    pub staleness: u32,
    /// What becomes of the job when a process dies and rows die with it. Default
    /// [`OnLoss::End`].
    pub on_loss: OnLoss,
    /// Maxima of what waits.
    pub limits: ProcessLimits,
    /// Seed of this life; random by default.
    pub seed: Option<u64>,
}

/// What becomes of a job when a process dies and rows die with it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum OnLoss {
    /// It ends: the sessions of the processes that live on fail with an error that names the keys.
    #[default]
    End,
    /// It goes on with the rows that the newest whole round in this folder has
    /// ([`KeySession::checkpoint`](super::KeySession::checkpoint)); what was pushed to them since
    /// is lost, and [`KeySession::restored`](super::KeySession::restored) names them.
    Restore(PathBuf),
}

macro_rules! setters {
    ($($(#[$meta:meta])* $field:ident: $type:ty),* $(,)?) => {$(
        #[doc = concat!("Sets [`KeyConfig::", stringify!($field), "`].")]
        #[must_use]
        pub fn $field(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        }
    )*};
}

impl KeyConfig {
    /// Process `me` of a table of `key_count` rows of `row_len` elements.
    #[must_use]
    pub fn new(
        home: SocketAddr,
        processes: Vec<SocketAddr>,
        me: u8,
        row_len: u16,
        key_count: u32,
    ) -> Self {
        Self {
            home,
            home_mac: MacAddr::BROADCAST,
            processes,
            me,
            job: 0,
            table: 0,
            row_len,
            first_key: 0,
            key_count,
            mtu: 1500,
            offload: true,
            io: Io::Auto,
            interface: None,
            router: None,
            frame_count: 4096,
            dscp: 0,
            bulk_dscp: None,
            connect_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(30),
            resend_min: Duration::from_millis(5),
            resend_max: Duration::from_millis(100),
            beat: Duration::from_millis(200),
            mode: Mode::Relocation,
            has_cache: true,
            in_flight: 1,
            staleness: 1,
            on_loss: OnLoss::End,
            limits: ProcessLimits::default(),
            seed: None,
        }
    }

    setters! {
        job: u16,
        table: u16,
        first_key: u64,
        mtu: u16,
        mode: Mode,
        has_cache: bool,
        in_flight: u8,
        staleness: u32,
        dscp: u8,
        bulk_dscp: Option<u8>,
        on_loss: OnLoss,
        connect_timeout: Duration,
        call_timeout: Duration,
    }

    /// What its port is opened with, once it was [checked](Self::check).
    pub(super) fn of_port(&self) -> Config {
        Config {
            io: self.io,
            interface: self.interface.clone(),
            router: self.router,
            mtu: self.mtu,
            offload: self.offload,
            frame_count: self.frame_count,
            ..Config::new(self.processes[usize::from(self.me)], self.home)
        }
    }

    /// The table, as its home has it.
    ///
    /// # Errors
    /// [`KeyError::Config`] or [`KeyError::Table`], if it or this process's place in it cannot be.
    pub fn check(&self) -> Result<TableConfig, KeyError> {
        let refuse = |field, problem| Err(KeyError::Config { field, problem });
        let Some(local) = self.processes.get(usize::from(self.me)) else {
            return match self.processes.len() {
                0 => Err(KeyError::Table(TableError::Processes(0))),
                _ => refuse("me", "must be one of the processes, counted from 0"),
            };
        };
        if self.processes.len() > PROCESSES_MAX {
            return refuse("processes", "must be at most 64");
        }
        let all = self.processes.iter().chain([&self.home]);
        if all.clone().any(|addr| addr.is_ipv4() != local.is_ipv4()) {
            return refuse("processes", "and the home must be of one IP family");
        }
        let mut others = all.enumerate();
        if others.any(|(place, addr)| self.processes[..place].contains(addr)) {
            return refuse("processes", "and the home must have an address each");
        }
        if self.resend_min.is_zero() || self.resend_min > self.resend_max || self.beat.is_zero() {
            return refuse("resend_min", "must be from 1 ns to resend_max, and beat above 0");
        }
        if self.dscp > 63 {
            return refuse("dscp", "must be 0 to 63");
        }
        if self.bulk_dscp.is_some_and(|dscp| dscp > 63) {
            return refuse("bulk_dscp", "must be 0 to 63");
        }
        let ip_len = if local.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
        let payload_max = usize::from(self.mtu).saturating_sub(ip_len + UDP_LEN);
        let table = TableConfig {
            job: JobId(self.job),
            table: self.table,
            row_len: self.row_len,
            first_key: self.first_key,
            key_count: self.key_count,
            processes: u8::try_from(self.processes.len()).unwrap_or(u8::MAX),
            payload_max: u16::try_from(payload_max).unwrap_or(u16::MAX),
            in_flight: self.in_flight,
        };
        table.check_in(self.mode).map_err(KeyError::Table)?;
        Ok(table)
    }

    /// What the engine of this process is told, of the table that [`KeyConfig::check`] gives and
    /// the processes' addresses.
    #[must_use]
    pub fn of_process<'a>(
        &self,
        table: TableConfig,
        processes: &'a [UdpAddr],
    ) -> ProcessConfig<'a> {
        ProcessConfig {
            table,
            me: self.me,
            home: self.home.into(),
            processes,
            mode: self.mode,
            has_cache: self.has_cache,
            staleness: self.staleness,
            limits: self.limits,
            resend_min: nanos(self.resend_min),
            resend_max: nanos(self.resend_max),
            beat: nanos(self.beat),
        }
    }
}

pub(super) fn nanos(duration: Duration) -> Nanos {
    Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
