//! The answer of a policy, and its JSON.
//!
//! Invariants of a valid [`Plan`]: every update is either in the order of its server or dropped;
//! groups partition the order into consecutive runs; a commit is never earlier than the one before
//! it at the same server; no link is promised beyond its capacity.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use weft_control::DropReason;

use crate::case::{Case, HostId, Segment, ServerId, UpdateId};

pub mod check;

#[cfg(test)]
mod tests;

/// What happens to every update of a case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Name of the policy that made it.
    pub policy: String,
    /// Which of the plans that the policy chose from this is; none where there is no choice.
    pub candidate: Option<&'static str>,
    /// The case was too large for others beside it.
    pub candidates_skipped: bool,
    /// Commit order: by commit time over all servers; filtered by server, that server's sequence.
    pub order: Vec<UpdateId>,
    /// Updates that are not sent, and why.
    pub dropped: Vec<(UpdateId, DropReason)>,
    /// By [`UpdateId`]; none for dropped updates.
    pub transfers: Vec<Option<Transfer>>,
    /// Consecutive runs of the servers' sequences, in order of commit.
    pub groups: Vec<Group>,
    /// Copies to second servers, one entry for each server that has a replica.
    pub replicas: Vec<ReplicaPlan>,
}

/// One update on its way out of its worker.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Transfer {
    /// When its last byte is at its destination: the aggregator if `via` is given, else the server.
    pub arrival_ns: u64,
    /// When the server commits it.
    pub commit_ns: u64,
    /// The host that sums it first.
    pub via: Option<HostId>,
    /// The sender's own rates.
    pub segments: Vec<Segment>,
}

/// Updates that the server commits at one time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Group {
    /// Where it is committed.
    pub server: ServerId,
    /// Its updates, in the server's order.
    pub members: Vec<UpdateId>,
    /// The host that sums them; none for a single direct update.
    pub via: Option<HostId>,
    /// The sum's way from the aggregator to the server.
    pub forward: Option<Hop>,
    /// When the server commits it.
    pub commit_ns: u64,
}

/// One transfer between two boxes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Hop {
    /// When it may start.
    pub ready_ns: u64,
    /// When its last byte has arrived.
    pub arrival_ns: u64,
    /// The sender's rates.
    pub segments: Vec<Segment>,
}

/// The second copy of one server.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaPlan {
    /// Whose.
    pub server: ServerId,
    /// Where.
    pub host: HostId,
    /// One for each group of the server, in order.
    pub copies: Vec<Copy>,
    /// Whether the bound holds throughout; false only where copies cannot travel in time.
    pub held: bool,
}

/// A group's copy.
#[derive(Clone, Debug, PartialEq)]
pub struct Copy {
    /// Index in [`Plan::groups`].
    pub group: u32,
    /// Its way to the replica; none when no bandwidth is left for it.
    pub hop: Option<Hop>,
    /// The bound made it go before this group's commit at the server (index in [`Plan::groups`]).
    pub forced_before: Option<u32>,
    /// No lag fits the bound: the plan has the commit wait for the copy, and counts it as applied
    /// by both at once. Over a network one of them is first, so a live server does not wait; it
    /// says that the bound does not hold until the replica has it (SPEC#replica).
    pub joint: bool,
    /// Bound on the norm of server minus replica just after this group's commit at the server.
    pub divergence: f64,
}

impl Plan {
    /// An empty plan of `policy` for `case`.
    #[must_use]
    pub fn empty(policy: &str, case: &Case) -> Self {
        Self {
            policy: policy.to_owned(),
            transfers: vec![None; case.updates.len()],
            ..Self::default()
        }
    }

