//! The nodes: real engines, and what a restart leaves of them.

use weft_control::Command;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::role::replica::Replica;
use weft_engine::role::server::{ModelState, Server, ServerJobStats};
use weft_engine::table::{BoxConfig, Table};
use weft_kernel::Kernels;
use weft_wire::Nanos;

use super::agent::Agent;
use super::scenario::Scenario;
use super::topology;
use crate::coverage::Coverage;
use crate::engine::Engine;
use crate::hash;

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
        let engine = engine(scenario, node, 0, &[]);
        let agent = Agent::new(scenario, node, 0, &[]);
        Self { node, engine, agent, down_until: Nanos(0), lives: 0 }
    }

    /// Ends it and lets it come back at `until` as a new life, with what it stored.
    pub fn restart(&mut self, scenario: &Scenario, until: Nanos, coverage: &mut Coverage) {
        self.count(coverage);
        self.lives += 1;
        self.down_until = until;
        let stored = self.stored(scenario);
        self.engine = engine(scenario, self.node, self.lives, &stored);
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

    /// When it wants to be polled.
    #[must_use]
    pub fn timeout(&self) -> Nanos {
        self.engine.timeout().max(self.down_until)
    }

    /// Takes a controller's word.
    pub fn command(&mut self, now: Nanos, command: Command) {
        self.agent.note_command(&command);
        self.engine.command(now, command);
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

fn engine(scenario: &Scenario, node: usize, life: u64, stored: &[ModelState]) -> Engine {
    let seed = hash(&[scenario.seed, 41, node as u64, life]);
    let kernels = Kernels::detect();
    let local = topology::box_endpoint(scenario, node);
    let jobs = 0..scenario.jobs;
    if node < scenario.aggregators {
        let mtu = scenario.mtu();
        let pushes = jobs.map(|job| topology::push(scenario, node, job)).collect();
        let table = BoxConfig { local, shards: 1, mtu, jobs: Vec::new(), rows: Vec::new(), pushes };
        let table = Table::new(table).expect("good jobs");
        // What gathers draws from the seed's complement.
        return Engine::Aggregator(Box::new(Aggregator::new(&table, 0, !seed, kernels)));
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
