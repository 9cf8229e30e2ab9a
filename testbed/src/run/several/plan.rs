//! Decides what a run of several jobs consists of: each job's workers as if it were alone, and for
//! each host of boxes one `weft-node` with the sections of every job that is there. Pure.

use std::path::{Path, PathBuf};
use std::time::Duration;

use weft_config::controller::ControllerConfig;
use weft_config::node::NodeConfig;

use crate::certs::{Folder, FolderError};
use crate::lab::topology::Topology;
use crate::run::plan::{BoxPlan, Io, Layout, Place, Plan, PlanError, SWITCH_PROGRAM, log_path};
use crate::run::push;
use crate::scenario::{CONTROLLER, JobsScenario, Scenario, Site};

/// A run of several jobs.
#[derive(Clone, Debug)]
pub struct SeveralPlan {
    /// The network; `None` on loopback.
    pub topology: Option<Topology>,
    /// The boxes, `weft-node`, by host: those of servers first.
    pub nodes: Vec<BoxPlan>,
    /// `weft-controller`.
    pub controller: Option<BoxPlan<ControllerConfig>>,
    /// The jobs, in the order of the file.
    pub jobs: Vec<JobPlan>,
}

/// One job.
#[derive(Clone, Debug)]
pub struct JobPlan {
    /// Its name.
    pub name: String,
    /// What it would be alone.
    pub scenario: Scenario,
    /// Where its hosts are.
    pub site: Site,
    /// Seed of its data and model.
    pub seed: u64,
    /// When its workers start, after the first job's may.
    pub start: Duration,
    /// Its folder in the run directory.
    pub directory: PathBuf,
    /// Its workers, and its boxes as they would be without the others.
    pub plan: Plan,
}

impl SeveralPlan {
    /// Plans a run over UDP at a place, with `directory` for what boxes write and the jobs'
    /// folders. `certs`: the folder with the certificates of those who call the controller.
    ///
    /// # Errors
    /// [`PlanError`] when the lab's address plan is too small.
    pub fn new(
        scenario: &JobsScenario,
        place: &Place,
        seed: u64,
        directory: &Path,
        certs: Option<&Path>,
    ) -> Result<Self, PlanError> {
        let topology = (*place == Place::Lab).then(|| scenario.topology()).transpose()?;
        let hosts = scenario.boxes();
        let mut nodes: Vec<BoxPlan> = Vec::new();
        let mut of_controller = Vec::new();
        let mut controller = None;
        let mut jobs = Vec::with_capacity(scenario.jobs.len());
        for index in 0..scenario.jobs.len() {
            let (own, site) = (scenario.job(index), scenario.site(index));
            let folder = directory.join(&own.name);
            let mut names = own.push.as_ref().map(|push| push.boxes()).unwrap_or_default();
            names.retain(|name| name != CONTROLLER);
            let layout = Layout {
                scenario: &own,
                io: Io::Udp,
                place,
                site: &site,
                program: Path::new(SWITCH_PROGRAM),
                topology: topology.as_ref(),
                names: &names,
                nodes: &hosts,
                directory: &folder,
                certs,
            };
            let seed = seed.wrapping_add((index as u64) << JOB_SEED_SHIFT);
            let workers: Vec<_> =
                (0..own.job.workers).map(|rank| layout.worker(rank, seed)).collect();
            let node = |name: &String| BoxPlan {
                name: name.clone(),
                config: push::configs::node(&layout, name),
            };
            let boxes: Vec<BoxPlan> = names.iter().map(node).collect();
            for planned in &boxes {
                join(&mut nodes, site.host(&planned.name), &planned.config, directory);
            }
            if own.push.as_ref().is_some_and(|push| push.controller) {
                of_controller.push(push::configs::job(&layout));
                let whole = Layout { directory, ..layout };
                controller = Some(push::configs::controller_of(
                    &whole,
                    &scenario.lab,
                    scenario.hosts().into_iter().filter(|host| host != CONTROLLER).collect(),
                    of_controller.clone(),
                ));
            }
            let plan = Plan {
                io: Io::Udp,
                place: place.clone(),
                topology: topology.clone(),
                elements: layout.elements(),
                boxes,
                controller: None,
                switch: None,
                workers,
                background: Vec::new(),
            };
            jobs.push(JobPlan {
                name: own.name.clone(),
                start: scenario.start(index),
                directory: folder,
                scenario: own,
                site,
                seed,
                plan,
            });
        }
        let controller = controller.map(|config| BoxPlan { name: CONTROLLER.to_owned(), config });
        Ok(Self { topology, nodes, controller, jobs })
    }

    /// Makes the certificates of controller, boxes and workers.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn make_certificates(&self, folder: &Folder, now_unix_s: i64) -> Result<(), FolderError> {
        let workers = self.jobs.iter().flat_map(|job| &job.plan.workers);
        push::certs::make_for(self.controller.as_ref(), &self.nodes, workers, folder, now_unix_s)
    }
}

/// Adds what a job has on a host to the node there, which begins with the first job's.
fn join(nodes: &mut Vec<BoxPlan>, host: &str, config: &NodeConfig, directory: &Path) {
    if let Some(node) = nodes.iter_mut().find(|node| node.name == host) {
        let own = &mut node.config;
        own.server.extend(config.server.iter().cloned());
        own.push.extend(config.push.iter().cloned());
        return;
    }
    let mut config = config.clone();
    host.clone_into(&mut config.node.name);
    config.node.events = Some(log_path(directory, host).to_string_lossy().into_owned());
    nodes.push(BoxPlan { name: host.to_owned(), config });
}

/// Where the seed of one job begins above that of the one before, so that runs of neighbouring
/// seeds share none.
const JOB_SEED_SHIFT: u32 = 32;
