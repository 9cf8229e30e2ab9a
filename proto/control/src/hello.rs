//! What a box says when it attaches to a controller.

use alloc::string::String;
use alloc::vec::Vec;

use weft_wire::{GroupId, JobId, Members};

use crate::{BoxIndex, OrderNumber, Role, ServerEpoch, Version};

/// What a box says when it attaches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeHello {
    /// Its name.
    pub name: String,
    /// New with each start of the process.
    pub life: u64,
    /// What it is in each job, and what it knows of it.
    pub roles: Vec<RoleState>,
}

/// One job at a box.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleState {
    /// The job.
    pub job: JobId,
    /// What it is there.
    pub role: Role,
    /// Its position among aggregators and replicas.
    pub box_index: BoxIndex,
    /// "address:port" of its data port.
    pub address: String,
    /// Server, replica: the first order number that is not decided.
    pub next_order: OrderNumber,
    /// Server, replica: version of the model.
    pub version: Version,
    /// Server, replica: norm of the momentum term.
    pub momentum_norm: f64,
    /// Server: its epoch.
    pub epoch: ServerEpoch,
    /// Replica: it knows that it has all that workers were told of.
    pub is_fit: bool,
    /// Server: this life of it has met the present life of its replica.
    pub has_met_replica: bool,
    /// Server: it acknowledges without its replica, for it was told to.
    pub has_left_replica: bool,
    /// Groups that are installed and not ended.
    pub open_groups: Vec<OpenGroup>,
}

impl RoleState {
    /// Of a box that has done nothing yet.
    #[must_use]
    pub const fn new(job: JobId, role: Role, box_index: BoxIndex, address: String) -> Self {
        Self {
            job,
            role,
            box_index,
            address,
            next_order: OrderNumber(0),
            version: Version(0),
            momentum_norm: 0.0,
            epoch: ServerEpoch(0),
            is_fit: false,
            has_met_replica: false,
            has_left_replica: false,
            open_groups: Vec::new(),
        }
    }
}

/// A group that a box still knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OpenGroup {
    /// Its id.
    pub group: GroupId,
    /// Its order number.
    pub order: OrderNumber,
    /// Its members.
    pub members: Members,
}
