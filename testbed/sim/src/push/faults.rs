//! What is done to nodes, and when.

use weft_wire::Nanos;

use super::Next;
use super::World;
use super::scenario::{Action, Control};

impl World<'_> {
    /// Plans the actions that are due by now.
    pub(super) fn cue(&mut self) {
        let decided = self.judge.decided;
        let (due, waiting): (Vec<usize>, Vec<usize>) =
            self.cues.iter().partition(|cue| self.scenario.cues[**cue].decided <= decided);
        self.cues = waiting;
        for cue in due {
            let at = self.now.saturating_add(self.scenario.cues[cue].delay);
            self.push(at, Next::Act(cue));
        }
    }

    pub(super) fn act(&mut self, action: Action) {
        if self.log {
            println!("{:>12} {action:?}", self.now.0);
        }
        match action {
            Action::RestartBox { node, pause } => self.restart_box(node, pause),
            Action::RestartWorker { worker, pause } => self.restart_worker(worker, pause),
            Action::KillBox { node } => self.kill_box(node),
            Action::SetRates { host, rates } => self.links.set_rates(host, rates),
            Action::RestartController { pause } => self.restart_controller(pause),
            Action::Break { node, pause } => {
                if self.cut(node) {
                    self.coverage.fault("break_stream");
                    self.dial(node, self.now.saturating_add(pause));
                }
            }
        }
    }

    fn restart_box(&mut self, node: usize, pause: Nanos) {
        let until = self.now.saturating_add(pause);
        if self.is_heir(node) {
            // What it decided as the server is lost with it (SPEC#promotion).
            return;
        }
        if node == self.scenario.server() {
            self.coverage.fault("restart_server");
            self.judge.replica_restarted();
        } else if Some(node) == self.scenario.replica() {
            self.coverage.fault("restart_replica");
            self.judge.replica_restarted();
        } else {
            self.coverage.fault("restart_aggregator");
        }
        self.boxes[node].restart(self.scenario, until, &mut self.coverage);
        match self.scenario.control {
            Control::Nobody => {}
            Control::Script if node == self.scenario.server() => {
                self.planner.server_lost(self.scenario, self.now);
                self.carry_out();
            }
            Control::Script => {}
            Control::Engine => {
                // One that begins beside a controller waits for it a moment.
                self.boxes[node].note_controller(self.now, false);
                self.cut(node);
                self.dial(node, until);
            }
        }
        self.settle(node);
    }

    fn restart_worker(&mut self, worker: usize, pause: Nanos) {
        self.coverage.fault("restart_worker");
        let until = self.now.saturating_add(pause);
        let node = self.boxes.len() + worker;
        let (job, rank) = (self.workers[worker].job, self.workers[worker].rank);
        self.workers[worker].restart(self.scenario, until, &mut self.coverage);
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
        self.coverage.fault("restart_controller");
        match self.scenario.control {
            Control::Nobody => {}
            Control::Script => self.restart_script(),
            Control::Engine => self.crash_controller(pause),
        }
    }
}
