//! `[[job]]`: several training runs side by side, in one lab, under one controller.
//!
//! Invariant: each job of a [`JobsScenario`] that exists is a [`Scenario`] that could run alone; in
//! it hosts have the names that a scenario of one job gives them (`server`, `w0`, `a0`), and
//! [`Site`] says where these are. What a file of one job may have and this may not is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_config::controller::{BandsConfig, JobPolicySection, Placement};
use weft_config::{ConfigError, ConfigFile, Problem};

use super::lab::topology_of;
use super::{
    AggregationSection, CONTROLLER, FaultSection, JobSection, LabSection, REPLICA, ResizeSection,
    SERVER, Scenario, refuse,
};
use crate::lab::topology::{Topology, TopologyError};

/// Several jobs, and the lab that they share.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JobsScenario {
    /// Name in reports, and of the lab.
    pub name: String,
    /// The jobs, 2 to 16.
    #[serde(rename = "job")]
    pub jobs: Vec<JobSection>,
    /// Where.
    #[serde(default)]
    pub lab: LabSection,
    /// Which boxes sum in those of the jobs that are allreduces, and side by side; one lane.
    #[serde(default)]
    pub aggregation: AggregationSection,
    /// What the fault port does to frames.
    #[serde(default)]
    pub faults: FaultSection,
    /// Whose models leave a host first, where several jobs' servers share its link; in a lab.
    /// Default: the link is shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bands: Option<BandsConfig>,
    /// What an operator says while the jobs run, in the order of the times.
    #[serde(default, rename = "word", skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<WordOfJobs>,
    /// Who pauses, resumes, widens and halves jobs while they run: a policy in the controller, on
    /// jobs that have one. Default: nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_policy: Option<JobPolicySection>,
    /// Which of the jobs may run at a time. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterSection>,
}

/// Where one of several jobs is: its number, and the hosts behind the names that it has for them.
/// That of a job alone is the default.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Site {
    /// Its number, which packets carry.
    pub job: u16,
    /// Workers of the jobs before it.
    pub workers_before: u16,
    /// Hosts by the job's names for them; who is not in it has a host of that name.
    pub hosts: BTreeMap<String, String>,
}

impl Site {
    /// The host that a job calls by this name.
    #[must_use]
    pub fn host<'a>(&'a self, name: &'a str) -> &'a str {
        self.hosts.get(name).map_or(name, String::as_str)
    }

    /// Whether this is of one job among several.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        !self.hosts.is_empty()
    }
}

mod steer;

pub use steer::{ClusterSection, WordOfJobs};

/// Whether a file has a list of jobs and not one.
///
/// # Errors
/// It is no TOML.
pub fn has_jobs(file: &str, text: &str) -> Result<bool, ConfigError> {
    /// What alone is looked at.
    #[derive(Deserialize)]
    struct Shape {
        #[serde(default)]
        job: serde_json::Value,
    }
    let shape: Shape = ConfigFile::new(file, text).read()?;
    Ok(shape.job.is_array())
}

