//! Decides what a run of several jobs consists of: each job's workers as if it were alone, and for
//! each host of boxes one `weft-node` with the sections of every job that is there. Pure.

use std::path::{Path, PathBuf};
use std::time::Duration;

use weft_config::controller::{ControllerConfig, Tuning};
use weft_config::node::{BandsSection, NodeConfig};

use crate::certs::{Folder, FolderError};
use crate::lab::tc::JOBS_UNDER;
use crate::lab::topology::Topology;
use crate::run::plan::{
    BoxPlan, Io, Layout, Place, Plan, PlanError, SWITCH_PROGRAM, WorkerIo, box_config, log_path,
};
use crate::run::{push, reduce, resize};
use crate::scenario::{
    CONTROLLER, ClusterSection, JobsScenario, LinkRates, SERVER, Scenario, Site, WordOfJobs,
};

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
    /// Which of them may run at a time; `None`: all.
    pub cluster: Option<ClusterSection>,
    /// What an operator says meanwhile, in the order of the times.
    pub words: Vec<WordOfJobs>,
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
        let mut controller: Option<ControllerConfig> = None;
        let mut jobs = Vec::with_capacity(scenario.jobs.len());
        for index in 0..scenario.jobs.len() {
            let (own, site) = (scenario.job(index), scenario.site(index));
            let folder = directory.join(&own.name);
            let mut names = match &own.push {
                None => own.aggregation.boxes(),
                Some(push) => push.boxes(),
            };
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
            let places = own.resize.as_ref().map_or(own.job.workers, |resize| resize.places);
            let workers: Vec<_> = (0..places).map(|rank| layout.worker(rank, seed)).collect();
            let node = |(index, name): (usize, &String)| BoxPlan {
                name: name.clone(),
                config: node(&layout, index, name),
            };
            let boxes: Vec<BoxPlan> = names.iter().enumerate().map(node).collect();
            for planned in &boxes {
                let mut planned = planned.clone();
                if planned.name == SERVER && scenario.bands.is_some() {
                    planned.config.bands = Some(BandsSection {
                        under: Some(JOBS_UNDER.to_owned()),
                        ..BandsSection::host(layout.interface(SERVER).to_owned(), None)
                    });
                }
                join(&mut nodes, site.host(&planned.name), &planned.config, directory);
            }
            if layout.endpoint().is_some() {
                let whole = Layout { directory, ..layout };
                let known = controller.get_or_insert_with(|| controller_for(&whole, scenario));
                match &own.resize {
                    None => known.jobs.push(push::configs::job(&layout)),
                    Some(_) => {
                        let name = layout.job_name();
                        let told = resize::plan::reduce(&layout, name, &names[0], places);
                        known.reduces.push(told);
                    }
                }
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
        let mut words = scenario.words.clone();
        words.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        let cluster = scenario.cluster.clone();
        Ok(Self { topology, nodes, controller, jobs, cluster, words })
    }

    /// Gives the workers of all jobs another port than UDP sockets.
    ///
    /// # Errors
    /// [`PlanError::WorkerIo`] where a worker cannot have it.
    pub fn set_worker_io(&mut self, io: WorkerIo) -> Result<(), PlanError> {
        let is_push = self.jobs.iter().any(|job| job.scenario.push.is_some());
        io.check_beside_udp(self.topology.is_some(), is_push)?;
        for worker in self.jobs.iter_mut().flat_map(|job| &mut job.plan.workers) {
            worker.io = io;
        }
        for node in &mut self.nodes {
            node.config.port.multicast = io.multicast();
        }
        Ok(())
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

/// What a job has on a box of its.
fn node(layout: &Layout<'_>, index: usize, name: &str) -> NodeConfig {
    match (&layout.scenario.push, &layout.scenario.resize) {
        (Some(_), _) => push::configs::node(layout, name),
        (None, None) => reduce::configs::node(layout, index, name),
        // The controller has it hold the job's lease.
        (None, Some(_)) => {
            let (addr, mtu) = (layout.box_addr(name), layout.scenario.lab.mtu);
            let mut config = box_config(name, Io::Udp, addr, mtu, layout.interface(name));
            config.controller = push::configs::commands(layout, name);
            config
        }
    }
}

/// The controller of all jobs, without any yet; one job's layout has what they share.
fn controller_for(layout: &Layout<'_>, scenario: &JobsScenario) -> ControllerConfig {
    let hosts = scenario.hosts().into_iter().filter(|host| host != CONTROLLER).collect();
    let pushes = || scenario.jobs.iter().filter_map(|job| job.push.as_ref());
    let is_told = pushes().all(|push| push.link_rates == LinkRates::Configured);
    let lateness_ms = pushes().map(|push| u64::from(push.lateness_ms)).max();
    let tuning = Tuning::default();
    ControllerConfig {
        tuning: Tuning { void_ms_min: lateness_ms.unwrap_or(tuning.void_ms_min), ..tuning },
        bands: scenario.bands,
        job_policy: scenario.job_policy.clone(),
        ..push::configs::controller_of(layout, &scenario.lab, hosts, is_told)
    }
}

/// Adds what a job has on a host to the node there, which begins with the first job's.
fn join(nodes: &mut Vec<BoxPlan>, host: &str, config: &NodeConfig, directory: &Path) {
    let log = log_path(directory, host).to_string_lossy().into_owned();
    if let Some(node) = nodes.iter_mut().find(|node| node.name == host) {
        let own = &mut node.config;
        own.server.extend(config.server.iter().cloned());
        own.bands = own.bands.take().or_else(|| config.bands.clone());
        own.push.extend(config.push.iter().cloned());
        own.job.extend(config.job.iter().cloned());
        own.row.extend(config.row.iter().cloned());
        own.controller = own.controller.take().or_else(|| config.controller.clone());
        if config.node.events.is_some() {
            own.node.events = Some(log);
        }
        return;
    }
    let mut config = config.clone();
    host.clone_into(&mut config.node.name);
    // A box of allreduces alone keeps no log.
    config.node.events = config.node.events.map(|_| log);
    nodes.push(BoxPlan { name: host.to_owned(), config });
}

/// Where the seed of one job begins above that of the one before, so that runs of neighbouring
/// seeds share none.
const JOB_SEED_SHIFT: u32 = 32;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use weft_config::{ConfigFile, to_toml};

    use super::*;

    fn plan(text: &str, place: &Place) -> SeveralPlan {
        let scenario = JobsScenario::parse("some.toml", text).expect("it makes sense");
        SeveralPlan::new(&scenario, place, 1, Path::new("/run"), None).expect("it can be planned")
    }

    const LIGHTS: &str = include_str!("../../../scenarios/lights.toml");
    const LOOPBACK: Place = Place::Loopback { port_base: 20_000 };

    #[test]
    fn a_host_has_one_node_with_the_sections_of_all_jobs_there() {
        for place in [Place::Lab, LOOPBACK] {
            let plan = plan(LIGHTS, &place);
            let names: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
            assert_eq!(names, ["ps", "a0"]);
            let servers: Vec<u16> = plan.nodes[0].config.server.iter().map(|s| s.job).collect();
            let pushes: Vec<u16> = plan.nodes[1].config.push.iter().map(|p| p.job).collect();
            assert_eq!((servers, pushes), (vec![0, 1, 2], vec![0, 1, 2]));
            assert_eq!(plan.nodes[0].config.node.events.as_deref(), Some("/run/ps.events.jsonl"));
            let model = plan.nodes[0].config.server[1].initial_model.as_deref();
            assert_eq!(model, Some("/run/ps1/initial.f32"));
            let controller = &plan.controller.as_ref().expect("one for all").config;
            let jobs: Vec<_> = controller.jobs.iter().map(|job| (&*job.name, job.index)).collect();
            assert_eq!(jobs, [("ps0", 0), ("ps1", 1), ("ps2", 2)]);
            assert!(controller.jobs.iter().all(|job| job.server == "ps"));
            // All nodes can run what is planned for them.
            for node in &plan.nodes {
                let file = ConfigFile::new("planned.toml", to_toml(&node.config));
                let config: NodeConfig = file.read().expect("a configuration");
                assert_eq!(config, node.config);
                let settings = weft_lane::Settings::new(config);
                assert!(settings.is_ok(), "{}: {settings:?}", node.name);
            }
        }
    }

    #[test]
    fn the_lowest_priority_has_the_first_number() {
        let text = LIGHTS.replacen("name = \"ps0\"", "name = \"ps0\"\npriority = 5", 1);
        let plan = plan(&text, &Place::Lab);
        let numbers: Vec<u16> = plan.jobs.iter().map(|job| job.site.job).collect();
        assert_eq!(numbers, [2, 0, 1]);
    }

    #[test]
    fn no_two_workers_share_an_address_and_no_two_jobs_a_seed() {
        for place in [Place::Lab, LOOPBACK] {
            let plan = plan(LIGHTS, &place);
            let workers = || plan.jobs.iter().flat_map(|job| &job.plan.workers);
            let addresses: BTreeSet<_> = workers().map(|worker| worker.local).collect();
            assert_eq!(addresses.len(), workers().count());
            let seeds: BTreeSet<u64> = plan.jobs.iter().map(|job| job.seed).collect();
            assert_eq!(seeds.len(), plan.jobs.len());
        }
    }

    #[test]
    fn allreduces_beside_each_other_have_rows_of_their_own() {
        let reduce = |name: &str| {
            format!(
                "[[job]]\nname = \"{name}\"\nworkers = 2\nrounds = 3\nbatch = 16\nhidden = [8]\n\
                 learning_rate = 0.1\nmomentum = 0.5\nelement_type = \"i32\"\n\
                 scale_exponent = \"auto\"\n"
            )
        };
        let text = format!("name = \"sums\"\n{}{}", reduce("x"), reduce("y"));
        let plan = plan(&text, &LOOPBACK);
        assert!(plan.controller.is_none());
        let [node] = plan.nodes.as_slice() else { panic!("{:?}", plan.nodes) };
        let rows: Vec<(u16, u16)> = node.config.row.iter().map(|row| (row.row, row.job)).collect();
        assert_eq!(rows, [(0, 0), (1, 0), (2, 1), (3, 1)]);
        assert!(weft_lane::Settings::new(node.config.clone()).is_ok());
        let second = plan.jobs[1].plan.workers[0].client();
        assert_eq!((second.job, second.row), (1, 2));
    }
}
