//! What each box has in each of its jobs: its last hello, kept up by its events and by what it is
//! told, as the box keeps it itself.
//!
//! A job that is registered late begins with it, and so does a server that was passed over while
//! its replica might have had its place. Invariant: within one life of a box versions and order
//! numbers only grow. Memory is bounded: [`ROLES_MAX`] roles of a box, a group a row in each.

use alloc::collections::BTreeMap;

use weft_control::{Command, Decision, Event, Role};
use weft_wire::{GroupId, JobId};

use super::message::{NodeHello, NodeId, OpenGroup, RoleState};

/// All boxes' accounts.
#[derive(Clone, Debug, Default)]
pub(super) struct Accounts {
    roles: BTreeMap<(NodeId, JobId), RoleState>,
}

impl Accounts {
    pub(super) fn get(&self, node: NodeId, job: JobId) -> Option<&RoleState> {
        self.roles.get(&(node, job))
    }

    /// Takes in a hello, which is all that the box has.
    pub(super) fn begin(&mut self, node: NodeId, hello: &NodeHello, is_new_life: bool) {
        let in_hello = |job: JobId| hello.roles.iter().any(|state| state.job == job);
        self.roles.retain(|(of, job), _| *of != node || in_hello(*job));
        for state in &hello.roles {
            let mut state = state.clone();
            let before = self.roles.get(&(node, state.job)).filter(|_| !is_new_life);
            if let Some(before) = before.filter(|before| before.epoch == state.epoch) {
                state.next_order = state.next_order.max(before.next_order);
                state.version = state.version.max(before.version);
            }
            self.roles.insert((node, state.job), state);
        }
    }

    /// Notes what a box is told.
    pub(super) fn note_command(&mut self, node: NodeId, command: &Command) {
        match command {
            Command::Install(group) => {
                let Some(state) = self.roles.get_mut(&(node, group.job)) else { return };
                close(state, |open| open.row() == group.group.row());
                let (id, members) = (group.group, group.mask());
                state.open_groups.push(OpenGroup { group: id, order: group.order, members });
            }
            Command::Remove { job, group } => {
                // A server still has to decide it; the event tells.
                let state = self.roles.get_mut(&(node, *job));
                if let Some(state) = state.filter(|state| state.role == Role::Aggregator) {
                    close(state, |open| open == *group);
                }
            }
            // Its groups end with the old server.
            Command::MoveServer { job, .. } => {
                if let Some(state) = self.roles.get_mut(&(node, *job)) {
                    state.open_groups.clear();
                }
            }
            Command::LeaveReplica { job } => {
                let state = self.roles.get_mut(&(node, *job));
                if let Some(state) = state.filter(|state| state.role == Role::Server) {
                    state.has_left_replica = true;
                }
            }
            Command::CloseMember { .. }
            | Command::SetRate { .. }
            | Command::Skip { .. }
            | Command::Promote { .. }
            | Command::StandDown { .. }
            | Command::Holding(_) => {}
        }
    }

    /// Notes what a box reports.
    pub(super) fn note_event(&mut self, node: NodeId, job: JobId, event: &Event) {
        if let Event::StoodDown { .. } = event {
            self.roles.remove(&(node, job));
        }
        let Some(state) = self.roles.get_mut(&(node, job)) else { return };
        match *event {
            Event::Heir { is_fit } => state.is_fit = is_fit,
            // Held is a distance to one that was met.
            Event::ReplicaAt { is_held, .. } => state.has_met_replica |= is_held,
            Event::Promoted { epoch, order, version, momentum_norm, .. } if epoch > state.epoch => {
                state.role = Role::Server;
                state.epoch = epoch;
                state.is_fit = false;
                (state.next_order, state.version) = (order, version);
                state.momentum_norm = momentum_norm;
                state.open_groups.clear();
            }
            Event::PromotionRefused { .. } => state.is_fit = false,
            Event::Refused { group, .. } => close(state, |open| open == group),
            Event::Decided { group, order, decision, momentum_norm, .. } => {
                // One that is told again says nothing new.
                if order >= state.next_order {
                    state.next_order.0 = order.0 + 1;
                    state.momentum_norm = momentum_norm;
                    if let Decision::Committed(version) = decision {
                        state.version = version.max(state.version);
                    }
                }
                close(state, |open| open == group);
            }
            _ => {}
        }
    }
}

fn close(state: &mut RoleState, is_it: impl Fn(GroupId) -> bool) {
    state.open_groups.retain(|open| !is_it(open.group));
}

/// Roles of one box: one in every job that a controller has.
pub(super) const ROLES_MAX: usize = 256;
