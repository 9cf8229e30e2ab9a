//! What is written into a switch: entries of tables, multicast groups and meters, by name.
//!
//! Decides how an entry is spelt: table, keys, action and parameters with their widths, as
//! `p4/weft.p4` declares them. P4Runtime, the interpreter and simple_switch's command line are
//! renderings of the same list.

mod render;

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use weft_wire::header::Flags;
use weft_wire::{Cookie, JobId, MacAddr, Members};

use render::vec_of;

/// One thing that a switch holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Entry {
    /// The box's own address and UDP port.
    Local {
        /// Its address.
        ip: Ipv4Addr,
        /// Where it listens.
        port: u16,
    },
    /// Where a host's frames leave.
    Bridge {
        /// The host.
        mac: MacAddr,
        /// The switch's port.
        port: u16,
    },
    /// A windowed lease.
    Windowed {
        /// Whose, and under which number on the wire.
        key: RowKey,
        /// What both kinds of lease have.
        row: Row,
        /// Slots, a power of two.
        window: u32,
        /// A job-fixed exponent.
        exponent: Option<i8>,
    },
    /// A whole lease.
    Whole {
        /// Whose, and under which number on the wire.
        key: RowKey,
        /// What both kinds of lease have.
        row: Row,
        /// The group's exponent.
        exponent: i8,
        /// Its place among the counters of progress.
        row_index: u16,
        /// A copy of each sum goes to the replica.
        replicate: bool,
    },
    /// A job that is reduced: a row of it that is not there is one that is not served.
    ReducedJob {
        /// The job.
        job: JobId,
    },
    /// A job that pushes.
    PushJob {
        /// The job.
        job: JobId,
        /// Where its members and copies are.
        scope: u16,
    },
    /// A member.
    Member {
        /// The lease or job.
        scope: u16,
        /// Its bit.
        members: Members,
        /// What its frames carry.
        cookie: Cookie,
        /// Where they come from.
        ip: Ipv4Addr,
        /// Their UDP source port.
        port: u16,
    },
    /// Who may give credits.
    Server {
        /// The job's.
        scope: u16,
        /// What its frames carry.
        cookie: Cookie,
        /// Where they come from.
        ip: Ipv4Addr,
        /// Their UDP source port.
        port: u16,
    },
    /// How frames to a receiver are addressed.
    Copy {
        /// The lease or job.
        scope: u16,
        /// Rank, [`SERVER_ID`] or [`REPLICA_ID`].
        id: u16,
        /// The address.
        to: Address,
    },
    /// A table of tests: frames like this are lost on their way in.
    Fault {
        /// Kind of frame.
        kind: u8,
        /// Whose.
        members: Members,
        /// Which.
        chunk: u32,
        /// Repeats, or first transmissions.
        retransmit: bool,
    },
    /// A table of tests: frames like this are lost on their way out.
    FaultOut {
        /// Kind of frame.
        kind: u8,
        /// The receiver.
        id: u16,
        /// Which.
        chunk: u32,
        /// Repeats, or first transmissions.
        retransmit: bool,
    },
    /// A multicast group.
    Group {
        /// Its number.
        id: u16,
        /// Port and replication id of each receiver.
        nodes: Vec<(u16, u16)>,
    },
    /// A quota.
    Meter {
        /// Which meter.
        name: &'static str,
        /// Its index.
        index: u32,
        /// Bytes a second.
        rate_bytes_per_sec: u64,
        /// Bytes at once.
        burst_bytes: u64,
    },
}

/// Which row.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct RowKey {
    /// The job.
    pub job: JobId,
    /// Its number on the wire.
    pub row: u16,
}

/// What every lease has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Row {
    /// The switch's own number for this installation; never used again.
    pub lease_epoch: u32,
    /// Of the group id.
    pub generation: u16,
    /// Where its members and copies are.
    pub scope: u16,
    /// All members.
    pub mask: Members,
    /// First bank.
    pub base: u32,
    /// Chunks, or steps.
    pub chunks: u32,
    /// Element type and operation, as byte 16 of the header.
    pub type_op: u8,
}

/// How a copy is addressed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Address {
    /// The member's bit; none of server and replica.
    pub bit: Members,
    /// Receiver.
    pub dst_mac: MacAddr,
    /// Box.
    pub src_mac: MacAddr,
    /// Receiver.
    pub dst_ip: Ipv4Addr,
    /// Box.
    pub src_ip: Ipv4Addr,
    /// Receiver.
    pub dst_port: u16,
    /// Box.
    pub src_port: u16,
    /// What frames to the receiver carry.
    pub cookie: Cookie,
    /// Flags that they have besides their own.
    pub flags: Flags,
}

