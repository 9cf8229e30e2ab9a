//! Simulates training jobs with parameter servers whose model updates have priority bands, and
//! holds the result against the published one: eight placements of 21 jobs.
//!
//! What happens in a round of a job: its parameter server sends the model to each worker over its
//! host's link; each worker computes a step on its host's cores; each sends its gradient back over
//! the parameter server's host's link; when the last one is there, the next round begins. The
//! mechanism is meant to say when bands help, not to look a table up:
//!
//! - The links of a host with parameter servers are shared as in theory: the highest band has all,
//!   inside it each transfer a part by its weight ([`Shares`], derived). Bands order what leaves;
//!   what comes in has none. A worker's own link is never the narrowest and is left out.
//!   (`weft_plan::net::sharing` knows neither bands nor weights, and costs O(flows) an event.)
//! - Cores of a host are shared by the workers on it that compute; a step uses one at most
//!   (derived). The work of a parameter server itself is left out.
//! - One parameter is fitted, the work of a step, so that placement 8 under FIFO takes as long as
//!   published. All else is predicted.
//!
//! Invariant: deterministic by seed. Costs O(log flows + hosts) an event; a round of a job of w
//! workers has 3 w events.
//! Source: TensorLights (HPBDC'19), slides; placements, batch and cores from the repository
//! TensorLights/TensorLights, commit 624596c.

mod published;
mod station;

use alloc::vec::Vec;

use weft_plan::float::ln;
use weft_plan::sample::Numbers;

use crate::bands::{self, BandPolicy, Grouping};
use crate::job::NS_PER_S;
use station::{Station, Task};

pub use published::{PLACEMENTS, Placement};

/// Jobs and hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Parameter servers on each host that has some. All other hosts of a job are its workers'.
    pub servers_per_host: Vec<u32>,
    /// Hosts; each job has a worker on every one but its parameter server's. At least 2.
    pub hosts: u32,
    /// Cores of a host. At least 1.
    pub cores: u32,
    /// The most that one step uses of them. Derived; default 1.
    pub cores_per_step: f64,
    /// What a link carries, in each direction.
    pub link_bytes_per_sec: f64,
    /// A model, and as well a gradient.
    pub model_bytes: f64,
    /// Rounds of each job. At least 1.
    pub rounds: u32,
    /// How often bands rotate under [`BandPolicy::RoundRobin`]. At least 1.
    pub rotate_ns: u64,
    /// How transfers share a link. Derived.
    pub shares: Shares,
    /// Of the weights of transfers.
    pub seed: u64,
}

/// How the transfers of one band share a link.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Shares {
    /// By weights that are drawn for each transfer, exponential with mean 1: TCP is unfair over the
    /// milliseconds that a model takes.
    #[default]
    Drawn,
    /// Alike, which is what TCP tends to over seconds.
    Equal,
}

/// What a simulation found.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// When each job ended; all begin at 0.
    pub jct_ns: Vec<u64>,
    /// How long gradients waited for the last of their round, on average.
    pub wait_mean_ns: f64,
    /// The variance of that, over all gradients.
    pub wait_variance_ns2: f64,
}

impl Setting {
    /// The published one: 21 jobs of `ResNet-32` with 20 workers each, 10 Gb/s, 30,000 global
    /// steps, which are 1,500 rounds.
    #[must_use]
    pub fn published(placement: &Placement, seed: u64) -> Self {
        Self {
            servers_per_host: placement.servers_per_host.to_vec(),
            hosts: 21,
            cores: published::CORES,
            cores_per_step: 1.0,
            link_bytes_per_sec: published::GOODPUT_BYTES_PER_SEC,
            model_bytes: published::MODEL_BYTES,
            rounds: 1_500,
            rotate_ns: bands::ROTATE_NS,
            shares: Shares::default(),
            seed,
        }
    }

    /// Runs all jobs to their ends; `step_ns` is the work of one step of one worker on one core.
    #[must_use]
    pub fn run(&self, policy: BandPolicy, step_ns: u64) -> Outcome {
        let mut run = Run::new(self, policy, step_ns);
        while run.next() {}
        let waits = run.waits as f64;
        let wait_mean_ns = run.wait_sum / waits;
        Outcome {
            jct_ns: run.jobs.iter().map(|job| job.end_ns).collect(),
            wait_mean_ns,
            wait_variance_ns2: run.wait_squares / waits - wait_mean_ns * wait_mean_ns,
        }
    }

    /// The work of a step with which FIFO takes `jct_ns` on average, to a thousandth.
    #[must_use]
    pub fn fit(&self, jct_ns: f64) -> u64 {
        // A round is no shorter than a step on all the cores that it can use.
        let most_ns = jct_ns / f64::from(self.rounds) * self.cores_per_step;
        let (mut least_ns, mut most_ns) = (0, whole(most_ns));
        while most_ns - least_ns > most_ns / 1_000 {
            let middle_ns = least_ns + (most_ns - least_ns) / 2;
            match self.run(BandPolicy::Fifo, middle_ns).mean_jct_ns() < jct_ns {
                true => least_ns = middle_ns + 1,
                false => most_ns = middle_ns,
            }
        }
        most_ns
    }
}

impl Outcome {
    /// The mean of all jobs.
    #[must_use]
    pub fn mean_jct_ns(&self) -> f64 {
        let sum: f64 = self.jct_ns.iter().map(|ns| *ns as f64).sum();
        sum / self.jct_ns.len() as f64
    }

    /// The mean of all jobs, in seconds.
    #[must_use]
    pub fn mean_jct_s(&self) -> f64 {
        self.mean_jct_ns() / NS_PER_S as f64
    }
}

