//! A server that dies for good, what the controller says of it, and when such a run is over.

use weft_controller_engine::Notice;
use weft_engine::role::replica::ReplicaJobStats;
use weft_wire::{JobId, Nanos};

use super::{Push, topology};
use crate::engine::Engine;
use crate::world::World as _;

impl Push<'_> {
    /// A box ends for good. Nobody hears of it but by its silence.
    pub(super) fn kill_box(&mut self, node: usize) {
        let is_server = node == self.scenario.server();
        self.core.coverage.fault(if is_server { "kill_server" } else { "kill_box" });
        self.cut(node);
        self.boxes[node].down_until = Nanos::MAX;
        self.settle(node);
    }

    /// True for one that will not come back.
    pub(super) fn is_dead(&self, node: usize) -> bool {
        self.boxes.get(node).is_some_and(|known| known.down_until == Nanos::MAX)
    }

    /// True for a server whose job has another one: what it says is refused.
    pub(super) fn is_former(&self, node: usize) -> bool {
        let mut jobs = 0..self.scenario.jobs;
        node == self.scenario.server() && jobs.any(|place| self.judge.is_succeeded(place))
    }

    /// True for a replica that is the server of a job.
    pub(super) fn is_successor(&self, node: usize) -> bool {
        let mut jobs = 0..self.scenario.jobs;
        Some(node) == self.scenario.replica() && jobs.any(|place| self.judge.is_succeeded(place))
    }

    /// What the controller tells people of a job's servers.
    pub(super) fn note_succession(&mut self, job: JobId, notice: &Notice) {
        let names = ["promoting", "promoted", "refused", "stranded", "left", "stood_down"];
        let said = match notice {
            Notice::Promoting { .. } => 0,
            Notice::Promoted { .. } => 1,
            Notice::Refused { .. } => 2,
            Notice::Stranded { .. } => 3,
            Notice::ReplicaLeft { .. } => 4,
            Notice::StoodDown { .. } => 5,
            // Not of who the server is.
            Notice::CommitsLost { .. }
            | Notice::InstallRefused { .. }
            | Notice::Band { .. }
            | Notice::BandRefused { .. } => {
                return;
            }
        };
        for (place, name) in names.into_iter().enumerate() {
            self.core.coverage.add("succession", name, u64::from(place == said));
        }
        let place = topology::job_place(job);
        if let Notice::Refused { .. } | Notice::Stranded { .. } = notice {
            // One that lacks nothing takes over, now or when it is heard again.
            let is_fit = self.is_fit(job);
            if is_fit && matches!(notice, Notice::Refused { .. }) {
                self.judge.violations.push(format!("job {place}: {notice:?}"));
            }
            // The dead server may not have come to say that it had not left it.
            let is_successor = is_fit && self.controller.is_replica_confirmed(job);
            if !is_successor && self.is_dead(self.scenario.server()) {
                let is_anew = self.boxes[self.scenario.server() + 1].has_restarted();
                let why = if is_anew { "stranded_anew" } else { "stranded_early" };
                self.core.coverage.add("succession", why, 1);
                self.judge.note_stranded(place);
            }
        }
    }

    /// The replica says that it lacks nothing.
    fn is_fit(&self, job: JobId) -> bool {
        let replica = self.scenario.replica().map(|node| &self.boxes[node].engine);
        let Some(Engine::Replica(replica)) = replica else { return false };
        let is_it = |(id, stats): (JobId, &ReplicaJobStats)| id == job && stats.is_fit;
        replica.jobs().any(is_it)
    }
}
