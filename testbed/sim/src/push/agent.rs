//! A box's side of the control channel: the node's own state, and the events that
//! wait for a stream.

use std::collections::VecDeque;

use weft_agent::NodeState;
use weft_control::{BoxIndex, Command, Event, NodeHello, Role, RoleState};
use weft_engine::role::server::ModelState;
use weft_wire::JobId;

use super::controller;
use super::scenario::Scenario;
use super::topology;

/// The agent of one life of a box.
#[derive(Debug)]
pub struct Agent {
    state: NodeState,
    /// What the controller was not told.
    kept: VecDeque<(JobId, Event)>,
}

impl Agent {
    /// Of a box that begins with what it kept, if anything.
    #[must_use]
    pub fn new(scenario: &Scenario, node: usize, life: u64, kept: &[ModelState]) -> Self {
        let address = topology::box_endpoint(scenario, node).addr.to_string();
        let (role, index) = if node == scenario.server() {
            (Role::Server, BoxIndex(0))
        } else if Some(node) == scenario.replica() {
            (Role::Replica, topology::replica_index(scenario))
        } else {
            (Role::Aggregator, topology::box_index(node))
        };
        let state = |place| {
            let new = RoleState::new(topology::job_id(place), role, index, address.clone());
            match kept.get(place) {
                Some(state) => RoleState {
                    next_order: state.next_order,
                    version: state.version,
                    momentum_norm: norm(&state.momentum),
                    ..new
                },
                None => new,
            }
        };
        let name = controller::box_name(scenario, node);
        let state = NodeState::new(name, life + 1, (0..scenario.jobs).map(state), []);
        Self { state, kept: VecDeque::new() }
    }

    /// What a new stream begins with.
    #[must_use]
    pub fn hello(&self) -> NodeHello {
        self.state.hello()
    }

    /// Notes what the box is told.
    pub fn note_command(&mut self, command: &Command) {
        self.state.note_command(command);
    }

    /// Takes an event of the box.
    pub fn note_event(&mut self, job: JobId, event: Event) {
        self.state.note_event(job, &event);
        self.kept.push_back((job, event));
    }

    /// The next event for the controller.
    pub fn told(&mut self) -> Option<(JobId, Event)> {
        self.kept.pop_front()
    }
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt()
}
