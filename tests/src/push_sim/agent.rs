//! A box's side of the control channel: the node's own book of what it knows, and the events that
//! wait for a stream.

use std::collections::VecDeque;
use std::fmt::Write as _;

use weft_control::{Command, Event};
use weft_engine::role::server::ModelState;
use weft_node::agent::book::Book;
use weft_node::durable::Resumed;
use weft_rpc::v1;
use weft_wire::JobId;

use super::scenario::Scenario;
use super::steward;
use super::topology;

/// The agent of one life of a box.
#[derive(Debug)]
pub struct Agent {
    book: Book,
    /// What the controller was not told.
    kept: VecDeque<(JobId, Event)>,
}

impl Agent {
    /// Of a box that begins with what it kept, if anything.
    #[must_use]
    pub fn new(scenario: &Scenario, node: usize, life: u64, kept: &[ModelState]) -> Self {
        let config = toml::from_str(&config(scenario, node)).expect("a good configuration");
        let resumed: Vec<Resumed> = (kept.iter().enumerate())
            .map(|(place, state)| Resumed {
                job: topology::job_id(place),
                next_order: state.next_order,
                version: state.version,
                momentum_norm: norm(&state.momentum),
                last: VecDeque::new(),
                version_before: state.version,
            })
            .collect();
        let book = Book::new(&config, steward::box_name(scenario, node), life + 1);
        let book = book.resume(&resumed);
        Self { book, kept: VecDeque::new() }
    }

    /// What a new stream begins with.
    #[must_use]
    pub fn hello(&self) -> v1::NodeHello {
        self.book.hello(0)
    }

    /// Notes what the box is told.
    pub fn note_command(&mut self, command: &Command) {
        self.book.note_command(command);
    }

    /// Takes an event of the box.
    pub fn note_event(&mut self, job: JobId, event: Event) {
        self.book.note_event(job, &event);
        self.kept.push_back((job, event));
    }

    /// The next event for the controller.
    pub fn told(&mut self) -> Option<(JobId, Event)> {
        self.kept.pop_front()
    }
}

/// The box's configuration file, as far as the agent reads it.
fn config(scenario: &Scenario, node: usize) -> String {
    let addr = topology::box_endpoint(node).addr;
    let server = topology::box_endpoint(scenario.server()).addr;
    let (dimension, chunks) = (scenario.dimension(), scenario.chunks);
    let mut text = format!("[port]\nio = \"udp\"\nip = \"{}/8\"\n", addr.ip());
    for place in 0..scenario.jobs {
        let job = topology::job_id(place).0;
        let workers: Vec<String> = (0..scenario.workers)
            .map(|rank| topology::worker_endpoint(place, rank).addr.to_string())
            .collect();
        let head = format!("job = {job}\nworkers = {workers:?}\n");
        let written = if node == scenario.server() {
            write!(text, "[[server]]\n{head}dimension = {dimension}\n")
        } else if Some(node) == scenario.replica() {
            let index = topology::replica_index(scenario).0;
            write!(
                text,
                "[[replica]]\n{head}dimension = {dimension}\nserver = \"{server}\"\n\
                 box_index = {index}\n"
            )
        } else {
            write!(
                text,
                "[[push]]\n{head}server = \"{server}\"\nchunks = {chunks}\nbox_index = {node}\n"
            )
        };
        written.expect("strings grow");
    }
    text
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt()
}
