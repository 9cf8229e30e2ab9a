//! What is done to nodes, and when.

use weft_wire::Nanos;

use super::Push;
use super::scenario::{Action, Control};
use crate::world::World as _;

impl Push<'_> {
    /// Plans the actions that are due by now.
    pub(super) fn cue(&mut self) {
        self.core.cue(self.judge.decided);
    }

    pub(super) fn do_to_nodes(&mut self, action: Action) {
        match action {
            Action::RestartBox { node, pause } => self.restart_box(node, pause),
            Action::RestartWorker { worker, pause } => self.restart_worker(worker, pause),
            Action::KillBox { node } => self.kill_box(node),
            Action::SetRates { host, rates } => self.core.links.set_rates(host, rates),
            Action::RestartController { pause } => self.restart_controller(pause),
            Action::Break { node, pause } => {
                if self.cut(node) {
                    self.core.coverage.fault("break_stream");
                    self.dial(node, self.core.now.saturating_add(pause));
                }
            }
        }
    }

    fn restart_box(&mut self, node: usize, pause: Nanos) {
        let until = self.core.now.saturating_add(pause);
        if self.is_successor(node) {
            // What it decided as the server is lost with it (SPEC#promotion).
            return;
        }
        if node == self.scenario.server() {
            self.core.coverage.fault("restart_server");
            self.judge.replica_restarted();
        } else if Some(node) == self.scenario.replica() {
            self.core.coverage.fault("restart_replica");
            self.judge.replica_restarted();
        } else {
            self.core.coverage.fault("restart_aggregator");
        }
        self.boxes[node].restart(self.scenario, until, &mut self.core.coverage);
        match self.scenario.control {
            Control::Nobody => {}
            Control::Script if node == self.scenario.server() => {
                self.planner.server_lost(self.scenario, self.core.now);
                self.carry_out();
            }
            Control::Script => {}
            Control::Engine => {
                // One that begins beside a controller waits for it a moment.
                self.boxes[node].engine.note_controller(self.core.now, false);
                self.cut(node);
                self.dial(node, until);
            }
        }
        self.settle(node);
    }

    fn restart_worker(&mut self, worker: usize, pause: Nanos) {
        self.core.coverage.fault("restart_worker");
        let until = self.core.now.saturating_add(pause);
        let node = self.boxes.len() + worker;
        let (job, rank) = (self.workers[worker].job, self.workers[worker].rank);
        self.workers[worker].restart(self.scenario, until, &mut self.core.coverage);
        match self.scenario.control {
            Control::Nobody => {}
            Control::Script => {
                self.planner.lost(self.scenario, job, rank);
                self.carry_out();
            }
            Control::Engine => {
                self.cut(node);
                self.dial(node, until);
            }
        }
        self.settle(node);
    }

    fn restart_controller(&mut self, pause: Nanos) {
        self.core.coverage.fault("restart_controller");
        match self.scenario.control {
            Control::Nobody => {}
            Control::Script => self.restart_script(),
            Control::Engine => self.crash_controller(pause),
        }
    }
}