impl JobsScenario {
    /// Reads a scenario of several jobs; `file` is its name in errors.
    ///
    /// # Errors
    /// Names the file, the line and the field.
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        let file = ConfigFile::new(file, text);
        let mut scenario: Self = file.read()?;
        scenario.fill();
        scenario.check().map_err(|problem| file.refuse(&problem))?;
        Ok(scenario)
    }

    /// Fills in the hosts that the file leaves out.
    fn fill(&mut self) {
        let mut next = 0;
        for job in &mut self.jobs {
            let places = job.places();
            if job.hosts.is_empty() {
                job.hosts = (next..).take(places.into()).map(|n| format!("w{n}")).collect();
            }
            next += u16::from(places);
            if job.push.is_some() && job.server.is_empty() {
                SERVER.clone_into(&mut job.server);
            }
        }
    }

    /// Finds the first value that makes no sense.
    ///
    /// # Errors
    /// The key, and why.
    pub fn check(&self) -> Result<(), Problem> {
        if self.name.is_empty() {
            return refuse("", "name", "must not be empty");
        }
        let count = self.jobs.len();
        if !(2..=JOBS_MAX).contains(&count) {
            let reason = format!("is a list of {count}; expected 2 to {JOBS_MAX}, or one [job]");
            return refuse("", "job", reason);
        }
        let mut names = BTreeSet::new();
        for (index, job) in self.jobs.iter().enumerate() {
            let section = format!("job[{index}]");
            self.check_job(&section, job)?;
            if !names.insert(&job.name) {
                return refuse(&section, "name", format!("is `{}`, as another job's", job.name));
            }
        }
        let workers: usize = self.jobs.iter().map(|job| usize::from(job.places())).sum();
        if workers > WORKERS_MAX {
            let reason = format!("have {workers} workers together; expected at most {WORKERS_MAX}");
            return refuse("", "job", reason);
        }
        let is_planned = |job: &JobSection| job.push.as_ref().map(|push| push.controller);
        let first = self.jobs.iter().find_map(is_planned);
        let differs = |job: &JobSection| is_planned(job).is_some_and(|it| Some(it) != first);
        if let Some(index) = self.jobs.iter().position(differs) {
            let reason = "is another job's contrary; all have a controller, or none has";
            return refuse(&format!("job[{index}].push"), "controller", reason);
        }
        self.check_cluster()?;
        self.check_job_policy()?;
        self.check_bands()?;
        for (index, word) in self.words.iter().enumerate() {
            self.check_word(&format!("word[{index}]"), word)?;
        }
        if self.aggregation.lanes != 1 {
            let reason = format!("is {}; boxes of several jobs have 1", self.aggregation.lanes);
            return refuse("aggregation", "lanes", reason);
        }
        self.lab.validate(&self.hosts())?;
        self.topology().map_err(|error| Problem::new("lab.mtu", error.to_string()))?;
        for index in 0..count {
            self.job(index).check().map_err(|problem| place(index, problem))?;
        }
        self.faults.validate()
    }

    fn check_job(&self, section: &str, job: &JobSection) -> Result<(), Problem> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if !(1..=NAME_LEN_MAX).contains(&job.name.len()) || !job.name.chars().all(is_plain) {
            let reason = format!(
                "is `{}`; expected 1 to {NAME_LEN_MAX} letters, digits, `-` and `_`",
                job.name
            );
            return refuse(section, "name", reason);
        }
        if !(0.0..=START_S_MAX).contains(&job.start_s) {
            let reason = format!("is {}; expected 0 to {START_S_MAX} s", job.start_s);
            return refuse(section, "start_s", reason);
        }
        if job.places() < job.workers {
            let reason = format!("is {}; expected {} or more", job.places(), job.workers);
            return refuse(section, "places", reason);
        }
        if job.push.is_some() && job.places.is_some() {
            return refuse(section, "places", "are of an allreduce; leave out `push`");
        }
        if job.hosts.len() != usize::from(job.places()) {
            let reason = format!("are {}, for {} workers", job.hosts.len(), job.places());
            return refuse(section, "hosts", reason);
        }
        let reserved = |host: &String| {
            host == CONTROLLER || host == REPLICA || self.box_hosts().contains(host)
        };
        if let Some(host) = job.hosts.iter().find(|host| reserved(host)) {
            return refuse(section, "hosts", format!("name {host}, which is a box's"));
        }
        let Some(push) = &job.push else {
            let is_server = !job.server.is_empty();
            let reason = "is for a job with [job.push]";
            return if is_server { refuse(section, "server", reason) } else { Ok(()) };
        };
        if push.has_replica() {
            let reason = "is for a scenario of one job";
            return refuse(&format!("{section}.push"), "replication", reason);
        }
        if reserved(&job.server) {
            let reason = format!("is {}, which is another box's", job.server);
            return refuse(section, "server", reason);
        }
        Ok(())
    }

    /// Hosts of aggregators.
    fn box_hosts(&self) -> BTreeSet<String> {
        let boxes = self.jobs.iter().map(|job| match &job.push {
            None => self.aggregation.leaves.saturating_add(1),
            Some(push) => push.aggregators,
        });
        (0..boxes.max().unwrap_or(0)).map(|index| format!("a{index}")).collect()
    }

    /// Names of the hosts that a lab of this scenario has, each once: those of the boxes first.
    #[must_use]
    pub fn hosts(&self) -> Vec<String> {
        let mut hosts = self.boxes();
        if self.jobs.iter().any(JobSection::has_controller) {
            hosts.push(CONTROLLER.to_owned());
        }
        for host in self.jobs.iter().flat_map(|job| &job.hosts) {
            if !hosts.contains(host) {
                hosts.push(host.clone());
            }
        }
        hosts
    }

    /// Names of the hosts of servers and aggregators, each once.
    #[must_use]
    pub fn boxes(&self) -> Vec<String> {
        let mut boxes: Vec<String> = Vec::new();
        for job in self.jobs.iter().filter(|job| job.push.is_some()) {
            if !boxes.contains(&job.server) {
                boxes.push(job.server.clone());
            }
        }
        boxes.extend(self.box_hosts());
        boxes
    }

    /// When a job's workers start, after the first may.
    #[must_use]
    pub fn start(&self, index: usize) -> Duration {
        Duration::try_from_secs_f64(self.jobs[index].start_s).unwrap_or_default()
    }

    /// Where a job is.
    ///
    /// # Panics
    /// For one that is not there.
    #[must_use]
    pub fn site(&self, index: usize) -> Site {
        let job = &self.jobs[index];
        let workers = job.hosts.iter().enumerate();
        let mut hosts: BTreeMap<String, String> =
            workers.map(|(rank, host)| (format!("w{rank}"), host.clone())).collect();
        if job.push.is_some() {
            hosts.insert(SERVER.to_owned(), job.server.clone());
        }
        // Where jobs are put in an order, that is the order of their numbers.
        let goes_before =
            |(at, other): (usize, &JobSection)| (other.priority, at) < (job.priority, index);
        let number = self.jobs.iter().enumerate().filter(|it| goes_before(*it)).count();
        Site {
            job: u16::try_from(number).unwrap_or(u16::MAX),
            workers_before: self.jobs[..index].iter().map(|job| u16::from(job.places())).sum(),
            hosts,
        }
    }

    /// A job as it would be alone, with the links that it has here.
    ///
    /// # Panics
    /// For one that is not there.
    #[must_use]
    pub fn job(&self, index: usize) -> Scenario {
        let site = self.site(index);
        let mut job = self.jobs[index].clone();
        let push = job.push.take();
        let is_reduce = push.is_none();
        let places = job.places.take();
        (job.server, job.hosts) = (String::new(), Vec::new());
        let mut lab = LabSection { racks: Vec::new(), ..self.lab.clone() };
        let mut scenario = Scenario {
            name: job.name.clone(),
            job,
            push,
            lab: LabSection::default(),
            aggregation: if is_reduce {
                self.aggregation.clone()
            } else {
                AggregationSection::default()
            },
            faults: self.faults.clone(),
            restart: Vec::new(),
            rate_step: Vec::new(),
            background: Vec::new(),
            crash: Vec::new(),
            resize: places.map(|places| ResizeSection {
                places,
                lab: false,
                hosts: Vec::new(),
                placement: Placement::default(),
                word: Vec::new(),
                kill: Vec::new(),
            }),
        };
        let names = scenario.hosts();
        lab.links = by_name(&names, &site, &self.lab.links);
        lab.delays_ms = by_name(&names, &site, &self.lab.delays_ms);
        scenario.lab = lab;
        scenario
    }

    /// The lab of this scenario.
    ///
    /// # Errors
    /// When the lab's address plan is too small.
    pub fn topology(&self) -> Result<Topology, TopologyError> {
        let hosts = self.hosts();
        let mut topology = topology_of(&self.lab, hosts.clone())?;
        for host in hosts.iter().filter(|host| !self.lab.delay(host).is_zero()) {
            topology.set_delay(host, self.lab.delay(host));
        }
        Ok(topology)
    }
}

/// What is known of hosts, by the names that a job has for them.
fn by_name<V: Clone>(
    names: &[String],
    site: &Site,
    of_hosts: &BTreeMap<String, V>,
) -> BTreeMap<String, V> {
    let found = names.iter().map(|name| (name, of_hosts.get(site.host(name))));
    found.filter_map(|(name, value)| Some((name.clone(), value?.clone()))).collect()
}

/// A problem of a job, where the list has it.
fn place(index: usize, problem: Problem) -> Problem {
    let Problem { field, problem } = problem;
    let field = match field.strip_prefix("job.") {
        Some(key) => format!("job[{index}].{key}"),
        None if field.starts_with("push") => format!("job[{index}].{field}"),
        None => field,
    };
    Problem::new(field, problem)
}

/// Jobs of one scenario.
const JOBS_MAX: usize = 16;
/// Workers of all jobs together: a lab's address plan.
const WORKERS_MAX: usize = 180;
const NAME_LEN_MAX: usize = 32;
/// A day.
const START_S_MAX: f64 = 86_400.0;

#[cfg(test)]
mod tests;
