//! What is under way, for who watches: a job's workers, those behind the others, and its groups
//! that are not decided. Pure.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weft_wire::GroupId;

use super::super::Controller;
use super::super::job::{Group, GroupState, Job};

/// A worker.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WorkerStatus {
    /// Its rank.
    pub rank: u8,
    /// Its host.
    pub host: String,
    /// It has a stream to the controller.
    pub is_attached: bool,
    /// Updates asked for that have not come to their end.
    pub outstanding: usize,
    /// Updates asked for.
    pub requested: u64,
    /// Of these, in the model.
    pub committed: u64,
    /// Since it last asked; none when it never did.
    pub asked_ago_ns: Option<u64>,
    /// How long after the first worker with the same version it asked, on average.
    pub lag_mean_ns: u64,
}

/// A group that is not decided.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupStatus {
    /// Its id.
    pub group: u32,
    /// Its place in the server's commit sequence.
    pub order: u64,
    /// Ranks of its members, in order.
    pub ranks: Vec<u8>,
    /// Box index of its aggregator; none for a direct one.
    pub via: Option<u8>,
    /// `installing`, `granted` or `staged`.
    pub state: &'static str,
    /// Since it was installed.
    pub age_ns: u64,
    /// It is later than planned.
    pub is_late: bool,
}

impl Controller {
    pub(super) fn worker_status(&self, now_ns: u64, job: &Job) -> Vec<WorkerStatus> {
        let status = |(rank, worker): (u8, &super::super::job::Worker)| {
            let pace = worker.pace();
            WorkerStatus {
                rank,
                host: self.links.host_name(worker.host()),
                is_attached: worker.is_attached(),
                outstanding: worker.outstanding(),
                requested: pace.requested,
                committed: pace.committed,
                asked_ago_ns: pace.asked_ns.map(|asked_ns| now_ns.saturating_sub(asked_ns)),
                lag_mean_ns: pace.lag_sum_ns.checked_div(pace.requested).unwrap_or(0),
            }
        };
        (0u8..).zip(&job.workers).map(status).collect()
    }
}

/// The groups of a job that are not decided, in their order, the first of them.
pub(super) fn open_groups(
    now_ns: u64,
    job: &Job,
    groups: &BTreeMap<GroupId, Group>,
) -> Vec<GroupStatus> {
    let open = job.open.iter().filter_map(|(order, id)| Some((*order, *id, groups.get(id)?)));
    let status = |(order, id, group): (u64, GroupId, &Group)| GroupStatus {
        group: id.0,
        order,
        ranks: group.members.iter().filter_map(|it| u8::try_from(it.rank.index()).ok()).collect(),
        via: group.descriptor.via.map(|via| via.0),
        state: match group.state {
            GroupState::Installing => "installing",
            GroupState::Granted => "granted",
            GroupState::Staged => "staged",
        },
        age_ns: now_ns.saturating_sub(group.installed_ns),
        is_late: now_ns > group.late_ns,
    };
    open.map(status).take(GROUPS_SHOWN_MAX).collect()
}

/// Groups of a job that are told of.
const GROUPS_SHOWN_MAX: usize = 16;
