//! Decides whether a replica has all that workers were told of, which its server says; a later
//! controller remembers it, for it may never hear of that server.

use weft_wire::JobId;

use crate::engine::saved::SavedHeir;

use super::{Controller, NodeId, REDIAL_NS, Succession};

impl Controller {
    /// A former controller knew this server. It may have died since: if it does not dial it is
    /// missed. For a controller that begins, at instant 0.
    pub(in crate::engine) fn expect_server(&mut self, server: NodeId) {
        self.nodes[server.index()].heard_ns.get_or_insert(REDIAL_NS);
    }

    /// The replica says where it is: with all that its server had decided when that came, it is
    /// fit.
    pub(in crate::engine) fn weigh_replica(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let Some(replica) = job.replica else { return };
        let is_server_here = self.nodes[job.server.index()].came_ns.is_some();
        let applied = self.applied_by_hello(id, replica);
        if is_server_here && applied.is_some_and(|order| order >= job.succession.applied_min) {
            self.note_fit(id);
        }
    }

    /// The next order number of a replica when it came; none before it did.
    pub(in crate::engine) fn applied_by_hello(&self, id: JobId, replica: NodeId) -> Option<u64> {
        let (_, hello) = self.hellos.iter().find(|(node, _)| *node == replica)?;
        let state = hello.roles.iter().find(|state| state.job == id)?;
        Some(state.next_order.0)
    }

    fn note_fit(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("the caller's job");
        job.succession.is_replica_unfit = false;
        let life = job.replica.and_then(|node| self.nodes[node.index()].life);
        if job.succession.heir_life != life {
            job.succession.heir_life = life;
            self.must_save();
        }
    }

    /// A new life of the replica has to catch up before it is anybody's heir. The order number that
    /// it needs is known here, if its server was ever heard; else only that server could say.
    pub(in crate::engine) fn replica_begins_anew(&mut self, id: JobId, life: u64) {
        let job = self.jobs.get_mut(&id).expect("checked");
        let succession = &mut job.succession;
        if succession.heir_life == Some(life) {
            return;
        }
        succession.applied_min = succession.applied_min.max(succession.decided);
        if succession.heir_life.take().is_some() {
            succession.is_replica_unfit |= self.nodes[job.server.index()].came_ns.is_none();
            self.must_save();
        }
    }

    /// The replica has applied all below `order`, and workers are told of that.
    pub(in crate::engine) fn replica_is_at(&mut self, id: JobId, order: u64) {
        let job = self.jobs.get_mut(&id).expect("checked");
        let succession = &mut job.succession;
        succession.applied_min = succession.applied_min.max(order);
        if order >= succession.applied_min {
            self.note_fit(id);
        }
    }
}

impl Succession {
    /// A former controller knew this heir.
    pub(in crate::engine) const fn expect_heir(&mut self, heir: SavedHeir) {
        (self.heir_life, self.applied_min) = (Some(heir.life), heir.applied_min);
    }

    /// What a later controller is to remember.
    pub(in crate::engine) fn heir(&self) -> Option<SavedHeir> {
        let applied_min = self.applied_min;
        self.heir_life.map(|life| SavedHeir { life, applied_min })
    }
}
