//! The nodes: real engines, and what a restart leaves of them.

use weft_control::{Command, Event, Train};
use weft_engine::role::Verdict;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::role::gather::Gather;
use weft_engine::role::replica::Replica;
use weft_engine::role::server::{ModelState, Server, ServerJobStats};
use weft_engine::table::{BoxConfig, Table};
use weft_kernel::Kernels;
use weft_wire::{JobId, Nanos};

use super::agent::Agent;
use super::scenario::Scenario;
use super::topology;
use crate::coverage::Coverage;
use crate::hash;

/// Room for a frame of any MTU here.
pub const FRAME_LEN_MAX: usize = 9_014;

/// The engine of a box.
#[derive(Debug)]
pub enum Engine {
    /// Gathers and relays.
    Aggregator(Box<Aggregator>),
    /// Conducts and commits.
    Server(Box<Server>),
    /// Follows.
    Replica(Box<Replica>),
}

/// A box.
#[derive(Debug)]
pub struct BoxNode {
    /// Its place.
    pub node: usize,
    /// Its engine, the present life's.
    pub engine: Engine,
    /// Its side of the control channel, the present life's.
    pub agent: Agent,
    /// It is away until then.
    pub down_until: Nanos,
    lives: u64,
}

impl BoxNode {
    /// A box that begins now.
    #[must_use]
    pub fn new(scenario: &Scenario, node: usize) -> Self {
        let engine = engine(scenario, node, 0, &[], Nanos(0));
        let agent = Agent::new(scenario, node, 0, &[]);
        Self { node, engine, agent, down_until: Nanos(0), lives: 0 }
    }

    /// Ends it and lets it come back at `until` as a new life, with what it stored.
    pub fn restart(&mut self, scenario: &Scenario, until: Nanos, coverage: &mut Coverage) {
        self.count(coverage);
        self.lives += 1;
        self.down_until = until;
        let stored = self.stored(scenario);
        self.engine = engine(scenario, self.node, self.lives, &stored, until);
        self.agent = Agent::new(scenario, self.node, self.lives, &stored);
    }

    /// True from its second life on.
    #[must_use]
    pub const fn has_restarted(&self) -> bool {
        self.lives > 0
    }

    /// What a server keeps when it ends.
    fn stored(&self, scenario: &Scenario) -> Vec<ModelState> {
        let Engine::Server(server) = &self.engine else { return Vec::new() };
        let state = |job| server.state(topology::job_id(job)).expect("the job is served");
        (0..scenario.jobs).map(state).collect()
    }

    /// Takes a frame; returns what goes out.
    pub fn handle(&mut self, now: Nanos, frame: &[u8]) -> Vec<Vec<u8>> {
        let mut buffer = vec![0xee; FRAME_LEN_MAX.max(frame.len())];
        buffer[..frame.len()].copy_from_slice(frame);
        let len = frame.len();
        let verdict = match &mut self.engine {
            Engine::Aggregator(engine) => engine.handle_frame(now, &mut buffer, len),
            Engine::Server(engine) => engine.handle_frame(now, &mut buffer, len),
            Engine::Replica(engine) => engine.handle_frame(now, &mut buffer, len),
        };
        let mut out = Vec::new();
        match verdict {
            Verdict::Drop(_) | Verdict::Hold | Verdict::Host => {}
            Verdict::Send { len } => out.push(buffer[..len].to_vec()),
            Verdict::Fan { len, push } => {
                let Engine::Aggregator(engine) = &self.engine else {
                    unreachable!("only aggregators make copies")
                };
                let gather = engine.gather();
                for peer in gather.copies(push, &buffer[..len]) {
                    let mut copy = buffer[..len].to_vec();
                    let head = &mut copy[..gather.copy_header_len(push)];
                    if gather.address_copy(push, peer, head, len) {
                        out.push(copy);
                    }
                }
                out.push(buffer[..len].to_vec());
            }
            Verdict::Multicast { .. } => unreachable!("no job here is reduced"),
        }
        out
    }

