//! What a box would tell a controller that it meets for the first time, kept up to date by the same
//! events that go to the controller. Pure.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use weft_engine::push::{Command, Decision, Event, GroupDescriptor};
use weft_rpc::v1;
use weft_wire::{GroupId, JobId};

use crate::config::Settings;

/// What the box is in a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// It holds the model.
    Server,
    /// It follows the server.
    Replica,
    /// It sums.
    Aggregator,
}

/// One job at this box.
#[derive(Clone, Debug)]
pub struct JobState {
    /// The job.
    pub job: JobId,
    /// What the box is in it.
    pub role: Role,
    /// Position among the job's aggregators and replicas.
    pub box_index: u8,
    /// Address of the data port.
    pub address: SocketAddr,
    /// Scale exponent of updates that no controller gave one.
    pub exponent: i8,
    /// The first order number that is not decided.
    pub next_order: u64,
    /// Version of the model.
    pub version: u64,
    /// Norm of the momentum term.
    pub momentum_norm: f64,
    /// Groups that are installed and not ended.
    pub open: BTreeMap<GroupId, GroupDescriptor>,
}

impl JobState {
    /// Takes a controller's word, before it is obeyed.
    pub fn command(&mut self, command: &Command) {
        match command {
            Command::Install(group) if group.job == self.job => {
                self.open.insert(group.group, group.clone());
            }
            Command::Remove { job, group } if *job == self.job && self.role == Role::Aggregator => {
                self.open.remove(group);
            }
            _ => {}
        }
    }

    /// Takes what happened.
    pub fn event(&mut self, event: &Event) {
        match *event {
            Event::Refused { group, .. } => {
                self.open.remove(&group);
            }
            Event::Decided { group, order, decision, momentum_norm, .. } => {
                self.open.remove(&group);
                self.next_order = self.next_order.max(order.0 + 1);
                self.momentum_norm = momentum_norm;
                if let Decision::Committed(version) = decision {
                    self.version = version.0;
                }
            }
            _ => {}
        }
    }

    /// As a controller is told.
    #[must_use]
    pub fn to_proto(&self) -> v1::JobRole {
        let role = match self.role {
            Role::Server => v1::Role::Server,
            Role::Replica => v1::Role::Replica,
            Role::Aggregator => v1::Role::Aggregator,
        };
        v1::JobRole {
            job: self.job.0.into(),
            role: role.into(),
            box_index: self.box_index.into(),
            address: self.address.to_string(),
            next_order: self.next_order,
            version: self.version,
            momentum_norm: self.momentum_norm,
            open_groups: self
                .open
                .values()
                .map(|group| v1::OpenGroup {
                    group: group.group.0,
                    order: group.order.0,
                    members: group.mask().0,
                })
                .collect(),
        }
    }
}

/// What a node is in each of its jobs, at its start.
#[must_use]
pub(super) fn jobs(settings: &Settings) -> Vec<JobState> {
    let address = settings.table.local.addr;
    let begin = |job: u16, role, box_index, exponent| JobState {
        job: JobId(job),
        role,
        box_index,
        address,
        exponent,
        next_order: 0,
        version: 0,
        momentum_norm: 0.0,
        open: BTreeMap::new(),
    };
    let config = &settings.config;
    let servers = config.server.iter().map(|s| JobState {
        next_order: s.initial_order,
        version: s.initial_version,
        ..begin(s.job, Role::Server, 0, s.exponent)
    });
    let replicas = config.replica.iter().map(|s| JobState {
        next_order: s.initial_order,
        version: s.initial_version,
        ..begin(s.job, Role::Replica, s.box_index, s.exponent)
    });
    let pushes = config
        .push
        .iter()
        .map(|s| begin(s.job, Role::Aggregator, s.box_index, s.exponent.unwrap_or(0)));
    servers.chain(replicas).chain(pushes).collect()
}

#[cfg(test)]
mod tests {
    use weft_engine::push::{GroupMember, OrderNumber, Version};
    use weft_wire::header::ElementType;
    use weft_wire::{Members, Rank};

    use super::*;

    #[test]
    fn a_group_is_open_from_its_installation_to_its_decision() {
        let mut state = JobState {
            job: JobId(3),
            role: Role::Server,
            box_index: 0,
            address: "10.0.0.1:22341".parse().unwrap(),
            exponent: 0,
            next_order: 0,
            version: 0,
            momentum_norm: 0.0,
            open: BTreeMap::new(),
        };
        let member = GroupMember { rank: Rank::new(2).unwrap(), version: Version(0) };
        let descriptor = GroupDescriptor {
            job: JobId(3),
            group: GroupId(7),
            order: OrderNumber(4),
            members: vec![member],
            chunks: 1,
            element_type: ElementType::I32,
            elements: 16,
            exponent: -3,
            via: None,
            replicate: false,
            rate_bytes_per_sec: None,
            after: None,
            lateness_ns: 0,
        };
        state.command(&Command::Install(descriptor));
        assert_eq!(state.to_proto().open_groups[0].members, 0b100);
        state.event(&Event::Decided {
            group: GroupId(7),
            order: OrderNumber(4),
            decision: Decision::Committed(Version(9)),
            members: Members(0b100),
            norm: 1.0,
            momentum_norm: 2.5,
        });
        let told = state.to_proto();
        assert_eq!((told.next_order, told.version, told.momentum_norm), (5, 9, 2.5));
        assert!(told.open_groups.is_empty());
    }
}