/// A simulation under way.
struct Run<'a> {
    setting: &'a Setting,
    policy: BandPolicy,
    step_ns: f64,
    jobs: Vec<JobState>,
    /// Jobs of each host, in the order of their bands' list.
    jobs_of: Vec<Vec<usize>>,
    /// Per host: what its parameter servers send, what its workers compute, and what its parameter
    /// servers receive.
    stations: Vec<Station>,
    next_ns: Vec<u64>,
    rotations: u64,
    numbers: Numbers,
    waits: u64,
    wait_sum: f64,
    wait_squares: f64,
}

#[derive(Clone, Debug)]
struct JobState {
    host: usize,
    band: u8,
    rounds: u32,
    /// When the gradients of this round came.
    arrived_ns: Vec<u64>,
    end_ns: u64,
}

const SEND: usize = 0;
const COMPUTE: usize = 1;
const RECEIVE: usize = 2;
const KINDS: usize = 3;

impl<'a> Run<'a> {
    fn new(setting: &'a Setting, policy: BandPolicy, step_ns: u64) -> Self {
        let hosts = setting.hosts as usize;
        let link = setting.link_bytes_per_sec / NS_PER_S as f64;
        let mut stations = Vec::with_capacity(KINDS * hosts);
        for _ in 0..hosts {
            stations.push(Station::new(link, f64::INFINITY));
            stations.push(Station::new(setting.cores.into(), setting.cores_per_step));
            stations.push(Station::new(link, f64::INFINITY));
        }
        let counts = setting.servers_per_host.iter().enumerate();
        let at = counts.flat_map(|(host, count)| (0..*count).map(move |_| host));
        let state = |host| JobState { host, band: 0, rounds: 0, arrived_ns: Vec::new(), end_ns: 0 };
        let jobs: Vec<JobState> = at.map(state).collect();
        let of = |host| (0..jobs.len()).filter(|job| jobs[*job].host == host).collect();
        let jobs_of: Vec<Vec<usize>> = (0..hosts).map(of).collect();
        let mut run = Self {
            setting,
            policy,
            step_ns: step_ns as f64,
            jobs,
            jobs_of,
            next_ns: vec![u64::MAX; stations.len()],
            stations,
            rotations: 0,
            numbers: Numbers::new(setting.seed),
            waits: 0,
            wait_sum: 0.0,
            wait_squares: 0.0,
        };
        run.set_bands(0);
        for job in 0..run.jobs.len() {
            run.send(0, job);
        }
        run
    }

    /// Goes on to the next event; false when every job has ended.
    fn next(&mut self) -> bool {
        let next = self.next_ns.iter().enumerate().min_by_key(|(_, ns)| **ns);
        let Some((at, &now_ns)) = next.filter(|(_, ns)| **ns < u64::MAX) else { return false };
        let rotate_ns = (self.rotations + 1) * self.setting.rotate_ns;
        if self.policy == BandPolicy::RoundRobin && rotate_ns <= now_ns {
            self.rotations += 1;
            self.set_bands(rotate_ns);
            return true;
        }
        if let Some(task) = self.stations[at].leave(now_ns) {
            match at % KINDS {
                SEND => self.enter(now_ns, task.host, COMPUTE, task, self.step_ns, 1.0),
                COMPUTE => self.transfer(now_ns, RECEIVE, task),
                _ => self.received(now_ns, task.job),
            }
        }
        self.look(at);
        true
    }

    fn set_bands(&mut self, now_ns: u64) {
        for (host, jobs) in self.jobs_of.iter().enumerate() {
            let models = vec!["resnet32"; jobs.len()];
            let bands = bands::bands(self.policy, &models, self.rotations, Grouping::Models);
            for (job, band) in jobs.iter().zip(bands.unwrap_or_default()) {
                self.jobs[*job].band = band;
            }
            let states = &self.jobs;
            self.stations[host * KINDS + SEND].reband(now_ns, |job| states[job].band);
        }
        for at in 0..self.stations.len() {
            self.look(at);
        }
    }

    fn send(&mut self, now_ns: u64, job: usize) {
        let own = self.jobs[job].host;
        for host in (0..self.setting.hosts as usize).filter(|host| *host != own) {
            self.transfer(now_ns, SEND, Task { job, host });
        }
    }

    fn transfer(&mut self, now_ns: u64, kind: usize, task: Task) {
        let weight = match self.setting.shares {
            Shares::Drawn => -ln(self.numbers.unit()),
            Shares::Equal => 1.0,
        };
        let host = self.jobs[task.job].host;
        self.enter(now_ns, host, kind, task, self.setting.model_bytes, weight);
    }

    fn enter(&mut self, now_ns: u64, host: usize, kind: usize, task: Task, work: f64, weight: f64) {
        let band = if kind == SEND { self.jobs[task.job].band } else { 0 };
        let at = host * KINDS + kind;
        self.stations[at].enter(now_ns, task, band, work, weight);
        self.look(at);
    }

    fn look(&mut self, at: usize) {
        self.next_ns[at] = self.stations[at].next_ns().unwrap_or(u64::MAX);
    }

    fn received(&mut self, now_ns: u64, job: usize) {
        let state = &mut self.jobs[job];
        state.arrived_ns.push(now_ns);
        if state.arrived_ns.len() + 1 < self.setting.hosts as usize {
            return;
        }
        for arrived_ns in state.arrived_ns.drain(..) {
            let wait_ns = (now_ns - arrived_ns) as f64;
            self.waits += 1;
            self.wait_sum += wait_ns;
            self.wait_squares += wait_ns * wait_ns;
        }
        state.rounds += 1;
        match state.rounds < self.setting.rounds {
            true => self.send(now_ns, job),
            false => state.end_ns = now_ns,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a span of the simulation, which is not negative"
)]
const fn whole(ns: f64) -> u64 {
    ns as u64
}

#[cfg(test)]
mod tests;
