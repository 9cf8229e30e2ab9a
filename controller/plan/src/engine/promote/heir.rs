//! Who could take a server's place: a replica that says so of its present life, and whose server
//! does not acknowledge without it.

use weft_engine::push::Command;
use weft_wire::JobId;

use crate::engine::config::Ack;
use crate::engine::message::RoleState;

use super::{Controller, NodeId};

impl Controller {
    /// True when the replica has all that workers were told of.
    pub(in crate::engine) fn is_fit(&self, id: JobId) -> bool {
        let job = &self.jobs[&id];
        let succession = &job.succession;
        succession.is_fit && !succession.is_replica_left && job.config.ack == Ack::Replica
    }

    /// The first order number that the replica has not applied, as far as it said.
    pub(super) fn applied_by(&self, id: JobId, replica: NodeId) -> u64 {
        let hello = self.hellos.iter().find(|(node, _)| *node == replica);
        let state = hello.and_then(|(_, hello)| hello.roles.iter().find(|state| state.job == id));
        state.map_or(0, |state| state.next_order.0).max(self.jobs[&id].succession.applied)
    }

    /// A replica came. A new life of it is another heir, and was never asked to take over.
    pub(in crate::engine) fn take_replica(
        &mut self,
        now_ns: u64,
        node: NodeId,
        state: &RoleState,
        is_new_here: bool,
    ) {
        let id = state.job;
        let succession = &mut self.jobs.get_mut(&id).expect("checked").succession;
        succession.is_fit = state.is_fit;
        let (is_left, is_asked) = (succession.is_replica_left, succession.asked.is_some());
        if is_left {
            self.command(node, Command::LeaveReplica { job: id });
        }
        if is_new_here && is_asked && !state.is_fit {
            // Nobody was told that the one that was asked is the server.
            self.take_back(now_ns, id);
        }
    }

    /// The replica says whether it has all that workers were told of.
    pub(in crate::engine) fn note_heir(&mut self, id: JobId, is_fit: bool) {
        self.jobs.get_mut(&id).expect("checked").succession.is_fit = is_fit;
    }
}
