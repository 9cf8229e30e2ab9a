//! Weft frames through memory that a worker shares with the box of its host: no system call on the
//! way while both are awake.
//!
//! A box puts [`ShmHost`] around its port and so serves both at once; a worker opens a [`ShmPort`].
//! They meet at a Unix socket ([`rendezvous`]) in a folder of the box's user, named by the box's
//! address. The box makes the memory, two rings of frames, one in each direction, and hands it over
//! with a bell in each direction, by which either wakes the other, and with memory that all workers
//! read: what goes to a multicast address that a worker hears is written there once. The frames are
//! those that a wire would show, so engines, traces and fault ports see no difference, and a member
//! keeps its configured address: it is bound to the connection, and a frame that names another
//! source is refused.
//!
//! | what goes wrong | what comes of it |
//! | --- | --- |
//! | a peer of another version or user, memory of another size, an address in use | [`ShmError`], or a [`Refusal`] that both sides name and count |
//! | a length that cannot be, a frame of another source | the frame is refused: `rx_errors` |
//! | an index that cannot be | the connection ends ([`ShmCounts::broken`]); the memory is left |
//! | a frame for all is overwritten before a worker has copied it | it is lost to that worker: `rx_errors` |
//! | a ring is full | at the worker the rest of the burst stays, at the box the member's frame is lost: `tx_errors`, and [`ShmCounts::ring_full`] |
//! | the worker's process ends, in mid-write or not | the box sees the end of the connection within [`LOOK_NS`] times 16; what was not published does not exist |
//! | the box's process ends | the worker calls again until it answers; its frames are lost meanwhile: `tx_errors` |
//!
//! Invariants: memory of the other process is copied out before it is looked at, its lengths and
//! indices are read once and checked against private ones; a region's size is sealed; nothing is
//! allocated but where a connection begins; no lane makes a system call that waits for what
//! another process does with an object of both. A worker takes memory from its own user's box or
//! from root's, a box lets in its own user, root, and users that it is given.
//!
//! Source: unix(7) on SCM_RIGHTS and SO_PEERCRED; memfd_create(2); eventfd(2); epoll(7).

mod cast;
mod connection;
mod door;
mod entrance;
mod hello;
mod host;
mod lanes;
mod region;
mod ring;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::door::{rendezvous, user_id};
pub use self::hello::Refusal;
pub use self::host::ShmHost;
pub use self::lanes::ShmLanes;
pub use self::worker::{ShmConfig, ShmPort};

/// Most workers of one box over shared memory: the members of a row.
pub const LINKS_MAX: usize = 64;
/// Callers that have not greeted.
const WAITING_MAX: usize = 16;
/// Most sockets of others that a box holds: workers, callers, and where they come.
const GUESTS_MAX: usize = LINKS_MAX + WAITING_MAX + 1;
/// Sockets that wait to be closed; with as many, a box lets in no further worker.
const CLOSING_MAX: usize = 64;
/// How often a box looks for workers that come.
pub const LOOK_NS: u64 = 2_000_000;

/// Why memory could not be shared. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ShmError {
    /// Nobody waits for workers at this address, in this network namespace.
    #[error(
        "no box on this host shares memory at {addr}: set `port.shm = true` in its file, or use \
         udp"
    )]
    NoBox {
        /// The box's address.
        addr: SocketAddr,
    },
    /// The box there is not for this user, or is neither root's nor this user's.
    #[error(
        "the rendezvous of {addr} is not for this user: run worker and box as one user, or the box \
         as root with this user in `port.shm_users`, or use udp"
    )]
    Owner {
        /// The box's address.
        addr: SocketAddr,
    },
    /// The box speaks another version.
    #[error(
        "the box at {addr} shares memory by version {version}, this worker by {}: run worker and \
         box of one release",
        hello::VERSION
    )]
    Version {
        /// The box's address.
        addr: SocketAddr,
        /// The box's version.
        version: u32,
    },
    /// The box said no.
    #[error("the box at {addr} does not share memory with {local}: {}", .refusal.text())]
    Refused {
        /// The box's address.
        addr: SocketAddr,
        /// The worker's.
        local: SocketAddr,
        /// Why.
        refusal: Refusal,
    },
    /// The memory is not what it should be.
    #[error("the memory that the box at {addr} shares cannot be used: {problem}")]
    Memory {
        /// The box's address.
        addr: SocketAddr,
        /// What is wrong.
        problem: String,
    },
    /// The box did not answer in time.
    #[error("the box at {addr} does not answer at its rendezvous: is it stopped or overloaded?")]
    Silent {
        /// The box's address.
        addr: SocketAddr,
    },
    /// Another box has this address.
    #[error(
        "another box of this host holds the rendezvous of {addr}: stop what `ss -xlp | grep \
         @{addr}` names, or choose another port"
    )]
    Taken {
        /// The box's address.
        addr: SocketAddr,
    },
    /// The configuration cannot work, whatever the host.
    #[error("shared memory for {addr}: {problem}")]
    Config {
        /// The address asked for.
        addr: SocketAddr,
        /// What is wrong, and what to write instead.
        problem: &'static str,
    },
    /// The kernel refused something.
    #[error("could not {attempt} to share memory at {addr}")]
    System {
        /// The box's address.
        addr: SocketAddr,
        /// What was attempted.
        attempt: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

/// What a box's shared memory has seen. Read while the port is in use.
#[derive(Clone, Debug, Default)]
pub struct ShmCounts(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    links: AtomicU64,
    joined: AtomicU64,
    ended: AtomicU64,
    broken: AtomicU64,
    ring_full: AtomicU64,
    bad_length: AtomicU64,
    bad_source: AtomicU64,
    held_up: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
}

/// Writes the getters of counters.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),+) => {
        $($(#[$doc])* #[must_use] pub fn $name(&self) -> u64 {
            self.0.$name.load(Ordering::Relaxed)
        })+
    };
}

impl ShmCounts {
    counts! {
        /// Workers that are connected.
        links,
        /// Workers that were let in.
        joined,
        /// Connections that ended with the worker's process, or because it left.
        ended,
        /// Connections that were given up because of indices that cannot be.
        broken,
        /// Frames lost because the ring of their worker was full.
        ring_full,
        /// Frames refused for their length.
        bad_length,
        /// Frames refused because they named another source than their worker.
        bad_source,
        /// Looks that let in no caller, because sockets of earlier ones could not be closed.
        held_up
    }

    /// Workers that were not let in for this reason.
    #[must_use]
    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.0.refused[refusal as usize - 1].load(Ordering::Relaxed)
    }
}

/// Counts one more.
fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
