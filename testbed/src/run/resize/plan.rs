//! Decides what the processes of such a run are told. Pure.

use std::path::{Path, PathBuf};

use weft_config::StatsFormat;
use weft_config::controller::{
    ControllerConfig, HostConfig, NodeConfig as ControlledNode, PlaceConfig, ReduceConfig,
};
use weft_config::node::{ControllerSection, NodeConfig};

use super::kills::Sight;
use crate::run::plan::{BoxPlan, CohortPlan, Io, Layout, Place, WorkerPlan, box_config};
use crate::run::reduce::configs::rows_of;
use crate::scenario::{CONTROLLER, ScaleExponent, Scenario, Site};

/// What the processes are told.
#[derive(Clone, Debug)]
pub struct ResizePlan {
    pub(super) scenario: Scenario,
    pub(super) controller: BoxPlan<ControllerConfig>,
    pub(super) node: BoxPlan<NodeConfig>,
    /// One for each place.
    workers: Vec<WorkerPlan>,
    checkpoint: PathBuf,
    pub(super) endpoint: String,
}

/// Name of the job in the controller.
pub(super) const JOB: &str = "digits";
/// The box.
const BOX: &str = "a0";

impl ResizePlan {
    /// On loopback, with UDP sockets from this port on.
    ///
    /// # Panics
    /// If the scenario was not checked to have `[resize]` and a fixed exponent.
    #[must_use]
    pub fn new(scenario: &Scenario, port_base: u16, seed: u64, directory: &Path) -> Self {
        let resize = scenario.resize.as_ref().expect("checked");
        let names = [BOX.to_owned()];
        let layout = Layout {
            scenario,
            io: Io::Udp,
            place: &Place::Loopback { port_base },
            site: &Site::default(),
            topology: None,
            program: Path::new(""),
            names: &names,
            nodes: &names,
            directory,
            certs: None,
        };
        let mtu = scenario.lab.mtu;
        let endpoint = layout.endpoint().expect("such a run has a controller");
        let mut node = box_config(BOX, Io::Udp, layout.box_addr(BOX), mtu, "lo");
        node.controller =
            Some(ControllerSection { endpoint: endpoint.clone(), name: None, tls: None });
        let controller = controller(&layout, resize.places, directory);
        let worker = |rank| WorkerPlan { box_rank: rank, ..layout.worker(rank, seed) };
        Self {
            scenario: scenario.clone(),
            controller: BoxPlan { name: CONTROLLER.to_owned(), config: controller },
            node: BoxPlan { name: BOX.to_owned(), config: node },
            workers: (0..resize.places).map(worker).collect(),
            checkpoint: directory.join("model.ckpt"),
            endpoint,
        }
    }

    /// Where is seen what a word comes to.
    pub(super) fn sight(&self) -> Sight {
        let state = self.controller.config.state_file.as_deref().map(PathBuf::from);
        Sight::new(state.unwrap_or_default(), self.checkpoint.clone())
    }

    /// The workers of a cohort.
    pub(super) fn cohort(&self, cohort: u32, workers: u8) -> impl Iterator<Item = WorkerPlan> {
        let of = CohortPlan { cohort, workers, checkpoint: self.checkpoint.clone() };
        let first = self.workers.iter().take(usize::from(workers));
        first.map(move |plan| WorkerPlan { life: cohort, cohort: Some(of.clone()), ..plan.clone() })
    }
}

/// What a controller is told of an allreduce job that it steers.
pub(in crate::run) fn reduce(
    layout: &Layout<'_>,
    name: &str,
    aggregator: &str,
    places: u8,
) -> ReduceConfig {
    let ScaleExponent::Fixed(exponent) = layout.scenario.job.scale_exponent else {
        unreachable!("checked with the scenario")
    };
    let place = |rank: u8| PlaceConfig {
        host: layout.site.host(&format!("w{rank}")).to_owned(),
        address: layout.worker_addr(rank),
    };
    let (places, workers) = ((0..places).map(place).collect(), layout.scenario.job.workers.into());
    ReduceConfig {
        row: rows_of(layout.site.job)[0],
        window: layout.scenario.aggregation.window,
        rounds: Some(layout.scenario.job.rounds.into()),
        elements: layout.elements(),
        integrity: layout.integrity(),
        ..ReduceConfig::new(name, layout.site.job, aggregator, (places, workers), exponent)
    }
}

fn controller(layout: &Layout<'_>, places: u8, directory: &Path) -> ControllerConfig {
    let path = |name: &str| Some(directory.join(name).to_string_lossy().as_ref().into());
    let hosts = (0..places).map(|rank| HostConfig::named(format!("w{rank}")));
    ControllerConfig {
        stats_format: StatsFormat::Json,
        state_file: path("controller.state.json"),
        events: path("controller.events.jsonl"),
        hosts: hosts.chain([HostConfig::named(BOX)]).collect(),
        nodes: vec![ControlledNode { name: BOX.into(), ..ControlledNode::default() }],
        reduces: vec![reduce(layout, JOB, BOX, places)],
        ..ControllerConfig::new(layout.controller_addr())
    }
}
