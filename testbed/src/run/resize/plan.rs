//! Decides what the processes of such a run are told. Pure.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use weft_config::StatsFormat;
use weft_config::controller::{
    ControllerConfig, HostConfig, NodeConfig as ControlledNode, PlaceConfig, ReduceConfig,
};
use weft_config::node::NodeConfig;

use super::kills::Sight;
use crate::certs::{Folder, FolderError};
use crate::lab::topology::Topology;
use crate::run::plan::{
    BoxPlan, CohortPlan, Io, Layout, Place, PlanError, WorkerIo, WorkerPlan, box_config,
};
use crate::run::push::certs::make_for;
use crate::run::push::configs::{commands, controller_tls};
use crate::run::reduce::configs::rows_of;
use crate::scenario::{CONTROLLER, ResizeSection, ScaleExponent, Scenario, Site};

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
    /// The network; `None` on loopback.
    pub topology: Option<Topology>,
    /// Folder with the certificates of those who call the controller.
    pub(super) certs: Option<PathBuf>,
}

/// Name of the job in the controller.
pub(super) const JOB: &str = "digits";
/// The box.
const BOX: &str = "a0";

impl ResizePlan {
    /// In a lab, or on loopback, with UDP sockets. `certs`: the folder with the certificates of
    /// those who call the controller.
    ///
    /// # Errors
    /// The lab's address plan is too small.
    ///
    /// # Panics
    /// If the scenario was not checked to have `[resize]` and a fixed exponent.
    pub fn new(
        scenario: &Scenario,
        place: &Place,
        seed: u64,
        directory: &Path,
        certs: Option<&Path>,
    ) -> Result<Self, PlanError> {
        let resize = scenario.resize.as_ref().expect("checked");
        let names = [BOX.to_owned()];
        let topology = (*place == Place::Lab).then(|| scenario.topology()).transpose()?;
        // On loopback hosts are but names, and all workers have ports of their own.
        let hosts = (0..resize.places).map(|place| (format!("w{place}"), resize.host(place)));
        let site = match &topology {
            Some(_) => Site { hosts: hosts.collect(), ..Site::default() },
            None => Site::default(),
        };
        let layout = Layout {
            scenario,
            io: Io::Udp,
            place,
            site: &site,
            topology: topology.as_ref(),
            program: Path::new(""),
            names: &names,
            nodes: &names,
            directory,
            certs,
        };
        let mtu = scenario.lab.mtu;
        let endpoint = layout.endpoint().expect("such a run has a controller");
        let interface = layout.interface(BOX);
        let mut node = box_config(BOX, Io::Udp, layout.box_addr(BOX), mtu, interface);
        node.controller = commands(&layout, BOX);
        let controller = controller(&layout, resize, directory);
        let worker = |rank| WorkerPlan { box_rank: rank, ..layout.worker(rank, seed) };
        Ok(Self {
            scenario: scenario.clone(),
            controller: BoxPlan { name: CONTROLLER.to_owned(), config: controller },
            node: BoxPlan { name: BOX.to_owned(), config: node },
            workers: (0..resize.places).map(worker).collect(),
            checkpoint: directory.join("model.ckpt"),
            endpoint,
            certs: certs.map(Path::to_owned),
            topology,
        })
    }

    /// Gives the workers of all cohorts another port than UDP sockets.
    ///
    /// # Errors
    /// [`PlanError::WorkerIo`] where a worker cannot have it.
    pub fn set_worker_io(&mut self, io: WorkerIo) -> Result<(), PlanError> {
        io.check_beside_udp(self.topology.is_some(), false)?;
        self.workers.iter_mut().for_each(|worker| worker.io = io);
        self.node.config.port.multicast = io.multicast();
        Ok(())
    }

    /// Makes the certificates of controller, box and workers.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn make_certificates(&self, folder: &Folder, now_unix_s: i64) -> Result<(), FolderError> {
        let nodes = core::slice::from_ref(&self.node);
        make_for(Some(&self.controller), nodes, self.workers.iter(), folder, now_unix_s)
    }

    /// Where is seen what a word comes to.
    pub(super) fn sight(&self) -> Sight {
        let state = self.controller.config.state_file.as_deref().map(PathBuf::from);
        Sight::new(state.unwrap_or_default(), self.checkpoint.clone())
    }

    /// The workers of a cohort, at the places that the controller gave them.
    pub(super) fn cohort(&self, cohort: u32, placed: &[u32]) -> Vec<WorkerPlan> {
        cohort_plans(&self.workers, (cohort, placed), &self.checkpoint)
    }
}

/// The workers of a cohort: who they are is their rank's, where they run their place's.
/// `by_place`: one for each place.
pub(in crate::run) fn cohort_plans(
    by_place: &[WorkerPlan],
    (cohort, placed): (u32, &[u32]),
    checkpoint: &Path,
) -> Vec<WorkerPlan> {
    let workers = u8::try_from(placed.len()).unwrap_or(u8::MAX);
    let of = CohortPlan { cohort, workers, checkpoint: checkpoint.to_owned() };
    let at = |place: &u32| by_place.get(usize::try_from(*place).ok()?);
    let places = placed.iter().filter_map(at).zip(by_place);
    let plans = places.map(|(place, own)| WorkerPlan {
        host: place.host.clone(),
        local: place.local,
        life: cohort,
        cohort: Some(of.clone()),
        ..own.clone()
    });
    plans.collect()
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

fn controller(layout: &Layout<'_>, resize: &ResizeSection, directory: &Path) -> ControllerConfig {
    let mut job = reduce(layout, JOB, BOX, resize.places);
    job.placement = resize.placement;
    for (place, index) in job.places.iter_mut().zip(0..) {
        place.host = resize.host(index);
    }
    let hosts: BTreeSet<String> = (0..resize.places).map(|place| resize.host(place)).collect();
    let path = |name: &str| Some(directory.join(name).to_string_lossy().as_ref().into());
    ControllerConfig {
        tls: controller_tls(layout),
        stats_format: StatsFormat::Json,
        state_file: path("controller.state.json"),
        events: path("controller.events.jsonl"),
        hosts: hosts.into_iter().chain([BOX.to_owned()]).map(HostConfig::named).collect(),
        nodes: vec![ControlledNode { name: BOX.into(), ..ControlledNode::default() }],
        reduces: vec![job],
        ..ControllerConfig::new(layout.controller_addr())
    }
}
