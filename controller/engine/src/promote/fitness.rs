//! Who could take a server's place: a replica that says so of its present life, and whose server
//! was heard not to acknowledge without it.

use weft_control::{AckMode, Command};
use weft_wire::JobId;

use crate::message::RoleState;

use super::{Controller, NodeId};

impl Controller {
    /// True when the replica has all that workers were told of.
    pub(crate) fn is_fit(&self, id: JobId) -> bool {
        let job = &self.jobs[&id];
        let is_followed = job.promotion.is_replica_followed();
        let account = job.replica.and_then(|replica| self.accounts.get(replica, id));
        let says_so = account.is_some_and(|state| state.is_fit);
        says_so && is_followed && job.config.ack == AckMode::Replica
    }

    /// The first order number that the replica has not applied, as far as it said.
    pub(super) fn applied_by(&self, id: JobId, replica: NodeId) -> u64 {
        self.accounts.get(replica, id).map_or(0, |state| state.next_order.0)
    }

    /// A replica came. A new life of it is another box, and was never asked to take over.
    pub(crate) fn take_replica(
        &mut self,
        now_ns: u64,
        node: NodeId,
        state: &RoleState,
        is_new_here: bool,
    ) {
        let id = state.job;
        let promotion = &self.jobs[&id].promotion;
        let (is_left, is_asked) = (promotion.is_replica_left(), promotion.is_pending());
        if is_left {
            self.command(node, Command::LeaveReplica { job: id });
        }
        if is_new_here && is_asked && !state.is_fit {
            // Nobody was told that the one that was asked is the server.
            self.take_back(now_ns, id);
        }
    }

    /// The server has said that acknowledgements wait for its replica. Only a controller can have
    /// it leave the replica, and from now on that is this one, or one that has its state.
    pub(crate) fn confirm_replica(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("checked");
        if job.promotion.confirm_replica() {
            self.must_save();
        }
    }
}
