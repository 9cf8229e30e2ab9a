//! Decides which job's frames leave a host first, where several jobs' servers share its link
//! (TensorLights), and tells the boxes there that apply bands.
//!
//! Jobs are grouped by the host of their server, in the order of their indices; which band each has
//! is `weft_jobs::bands`' to say, and jobs with updates of one size count as one model. What boxes
//! are told of it is in [`told`]. Invariant: the same jobs, policy and time give the same bands
//! (DESIGN I10).

mod told;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weft_config::controller::BandsConfig;
use weft_control::{BandPolicy, LABELS, REST_BAND};
use weft_jobs::bands::{Grouping, bands};
use weft_plan::case::HostId;
use weft_wire::JobId;

use super::message::{Action, NodeId, Notice, Refusal};
use super::{Controller, Why};
pub use told::BandStatus;
use told::Boxes;

/// The bands of all jobs.
#[derive(Debug)]
pub(super) struct Bands {
    /// There are labels and bands at all.
    is_on: bool,
    policy: BandPolicy,
    interval_ns: u64,
    /// When the policy began.
    since_ns: u64,
    rotations: u64,
    /// How often an operator has set the policy.
    changes: u64,
    /// A job's frames carry it as long as the job is there.
    labels: BTreeMap<JobId, u8>,
    /// What each job is to have; none under `fifo`.
    wanted: BTreeMap<JobId, u8>,
    boxes: Boxes,
    /// Jobs, servers or boxes have come or gone.
    is_stale: bool,
}

/// The policy of bands, as it is after an operator has set it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BandsSet {
    /// How often it was set.
    pub changes: u64,
    /// Jobs whose band is another one now.
    pub jobs_changed: u32,
}

impl Bands {
    /// None: there are no bands, and no labels.
    pub(super) fn new(config: Option<BandsConfig>) -> Self {
        let is_on = config.is_some();
        let config = config.unwrap_or_default();
        Self {
            is_on,
            policy: config.policy,
            interval_ns: config.interval_ns(),
            since_ns: 0,
            rotations: 0,
            changes: 0,
            labels: BTreeMap::new(),
            wanted: BTreeMap::new(),
            boxes: Boxes::default(),
            is_stale: false,
        }
    }

    /// Jobs, servers or boxes have come or gone: look again.
    pub(super) const fn note_change(&mut self) {
        self.is_stale = self.is_on;
    }

    /// Gives a job that comes a label of its own, while there are any.
    pub(super) fn add_job(&mut self, job: JobId) {
        if !self.is_on {
            return;
        }
        let is_free = |label: &&u8| !self.labels.values().any(|taken| taken == *label);
        if let Some(label) = LABELS.iter().find(is_free).copied() {
            self.labels.insert(job, label);
        }
        self.is_stale = true;
    }

    pub(super) fn remove_job(&mut self, job: JobId) {
        self.labels.remove(&job);
        self.boxes.forget_label(job);
        self.is_stale = self.is_on;
    }

    /// The label of a job's frames; 0: none was left.
    pub(super) fn label(&self, job: JobId) -> u8 {
        self.labels.get(&job).copied().unwrap_or(0)
    }

    /// A job's band; the rest's where there are no bands, so that jobs can be compared.
    pub(super) fn rank(&self, job: JobId) -> u8 {
        self.wanted.get(&job).copied().unwrap_or(REST_BAND)
    }

    /// Whether jobs have bands at all.
    pub(super) fn is_active(&self) -> bool {
        !self.wanted.is_empty()
    }

    pub(super) const fn policy(&self) -> (BandPolicy, u64, u64) {
        (self.policy, self.interval_ns, self.rotations)
    }

    pub(super) const fn changes(&self) -> u64 {
        self.changes
    }

    /// When bands rotate next, or are to be looked at.
    pub(super) fn due_ns(&self) -> Option<u64> {
        if self.is_stale {
            return Some(0);
        }
        let does_rotate = self.policy == BandPolicy::RoundRobin && !self.wanted.is_empty();
        let turns = self.interval_ns.saturating_mul(self.rotations.saturating_add(1));
        let turn_ns = does_rotate.then(|| self.since_ns.saturating_add(turns));
        turn_ns.into_iter().chain(self.boxes.retry_ns()).min()
    }

    fn rotate(&mut self, now_ns: u64) {
        self.rotations = now_ns.saturating_sub(self.since_ns) / self.interval_ns.max(1);
    }

    /// A box that applies bands attached, and has these; it may be told anew.
    /// Where there are no bands, it is to take them away.
    pub(super) fn attach(&mut self, node: NodeId, held: Option<&[(JobId, u8)]>) {
        let held = held.unwrap_or_default();
        self.boxes.attach(node, held);
        self.is_stale = self.is_on || !held.is_empty();
    }

    /// A box is gone: what it has its next hello says.
    pub(super) fn detach(&mut self, node: NodeId) {
        self.boxes.detach(node);
        self.is_stale = self.is_on;
    }
}

