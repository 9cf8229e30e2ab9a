//! What a box says when it attaches to a controller.

use alloc::string::String;
use alloc::vec::Vec;

use weft_wire::{GroupId, JobId, Members};

use crate::{BoxIndex, Command, Decision, Event, Holding, OrderNumber, Role, ServerEpoch, Version};

/// What a box says when it attaches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeHello {
    /// Its name.
    pub name: String,
    /// New with each start of the process.
    pub life: u64,
    /// What it is in each job, and what it knows of it.
    pub roles: Vec<RoleState>,
    /// What it holds for jobs, each once.
    pub holdings: Vec<(JobId, Holding)>,
    /// The bands that it has given to jobs, each once; `None` if it applies none.
    pub bands: Option<Vec<(JobId, u8)>>,
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

    /// Follows what the box is told in this job. Groups stay in the order of their rows, of which
    /// each has one at a time.
    pub fn note_command(&mut self, command: &Command) {
        match command {
            Command::Install(group) => {
                let (id, order, members) = (group.group, group.order, group.mask());
                self.open_groups.retain(|open| open.group.row() != id.row());
                let at = self.open_groups.partition_point(|open| open.group.row() < id.row());
                self.open_groups.insert(at, OpenGroup { group: id, order, members });
            }
            // A server still has to decide it; the event tells.
            Command::Remove { group, .. } if self.role == Role::Aggregator => self.end(*group),
            // Its groups end with the old server.
            Command::MoveServer { .. } => self.open_groups.clear(),
            // Whoever asks later must know: nobody may take this server's place.
            Command::LeaveReplica { .. } if self.role == Role::Server => {
                self.has_left_replica = true;
            }
            Command::Remove { .. }
            | Command::LeaveReplica { .. }
            | Command::CloseMember { .. }
            | Command::SetRate { .. }
            | Command::Skip { .. }
            | Command::Promote { .. }
            | Command::StandDown { .. }
            | Command::Holding(_)
            | Command::SetBands { .. }
            | Command::SetLabel { .. } => {}
        }
    }

    /// Follows what the box reports of this job.
    pub fn note_event(&mut self, event: &Event) {
        match *event {
            Event::ReplicaFitness { is_fit } => self.is_fit = is_fit,
            // Held is a distance to a replica that was met.
            Event::ReplicaAt { is_held, .. } => self.has_met_replica |= is_held,
            Event::Promoted { epoch, order, version, momentum_norm, .. } if epoch > self.epoch => {
                (self.role, self.box_index, self.epoch) = (Role::Server, BoxIndex(0), epoch);
                self.is_fit = false;
                (self.next_order, self.version) = (order, version);
                self.momentum_norm = momentum_norm;
                self.open_groups.clear();
            }
            Event::Refused { group, .. } => self.end(group),
            Event::Decided { group, order, decision, momentum_norm, .. } => {
                // One that is told again says nothing new.
                if order >= self.next_order {
                    self.next_order = OrderNumber(order.0.saturating_add(1));
                    self.momentum_norm = momentum_norm;
                    if let Decision::Committed(version) = decision {
                        self.version = version.max(self.version);
                    }
                }
                self.end(group);
            }
            _ => {}
        }
    }

    fn end(&mut self, group: GroupId) {
        self.open_groups.retain(|open| open.group != group);
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
