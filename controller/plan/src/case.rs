//! Decides whether a planning problem makes sense, once; what a [`Case`] holds can be planned.
//!
//! Invariants: every name is known and unique and has become an index; every rate, size and
//! instant lies where the planner's integer arithmetic is exact (a size times 1e9 fits 128 bits, an
//! instant plus any plan fits 64). An error names the field by its path in the JSON.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

mod error;
mod validate;
mod write;

#[cfg(test)]
mod tests;

pub use error::CaseError;
pub use weft_config::controller::{AggregatorChoice, Objective, Options};

/// Index of a host in [`Case::hosts`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct HostId(pub u32);

/// Index of a rack in [`Case::racks`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RackId(pub u32);

/// Index of a server in [`Case::servers`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ServerId(pub u32);

/// Index of an update in [`Case::updates`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct UpdateId(pub u32);

macro_rules! index {
    ($($name:ident),*) => {$(
        impl $name {
            /// As a slice index.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// From a slice index.
            ///
            /// # Panics
            /// Beyond 2^32, which no case holds.
            #[must_use]
            pub const fn from_index(index: usize) -> Self {
                assert!(index <= u32::MAX as usize);
                #[expect(clippy::cast_possible_truncation, reason = "asserted")]
                Self(index as u32)
            }
        }
    )*};
}
index!(HostId, RackId, ServerId, UpdateId);

/// A planning problem that has been checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// When the plan starts.
    pub now_ns: u64,
    /// Hosts, by name.
    pub hosts: Vec<Host>,
    /// Racks, by name.
    pub racks: Vec<Rack>,
    /// Servers, as given.
    pub servers: Vec<Server>,
    /// Hosts that may sum, as given.
    pub aggregators: Vec<HostId>,
    /// Updates, as given.
    pub updates: Vec<Update>,
    /// Position of every update when all are sorted by name: what breaks ties.
    pub ranks: Vec<u32>,
    /// What is already promised.
    pub reservations: Vec<Reservation>,
    /// How to plan.
    pub options: Options,
}

/// A host and its two links.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Into the network.
    pub up_bytes_per_sec: u64,
    /// Out of the network.
    pub down_bytes_per_sec: u64,
    /// Its rack, if any.
    pub rack: Option<RackId>,
}

/// A rack and its two links.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rack {
    /// Its name.
    pub name: String,
    /// Out of the rack.
    pub up_bytes_per_sec: u64,
    /// Into the rack.
    pub down_bytes_per_sec: u64,
}

/// A parameter server.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Where it runs.
    pub host: HostId,
    /// Updates committed when this plan's first one commits: the version now, and what is granted.
    pub version: u64,
    /// The largest delay of a commit.
    pub tau_max: u64,
    /// Share of the previous step that is kept.
    pub momentum: f64,
    /// The largest norm of server minus replica, if bounded.
    pub div_max: Option<f64>,
    /// Host of the second copy.
    pub replica: Option<HostId>,
    /// The job, if named.
    pub job: Option<String>,
    /// Norm of the replica's last step.
    pub h_norm: f64,
    /// Norms of groups that the replica misses, oldest first.
    pub lag_norms: Vec<f64>,
    /// No commit of this plan before this.
    pub commit_from_ns: u64,
}

/// An update that asks to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// Its name.
    pub name: String,
    /// Where to.
    pub server: ServerId,
    /// Where from.
    pub host: HostId,
    /// How much, at least 1.
    pub size_bytes: u64,
    /// The version that it was computed on, at most the server's.
    pub version: u64,
    /// Its 2-norm; 0 where nothing asks for it.
    pub norm: f64,
    /// Its worker lost the previous one.
    pub dropped_before: bool,
}

/// Promised bandwidth.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reservation {
    /// Sender, or none for traffic that only arrives.
    pub from: Option<HostId>,
    /// Receiver, or none for traffic that only leaves.
    pub to: Option<HostId>,
    /// When and how much.
    pub segment: Segment,
}

/// A rate over an interval.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// First instant.
    pub from_ns: u64,
    /// First instant after it.
    pub to_ns: u64,
    /// The rate; a ceiling for the sender.
    pub bytes_per_sec: u64,
}

impl Case {
    /// Ids of all updates, in the case's order.
    pub fn update_ids(&self) -> impl ExactSizeIterator<Item = UpdateId> + use<> {
        (0..self.updates.len()).map(UpdateId::from_index)
    }

    /// Ids of all servers, in the case's order.
    pub fn server_ids(&self) -> impl ExactSizeIterator<Item = ServerId> + use<> {
        (0..self.servers.len()).map(ServerId::from_index)
    }

    /// One host.
    #[must_use]
    pub fn host(&self, id: HostId) -> &Host {
        &self.hosts[id.index()]
    }

    /// One server.
    #[must_use]
    pub fn server(&self, id: ServerId) -> &Server {
        &self.servers[id.index()]
    }

    /// One update.
    #[must_use]
    pub fn update(&self, id: UpdateId) -> &Update {
        &self.updates[id.index()]
    }

    /// The last 0-based position in the server's sequence at which an update may commit; negative
    /// when it is too old already (`dl` of the ordering rules).
    #[must_use]
    pub fn deadline(&self, id: UpdateId) -> i64 {
        let update = self.update(id);
        let server = self.server(update.server);
        let slack = i128::from(update.version) + i128::from(server.tau_max);
        i64::try_from(slack - i128::from(server.version)).unwrap_or(i64::MAX)
    }

    /// Updates by name.
    #[must_use]
    pub fn updates_by_name(&self) -> BTreeMap<&str, UpdateId> {
        self.update_ids().map(|id| (self.update(id).name.as_str(), id)).collect()
    }
}
