//! What each box has in each of its jobs: its last hello, kept up by its events and by what it is
//! told, as the box keeps it itself.
//!
//! A job that is registered late begins with it, and so does a server that was passed over while
//! its replica might have had its place. Invariant: within one life of a box versions and order
//! numbers only grow. Memory is bounded: [`ROLES_MAX`] roles of a box, a group a row in each.

use alloc::collections::BTreeMap;

use weft_control::{Command, Event};
use weft_wire::JobId;

use super::message::{NodeHello, NodeId, RoleState};

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
        if let Some(state) = self.roles.get_mut(&(node, command.job())) {
            state.note_command(command);
        }
    }

    /// Notes what a box reports.
    pub(super) fn note_event(&mut self, node: NodeId, job: JobId, event: &Event) {
        if let Event::StoodDown { .. } = event {
            self.roles.remove(&(node, job));
        }
        let Some(state) = self.roles.get_mut(&(node, job)) else { return };
        state.note_event(event);
        if let Event::PromotionRefused { .. } = event {
            // Until it says again that it can.
            state.is_fit = false;
        }
    }
}

/// Roles of one box: one in every job that a controller has.
pub(super) const ROLES_MAX: usize = 256;