/// One value of an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Field {
    /// Name in the program.
    pub name: &'static str,
    /// The value.
    pub value: u64,
    /// How many bits it has in the program.
    pub bits: u16,
}

/// An entry of a table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TableEntry {
    /// The table.
    pub table: &'static str,
    /// What is matched, exactly.
    pub keys: Vec<Field>,
    /// The action.
    pub action: &'static str,
    /// Its parameters, in order.
    pub params: Vec<Field>,
}

/// How an entry is spelt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Rendered<'a> {
    /// An entry of a table.
    Table(TableEntry),
    /// A multicast group, with port and replication id of each receiver.
    Group {
        /// Its number.
        id: u16,
        /// Its receivers.
        nodes: &'a [(u16, u16)],
    },
    /// A cell of a meter.
    Meter {
        /// Which meter.
        name: &'static str,
        /// Its index.
        index: u32,
        /// Bytes a second.
        rate_bytes_per_sec: u64,
        /// Bytes at once.
        burst_bytes: u64,
    },
}

/// What is to be done to an entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Write {
    /// There is none with its key.
    Insert(Entry),
    /// There is one with its key.
    Modify(Entry),
    /// There is one with its key; the rest of the entry is of no account.
    Delete(Entry),
}

impl Write {
    /// What it is about.
    #[must_use]
    pub const fn entry(&self) -> &Entry {
        match self {
            Self::Insert(entry) | Self::Modify(entry) | Self::Delete(entry) => entry,
        }
    }
}

/// Which entry: there is at most one of each key.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct EntryKey(&'static str, [u64; 4]);

impl Entry {
    /// One of each kind, for who asks whether a program knows them all.
    #[must_use]
    pub fn samples() -> Vec<Self> {
        let (ip, mac, port, scope) = (Ipv4Addr::LOCALHOST, MacAddr::default(), 0, 0);
        let (members, cookie) = (Members(1), Cookie(0));
        let key = RowKey { job: JobId(0), row: 0 };
        let row = Row {
            lease_epoch: 1,
            generation: 0,
            scope,
            mask: members,
            base: 0,
            chunks: 1,
            type_op: 0,
        };
        let to = Address {
            bit: members,
            dst_mac: mac,
            src_mac: mac,
            dst_ip: ip,
            src_ip: ip,
            dst_port: port,
            src_port: port,
            cookie,
            flags: Flags::NONE,
        };
        let meter = |name| Self::Meter { name, index: 0, rate_bytes_per_sec: 1, burst_bytes: 1 };
        vec_of([
            Self::Local { ip, port },
            Self::Bridge { mac, port },
            Self::Windowed { key, row, window: 1, exponent: None },
            Self::Whole { key, row, exponent: 0, row_index: 0, replicate: false },
            Self::ReducedJob { job: key.job },
            Self::PushJob { job: key.job, scope },
            Self::Member { scope, members, cookie, ip, port },
            Self::Server { scope, cookie, ip, port },
            Self::Copy { scope, id: 0, to },
            Self::Fault { kind: 0, members, chunk: 0, retransmit: false },
            Self::FaultOut { kind: 0, id: 0, chunk: 0, retransmit: false },
            Self::Group { id: FLOOD_GROUP, nodes: Vec::new() },
            meter(JOB_METER),
            meter(CPU_METER),
        ])
    }

    /// Which entry it is.
    #[must_use]
    pub fn key(&self) -> EntryKey {
        match self.render() {
            Rendered::Table(TableEntry { table, keys, .. }) => {
                let mut values = [0; 4];
                for (value, key) in values.iter_mut().zip(keys) {
                    *value = key.value;
                }
                EntryKey(table, values)
            }
            Rendered::Group { id, .. } => EntryKey("", [u64::from(id), 0, 0, 0]),
            Rendered::Meter { name, index, .. } => EntryKey(name, [u64::from(index), 0, 0, 0]),
        }
    }
}

/// Replication id of the server.
pub const SERVER_ID: u16 = 64;
/// Replication id of the replica.
pub const REPLICA_ID: u16 = 65;
/// The multicast group of frames to hosts that are not known.
pub const FLOOD_GROUP: u16 = 1;

/// What the frames of a job may come to, by scope.
pub const JOB_METER: &str = "job_meter";
/// What the frames to the box may come to.
pub const CPU_METER: &str = "cpu_meter";

/// The multicast group of a scope.
#[must_use]
pub const fn group_of(scope: u16) -> u16 {
    2 + scope
}