impl Controller {
    /// An operator sets the policy of bands; turns begin anew. Boxes are told at once. `seen` is
    /// the change that the operator knows of, if that matters to it.
    ///
    /// # Errors
    /// The interval is none, or another operator has changed it meanwhile. Nothing has changed
    /// then.
    pub fn set_band_policy(
        &mut self,
        now_ns: u64,
        config: BandsConfig,
        seen: Option<u64>,
    ) -> Result<BandsSet, Refusal> {
        let checked = match (config.interval_problem(), seen) {
            _ if !self.bands.is_on => {
                let problem =
                    "are none: the controller's file has no [bands]; add it, and start anew";
                Err(Refusal::new("bands", problem))
            }
            (Some(problem), _) => Err(Refusal::new("interval_s", problem)),
            (None, Some(seen)) if seen != self.bands.changes => {
                let problem = format!(
                    "is {seen}, and the policy was set {} times: somebody else did so meanwhile; \
                     read it again",
                    self.bands.changes
                );
                Err(Refusal::new("seen_change", problem))
            }
            (None, _) => Ok(()),
        };
        self.checked(checked)?;
        let before = self.bands.wanted.clone();
        let bands = &mut self.bands;
        (bands.policy, bands.interval_ns) = (config.policy, config.interval_ns());
        (bands.since_ns, bands.rotations) = (now_ns, 0);
        bands.changes += 1;
        self.refresh_bands();
        let ids = self.jobs.keys();
        let changed = ids.filter(|id| before.get(id) != self.bands.wanted.get(id)).count();
        let jobs_changed = u32::try_from(changed).unwrap_or(u32::MAX);
        Ok(BandsSet { changes: self.bands.changes, jobs_changed })
    }

    /// Rotates, and looks at what has changed.
    pub(super) fn check_bands(&mut self, now_ns: u64) {
        if self.bands.due_ns().is_none_or(|due_ns| due_ns > now_ns) {
            return;
        }
        if self.bands.policy == BandPolicy::RoundRobin {
            self.bands.rotate(now_ns);
        }
        self.bands.boxes.retry(now_ns);
        self.refresh_bands();
    }

    /// Gives every job its band, and tells the boxes that have it otherwise.
    fn refresh_bands(&mut self) {
        self.bands.is_stale = false;
        self.tell_labels();
        let hosts = self.jobs_by_host();
        let wanted = self.wanted_bands(&hosts);
        let before = core::mem::replace(&mut self.bands.wanted, wanted);
        for (id, job) in &mut self.jobs {
            let (from, to) = (before.get(id).copied(), self.bands.wanted.get(id).copied());
            if from != to {
                job.counters.band_changes += 1;
                let notice = Notice::Band { from, to };
                self.actions.push_back(Action::Notice { job: *id, notice });
            }
        }
        if before != self.bands.wanted {
            self.need_plan(Why::Bands);
        }
        for node in (0..self.nodes.len()).filter_map(|i| u16::try_from(i).ok()).map(NodeId) {
            let known = &self.nodes[node.index()];
            if known.is_attached() && known.applies_bands() {
                let jobs = hosts.get(&known.host()).map(Vec::as_slice).unwrap_or_default();
                self.tell_bands(node, jobs);
            }
        }
    }

    /// The DSCP of a job's frames; 0: none is given.
    #[must_use]
    pub fn label(&self, job: JobId) -> u8 {
        self.bands.label(job)
    }

    /// What a server's link has for a job beside what it has promised to jobs of better bands;
    /// never less than it has promised to the job itself (no pre-emption), nor than one part in
    /// [`FLOOR_SHARE`]. So the transfers under way of a job follow its band, and the bands of
    /// others.
    pub(super) fn rate_beside_better(&self, id: JobId, host: HostId, link: u64) -> u64 {
        if !self.bands.is_active() || self.jobs[&id].is_fair() {
            return link;
        }
        let band = self.bands.rank(id);
        let (mut better, mut own) = (0u64, 0u64);
        for (group, rate) in self.flights.promised(host) {
            let Some(job) = self.groups.get(&group).map(|group| group.job) else { continue };
            if job == id {
                own = own.saturating_add(rate);
            } else if self.bands.rank(job) < band {
                better = better.saturating_add(rate);
            }
        }
        link.saturating_sub(better).max(own).max(link / FLOOR_SHARE).min(link)
    }

    fn jobs_by_host(&self) -> BTreeMap<HostId, Vec<JobId>> {
        let mut hosts: BTreeMap<HostId, Vec<JobId>> = BTreeMap::new();
        for (id, job) in &self.jobs {
            hosts.entry(self.host_of(job.server)).or_default().push(*id);
        }
        hosts
    }

    fn wanted_bands(&self, hosts: &BTreeMap<HostId, Vec<JobId>>) -> BTreeMap<JobId, u8> {
        let (policy, _, rotations) = self.bands.policy();
        let mut wanted = BTreeMap::new();
        for jobs in hosts.values() {
            // Nobody can tell the frames of a job without a label: they are with the rest.
            let has_label = |id: &JobId| self.bands.label(*id) != 0;
            let jobs: Vec<JobId> = jobs.iter().copied().filter(has_label).collect();
            // Names that sort as the sizes do.
            let model = |id| format!("{:020}", self.jobs[&id].config.update_bytes());
            let models: Vec<String> = jobs.iter().copied().map(model).collect();
            let models: Vec<&str> = models.iter().map(String::as_str).collect();
            let given = bands(policy, &models, rotations, Grouping::Models).unwrap_or_default();
            wanted.extend(jobs.into_iter().zip(given));
        }
        wanted
    }
}

/// What a job's server may receive in any case, as a part of its link.
const FLOOR_SHARE: u64 = 20;
/// Bands that a box may have given.
pub(super) const BANDS_HELD_MAX: usize = 256;

#[cfg(test)]
mod tests;
