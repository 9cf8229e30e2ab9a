//! A job as its users have it: nodes with the configurations that the programs would have, on links
//! with rates, in place of what a seed makes up. Frames keep their order, nobody lies, and models
//! are judged at the end of the run alone.

use std::fmt;
use std::sync::Arc;

use weft_controller_engine::{Config, PolicySource, Tuning};
use weft_engine::role::gather::PushConfig;
use weft_engine::role::push::PusherConfig;
use weft_engine::role::replica::ReplicaJobConfig;
use weft_engine::role::server::ServerJobConfig;
use weft_plan::policy::AnyPolicy;
use weft_wire::Nanos;
use weft_wire::frame::Endpoint;

use super::scenario::{PATIENCE, SILENCE, Scenario};
use super::{controller, topology};
use crate::links::HostLink;

/// A box as it is configured.
#[derive(Clone, Debug)]
pub struct Given<T> {
    /// Its name, as the controller has it.
    pub name: String,
    /// Where it listens.
    pub local: Endpoint,
    /// Its job.
    pub config: T,
}

/// The nodes of one job, whose index is that of [`super::topology::job_id`] at place 0.
#[derive(Clone, Debug)]
pub struct Site {
    /// MTU of every link.
    pub mtu: u16,
    /// Aggregators by box index.
    pub aggregators: Vec<Given<PushConfig>>,
    /// The server.
    pub server: Given<ServerJobConfig>,
    /// The replica.
    pub replica: Option<Given<ReplicaJobConfig>>,
    /// Workers by rank.
    pub workers: Vec<PusherConfig>,
    /// The controller.
    pub controller: Config,
    /// Finds its policies.
    pub policies: Policies,
    /// What the answer of a policy costs that is another program.
    pub answer_delay: Nanos,
    /// The controller hears of the trains that transfers begin with.
    pub has_trains: bool,
    /// Updates come with units that the judge can sum.
    pub judges_models: bool,
    /// How long there may be no controller before updates go without one.
    pub silence: Nanos,
    /// How long it may leave a request.
    pub patience: Nanos,
    /// Links of the hosts: aggregators, server, replica, then workers by rank.
    pub links: Vec<HostLink>,
    /// Links of racks, from them and to them.
    pub racks: Vec<[Option<u64>; 2]>,
}

impl Site {
    /// Name and address of a box by its place.
    pub(super) fn place(&self, node: usize) -> (&str, Endpoint) {
        match node.checked_sub(self.aggregators.len()) {
            None => (&self.aggregators[node].name, self.aggregators[node].local),
            Some(0) => (&self.server.name, self.server.local),
            Some(_) => {
                let replica = self.replica.as_ref().expect("the last box is the replica");
                (&replica.name, replica.local)
            }
        }
    }
}

/// Links as in a rack.
#[derive(Clone, Copy, Debug)]
pub struct Rack {
    /// Of every link, up and down, in octets of Ethernet frames; a server's uplink has twice that,
    /// for as many octets of models go out as of updates come in, and headers.
    pub bytes_per_sec: u64,
    /// Of every link.
    pub mtu: u16,
}

impl Rack {
    /// Nodes with the settings that users get, on its links.
    pub(super) fn site(self, scenario: &Scenario) -> Site {
        let hosts = scenario.boxes() + scenario.workers;
        let rates = [Some(self.bytes_per_sec); 2];
        let mut links = vec![HostLink { rates, ..HostLink::default() }; hosts];
        links[scenario.server()].rates[0] = Some(2 * self.bytes_per_sec);
        let mut controller = controller::config(scenario);
        controller.tuning = Tuning::default();
        for (host, link) in controller.hosts.iter_mut().zip(&links) {
            [host.up_bytes_per_sec, host.down_bytes_per_sec] = link.rates;
        }
        let node = scenario.server();
        Site {
            mtu: self.mtu,
            aggregators: Vec::new(),
            server: Given {
                name: controller::box_name(scenario, node),
                local: topology::box_endpoint(scenario, node),
                config: topology::usual_server(scenario, 0),
            },
            replica: None,
            workers: (0..scenario.workers)
                .map(|rank| topology::usual_pusher(scenario, 0, rank))
                .collect(),
            controller,
            policies: Policies::default(),
            answer_delay: Nanos(0),
            has_trains: false,
            judges_models: true,
            silence: SILENCE,
            patience: PATIENCE,
            links,
            racks: Vec::new(),
        }
    }
}

/// Finds policies by name, for every life of a controller.
#[derive(Clone)]
pub struct Policies(pub Arc<FindPolicy>);

/// Finds a policy by the name in a configuration.
pub type FindPolicy = dyn Fn(&str) -> Result<AnyPolicy, String> + Send + Sync;

impl Policies {
    pub(super) fn source(&self) -> PolicySource {
        let find = Arc::clone(&self.0);
        Box::new(move |name| find(name))
    }
}

impl Default for Policies {
    /// Those built in.
    fn default() -> Self {
        Self(Arc::new(|name| weft_controller_engine::built_in_policies()(name)))
    }
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Policies")
    }
}