    /// What goes out unasked.
    pub fn poll(&mut self, now: Nanos) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        let mut buffer = vec![0xee; FRAME_LEN_MAX];
        while let Some(len) = match &mut self.engine {
            Engine::Aggregator(engine) => engine.poll_transmit(now, &mut buffer),
            Engine::Server(engine) => engine.poll_transmit(now, &mut buffer),
            Engine::Replica(engine) => engine.poll_transmit(now, &mut buffer),
        } {
            out.push(buffer[..len].to_vec());
        }
        out
    }

    /// When it wants to be polled.
    #[must_use]
    pub fn timeout(&self) -> Nanos {
        let timeout = match &self.engine {
            Engine::Aggregator(engine) => engine.poll_timeout(),
            Engine::Server(engine) => engine.poll_timeout(),
            Engine::Replica(engine) => engine.poll_timeout(),
        };
        timeout.max(self.down_until)
    }

    /// Takes a controller's word.
    pub fn command(&mut self, now: Nanos, command: Command) {
        self.agent.note_command(&command);
        match &mut self.engine {
            Engine::Aggregator(engine) => engine.gather_mut().handle_command(&command),
            Engine::Server(engine) => engine.handle_command(now, command),
            Engine::Replica(engine) => engine.handle_command(now, command),
        }
    }

    /// Its stream to a controller has begun, or ended.
    pub fn note_controller(&mut self, now: Nanos, is_there: bool) {
        match &mut self.engine {
            Engine::Aggregator(_) => {}
            Engine::Server(engine) => engine.handle_controller(now, is_there),
            Engine::Replica(engine) => engine.handle_controller(now, is_there),
        }
    }

    /// The next frame arrived now, by the port's clock.
    pub fn note_arrival(&mut self, now: Nanos) {
        match &mut self.engine {
            Engine::Aggregator(engine) => engine.gather_mut().note_arrival(now.0),
            Engine::Server(engine) => engine.note_arrival(now.0),
            Engine::Replica(engine) => engine.note_arrival(now.0),
        }
    }

    /// The next train that has arrived.
    pub fn train(&mut self) -> Option<Train> {
        match &mut self.engine {
            Engine::Aggregator(engine) => engine.gather_mut().poll_train(),
            Engine::Server(engine) => engine.poll_train(),
            Engine::Replica(engine) => engine.poll_train(),
        }
    }

    /// What it reports.
    pub fn event(&mut self) -> Option<(JobId, Event)> {
        match &mut self.engine {
            Engine::Aggregator(engine) => engine.gather_mut().poll_event(),
            Engine::Server(engine) => engine.poll_event(),
            Engine::Replica(engine) => engine.poll_event(),
        }
    }

    /// Adds its counters, when it stops.
    pub fn count(&self, coverage: &mut Coverage) {
        match &self.engine {
            Engine::Aggregator(engine) => {
                coverage.drops("agg drop", &engine.stats().drops);
                for push in engine.gather().reports() {
                    for (name, count) in push.stats().transitions() {
                        coverage.add("lease", name, count);
                    }
                    coverage.add("aggregator", "copies_skipped", push.stats().copies_skipped);
                }
            }
            Engine::Server(engine) => {
                coverage.drops("srv drop", &engine.stats().drops);
                engine.jobs().for_each(|(_, stats)| count_server(stats, coverage));
            }
            Engine::Replica(engine) => {
                coverage.drops("rep drop", &engine.stats().drops);
                engine.served().for_each(|(_, _, stats)| count_server(stats, coverage));
                for (_, stats) in engine.jobs() {
                    let counts = [
                        ("groups_applied", stats.groups_applied),
                        ("chunks_copied", stats.chunks_copied),
                        ("chunks_repaired", stats.chunks_repaired),
                        ("duplicates", stats.duplicates),
                        ("copies_unusable", stats.copies_unusable),
                        ("snapshots", stats.snapshots),
                        ("promotions", stats.promotions),
                    ];
                    counts.iter().for_each(|(name, count)| coverage.add("replica", name, *count));
                }
            }
        }
    }
}

fn count_server(stats: &ServerJobStats, coverage: &mut Coverage) {
    let counts = [
        ("announcements_refused", stats.announcements_refused),
        ("groups_committed", stats.groups_committed),
        ("commits", stats.commits),
        ("voids", stats.voids),
        ("dropped", stats.dropped),
        ("duplicates", stats.duplicates),
        ("overlaps", stats.overlaps),
        ("chunks_aggregated", stats.chunks_aggregated),
        ("chunks_direct", stats.chunks_direct),
        ("chunks_composed", stats.chunks_composed),
        ("credits_repeated", stats.credits_repeated),
        ("fallbacks", stats.fallbacks),
        ("members_closed", stats.members_closed),
        ("repairs", stats.repairs),
        ("decisions_repeated", stats.decisions_repeated),
        ("bound_waits", stats.bound_waits),
        ("bound_broken", stats.bound_broken),
    ];
    counts.iter().for_each(|(name, count)| coverage.add("server", name, *count));
}

fn engine(
    scenario: &Scenario,
    node: usize,
    life: u64,
    stored: &[ModelState],
    now: Nanos,
) -> Engine {
    let seed = hash(&[scenario.seed, 41, node as u64, life]);
    let kernels = Kernels::detect();
    let local = topology::box_endpoint(scenario, node);
    let jobs = 0..scenario.jobs;
    if node < scenario.aggregators {
        let mtu = scenario.mtu();
        let table = BoxConfig { local, shards: 1, mtu, jobs: Vec::new(), rows: Vec::new() };
        let table = Table::new(table).expect("an empty table is good");
        let pushes: Vec<_> = jobs.map(|job| topology::push(scenario, node, job)).collect();
        let gather = Gather::new(local, mtu, &pushes, seed, now, kernels).expect("good jobs");
        return Engine::Aggregator(Box::new(
            Aggregator::new(&table, 0, seed, kernels).with_pushes(gather),
        ));
    }
    if node == scenario.server() {
        let jobs: Vec<_> = jobs.map(|job| topology::server(scenario, job)).collect();
        let mut server =
            Server::new(local, scenario.mtu(), &jobs, seed, kernels).expect("good jobs");
        for (job, state) in stored.iter().enumerate() {
            server.restore(topology::job_id(job), state).expect("it is the job's own");
        }
        return Engine::Server(Box::new(server));
    }
    let jobs: Vec<_> = jobs.map(|job| topology::replica(scenario, job)).collect();
    Engine::Replica(Box::new(
        Replica::new(local, scenario.mtu(), &jobs, seed, kernels).expect("good jobs"),
    ))
}