    /// One server's commit sequence.
    pub fn sequence<'a>(
        &'a self,
        case: &'a Case,
        server: ServerId,
    ) -> impl Iterator<Item = UpdateId> + 'a {
        self.order.iter().copied().filter(move |id| case.update(*id).server == server)
    }

    /// Sorts groups by commit (ties: server, then as they are) and derives [`Plan::order`] from
    /// them. Every policy ends with this; replica plans refer to groups after it.
    pub fn settle(&mut self) {
        self.groups.sort_by_key(|g| (g.commit_ns, g.server));
        self.order = self.groups.iter().flat_map(|g| g.members.iter().copied()).collect();
    }

    /// Makes copies, which count the groups of their own server, count all groups.
    pub(crate) fn count_over_all_servers(&mut self) {
        for replica in &mut self.replicas {
            let own = self.groups.iter().enumerate().filter(|(_, g)| g.server == replica.server);
            let places: Vec<u32> = own.map(|(place, _)| UpdateId::from_index(place).0).collect();
            for copy in &mut replica.copies {
                copy.group = places[copy.group as usize];
                copy.forced_before = copy.forced_before.map(|group| places[group as usize]);
            }
        }
    }

    /// Mean of the commit instants of what is committed; none if nothing is.
    #[must_use]
    pub fn mean_commit_ns(&self) -> Option<u64> {
        let count = self.order.len() as u128;
        let sum: u128 = self.committed().map(|t| u128::from(t.commit_ns)).sum();
        (count > 0).then(|| u64::try_from((sum + count / 2) / count).unwrap_or(u64::MAX))
    }

    /// Time from the start of the plan to the last commit.
    #[must_use]
    pub fn makespan_ns(&self, case: &Case) -> u64 {
        let last_ns = self.committed().map(|t| t.commit_ns).max();
        last_ns.map_or(0, |last_ns| last_ns.saturating_sub(case.now_ns))
    }

    fn committed(&self) -> impl Iterator<Item = &Transfer> {
        self.order.iter().filter_map(|id| self.transfers[id.index()].as_ref())
    }

    /// The plan with names, as it is written to JSON.
    #[must_use]
    pub fn document(&self, case: &Case) -> PlanDocument {
        let name = |id: &UpdateId| case.update(*id).name.clone();
        let host = |id: HostId| case.host(id).name.clone();
        let updates = self.order.iter().filter_map(|id| {
            let t = self.transfers[id.index()].as_ref()?;
            let document = TransferDocument {
                arrival_ns: t.arrival_ns,
                commit_ns: t.commit_ns,
                via: t.via.map(host),
                segments: t.segments.clone(),
            };
            Some((name(id), document))
        });
        let groups = self.groups.iter().map(|g| GroupDocument {
            members: g.members.iter().map(name).collect(),
            via: g.via.map(host),
            server: Some(case.server(g.server).name.clone()),
            commit_ns: Some(g.commit_ns),
            forward: g.forward.as_ref().map(HopDocument::from),
        });
        let dropped = self.dropped.iter().map(|(id, reason)| DroppedDocument {
            update: name(id),
            reason: reason.as_str().to_owned(),
        });
        let replicas = self.replicas.iter().map(|r| {
            let copies = r.copies.iter().map(|c| CopyDocument {
                members: self.groups[c.group as usize].members.iter().map(name).collect(),
                forced_before: c
                    .forced_before
                    .map(|g| self.groups[g as usize].members.iter().map(name).collect()),
                joint: c.joint,
                divergence: c.divergence,
                hop: c.hop.as_ref().map(HopDocument::from),
            });
            let document =
                ReplicaDocument { host: host(r.host), held: r.held, copies: copies.collect() };
            (case.server(r.server).name.clone(), document)
        });
        let replicas: BTreeMap<_, _> = replicas.collect();
        PlanDocument {
            policy: self.policy.clone(),
            candidate: self.candidate.map(str::to_owned),
            candidates_skipped: self.candidates_skipped,
            order: self.order.iter().map(name).collect(),
            dropped: dropped.collect(),
            updates: updates.collect(),
            groups: groups.collect(),
            replica: (!replicas.is_empty()).then_some(replicas),
            mean_commit_ns: self.mean_commit_ns(),
            makespan_ns: self.makespan_ns(case),
        }
    }
}

/// A [`Plan`] as JSON. Outside policies may leave out what has a default.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PlanDocument {
    /// Name of the policy.
    #[serde(default)]
    pub policy: String,
    /// Which candidate won, of a policy that compares some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<String>,
    /// Whether the case was too large to compare any.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub candidates_skipped: bool,
    /// Names in commit order.
    pub order: Vec<String>,
    /// What is not sent.
    #[serde(default)]
    pub dropped: Vec<DroppedDocument>,
    /// What is sent, by name.
    #[serde(default)]
    pub updates: BTreeMap<String, TransferDocument>,
    /// Groups in commit order.
    #[serde(default)]
    pub groups: Vec<GroupDocument>,
    /// Copies, by server; null without a replica.
    #[serde(default)]
    pub replica: Option<BTreeMap<String, ReplicaDocument>>,
    /// Mean of the commit instants; null if nothing is committed.
    #[serde(default)]
    pub mean_commit_ns: Option<u64>,
    /// From `now_ns` to the last commit.
    #[serde(default)]
    pub makespan_ns: u64,
}

/// A drop as JSON.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DroppedDocument {
    /// Name.
    pub update: String,
    /// See [`DropReason`].
    pub reason: String,
}

/// A [`Transfer`] as JSON.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct TransferDocument {
    /// At its destination.
    pub arrival_ns: u64,
    /// At the server.
    pub commit_ns: u64,
    /// Host that sums.
    pub via: Option<String>,
    /// Sender's rates.
    pub segments: Vec<Segment>,
}

/// A [`Group`] as JSON.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct GroupDocument {
    /// Names in order.
    pub members: Vec<String>,
    /// Host that sums.
    #[serde(default)]
    pub via: Option<String>,
    /// Server's name.
    #[serde(default)]
    pub server: Option<String>,
    /// When it commits.
    #[serde(default)]
    pub commit_ns: Option<u64>,
    /// The sum's way to the server.
    #[serde(default)]
    pub forward: Option<HopDocument>,
}

/// A [`Hop`] as JSON.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct HopDocument {
    /// When it may start.
    pub ready_ns: u64,
    /// When it has arrived.
    pub arrival_ns: u64,
    /// Sender's rates.
    pub segments: Vec<Segment>,
}

impl From<&Hop> for HopDocument {
    fn from(hop: &Hop) -> Self {
        let Hop { ready_ns, arrival_ns, segments } = hop.clone();
        Self { ready_ns, arrival_ns, segments }
    }
}

/// A [`ReplicaPlan`] as JSON.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ReplicaDocument {
    /// Replica's host.
    pub host: String,
    /// Whether the bound holds.
    pub held: bool,
    /// Copies in commit order.
    pub copies: Vec<CopyDocument>,
}

/// A [`struct@Copy`] as JSON.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CopyDocument {
    /// Members of the group.
    pub members: Vec<String>,
    /// Members of the group before whose commit it must be at the replica.
    pub forced_before: Option<Vec<String>>,
    /// Applied together at both.
    pub joint: bool,
    /// Bound after the group's commit.
    pub divergence: f64,
    /// Its way.
    pub hop: Option<HopDocument>,
}
