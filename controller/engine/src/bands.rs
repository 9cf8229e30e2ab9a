//! Decides which job's frames leave a host first, where several jobs' servers share its link
//! (TensorLights), and tells the boxes there that apply bands.
//!
//! Jobs are grouped by the host of their server, in the order of their indices; which band each has
//! is `weft_jobs::bands`' to say, and jobs with updates of one size count as one model. Invariants:
//! the same jobs, policy and time give the same bands; while a host's bands change one by one, no
//! job that is before another one before and after the change is ever behind it; a box is told what
//! it has not, and nothing else, and each answer is of what was told last (DESIGN I10).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use weft_config::controller::BandsConfig;
use weft_control::{BandError, BandPolicy, Command, Event, LABELS, REST_BAND};
use weft_jobs::bands::{Grouping, bands};
use weft_plan::case::HostId;
use weft_wire::JobId;

use super::message::{Action, NodeId, Notice, Refusal};
use super::{Controller, Why, check};

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
    /// What boxes that apply bands have, or were told last.
    told: BTreeMap<(NodeId, JobId), Told>,
    /// Boxes that know their jobs' labels.
    labelled: BTreeSet<(NodeId, JobId)>,
    /// Jobs, servers or boxes have come or gone.
    is_stale: bool,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    label: u8,
    band: Option<u8>,
    answer: Answer,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Answer {
    Awaited,
    Done,
    Refused(BandError),
}

/// The policy of bands, as it is after an operator has set it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BandsSet {
    /// How often it was set.
    pub changes: u64,
    /// Jobs whose band is another one now.
    pub jobs_changed: u32,
}

/// A job's band, for reports.
#[derive(Clone, Debug, Default, Eq, PartialEq, serde::Serialize)]
pub struct BandStatus {
    /// The DSCP of its frames; 0: none was left.
    pub label: u8,
    /// 0 goes first; none under `fifo`.
    pub band: Option<u8>,
    /// Boxes that have given it the band.
    pub boxes_done: u32,
    /// Boxes that were told and have not answered.
    pub boxes_awaited: u32,
    /// The box that refused, and why; empty: none.
    pub refused: String,
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
            told: BTreeMap::new(),
            labelled: BTreeSet::new(),
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
        self.labelled.retain(|(_, known)| *known != job);
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
        does_rotate.then(|| self.since_ns.saturating_add(turns))
    }

    fn rotate(&mut self, now_ns: u64) {
        self.rotations = now_ns.saturating_sub(self.since_ns) / self.interval_ns.max(1);
    }

    /// A box that applies bands attached, and has these; it may be told anew.
    pub(super) fn attach(&mut self, node: NodeId, held: Option<&[(JobId, u8)]>) {
        self.detach(node);
        for (job, band) in held.unwrap_or_default() {
            // Its label is not known: what is wanted is told again, and what is not is taken away.
            let told = Told { label: 0, band: Some(*band), answer: Answer::Done };
            self.told.insert((node, *job), told);
        }
    }

    /// A box is gone: what it has its next hello says.
    pub(super) fn detach(&mut self, node: NodeId) {
        self.told.retain(|(known, _), _| *known != node);
        self.labelled.retain(|(known, _)| *known != node);
        self.is_stale = self.is_on;
    }

    fn status(&self, job: JobId, name: impl Fn(NodeId) -> String) -> BandStatus {
        let told: Vec<(NodeId, Answer)> = (self.told.iter())
            .filter(|((_, known), _)| *known == job)
            .map(|((node, _), told)| (*node, told.answer))
            .collect();
        let count = |wanted: Answer| {
            let all = told.iter().filter(|(_, answer)| *answer == wanted);
            u32::try_from(all.count()).unwrap_or(u32::MAX)
        };
        let refused = told.iter().find_map(|(node, answer)| match answer {
            Answer::Refused(error) => Some(format!("{}: {error}", name(*node))),
            Answer::Awaited | Answer::Done => None,
        });
        BandStatus {
            label: self.label(job),
            band: self.wanted.get(&job).copied(),
            boxes_done: count(Answer::Done),
            boxes_awaited: count(Answer::Awaited),
            refused: refused.unwrap_or_default(),
        }
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

    /// A job's band, for reports.
    pub(super) fn band_status(&self, job: JobId) -> BandStatus {
        self.bands.status(job, |node| self.nodes[node.index()].name().to_string())
    }

    /// Rotates, and looks at what has changed.
    pub(super) fn check_bands(&mut self, now_ns: u64) {
        if self.bands.due_ns().is_none_or(|due_ns| due_ns > now_ns) {
            return;
        }
        if self.bands.policy == BandPolicy::RoundRobin {
            self.bands.rotate(now_ns);
        }
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

    /// Tells the boxes of each job its label, before any of them has a band for it.
    fn tell_labels(&mut self) {
        let mut untold = Vec::new();
        for (id, label) in &self.bands.labels {
            let Some(job) = self.jobs.get(id) else { continue };
            for node in job.aggregators.iter().chain([&job.server]).chain(&job.replica) {
                let is_new = !self.bands.labelled.contains(&(*node, *id));
                if is_new && self.nodes[node.index()].is_attached() {
                    untold.push((*node, *id, *label));
                }
            }
        }
        for (node, job, label) in untold {
            self.bands.labelled.insert((node, job));
            self.command(node, Command::SetLabel { job, label });
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
        if !self.bands.is_active() {
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
            // Names that sort as the sizes do.
            let model = |id| format!("{:020}", self.jobs[id].config.update_bytes());
            let models: Vec<String> = jobs.iter().map(model).collect();
            let models: Vec<&str> = models.iter().map(String::as_str).collect();
            let given = bands(policy, &models, rotations, Grouping::Models).unwrap_or_default();
            wanted.extend(jobs.iter().copied().zip(given));
        }
        wanted
    }

    /// Tells a box what it has otherwise than is wanted, in an order in which no job is behind
    /// another one that it is before in the end, and was before.
    fn tell_bands(&mut self, node: NodeId, jobs: &[JobId]) {
        let mut changes: Vec<Change> = Vec::new();
        for job in jobs {
            let (label, to) = (self.bands.label(*job), self.bands.wanted.get(job).copied());
            let told = self.bands.told.get(&(node, *job));
            let from = told.and_then(|told| told.band);
            let is_said =
                told.map_or_else(|| to.is_none(), |told| told.band == to && told.label == label);
            if label != 0 && !is_said {
                changes.push(Change { job: *job, label, from, to });
            }
        }
        let of_node = self.bands.told.iter().filter(|((known, _), _)| *known == node);
        for ((_, job), told) in of_node {
            if !jobs.contains(job) && told.band.is_some() {
                let (job, label, from) = (*job, told.label.max(1), told.band);
                changes.push(Change { job, label, from, to: None });
            }
        }
        for Change { job, label, to, .. } in in_order(changes) {
            let told = Told { label, band: to, answer: Answer::Awaited };
            self.bands.told.insert((node, job), told);
            self.command(node, Command::SetBands { job, label, band: to });
        }
    }

    /// A box has given a job its band, or not. An answer to what was told before is taken without
    /// effect.
    pub(super) fn note_band(&mut self, node: NodeId, job: JobId, event: &Event) {
        let (band, answer) = match *event {
            Event::BandSet { band } => (band, Answer::Done),
            Event::BandRefused { band, error } => (band, Answer::Refused(error)),
            _ => return,
        };
        let Some(told) = self.bands.told.get_mut(&(node, job)) else { return };
        if told.band != band || told.answer != Answer::Awaited {
            return;
        }
        told.answer = answer;
        if let Answer::Refused(error) = answer {
            let name = check::shown(self.nodes[node.index()].name());
            let notice = Notice::BandRefused { node: name, band, error };
            self.actions.push_back(Action::Notice { job, notice });
        } else if band.is_none() {
            self.bands.told.remove(&(node, job));
        }
    }
}

/// What a box is to be told of a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Change {
    job: JobId,
    label: u8,
    from: Option<u8>,
    to: Option<u8>,
}

/// First those that move up, the best first; then those that move down, the worst first: two jobs
/// that do not change places then never do so in between.
fn in_order(mut changes: Vec<Change>) -> Vec<Change> {
    let rank = |band: Option<u8>| band.unwrap_or(REST_BAND);
    changes.sort_by_key(|change| {
        let (from, to) = (i16::from(rank(change.from)), i16::from(rank(change.to)));
        if to < from { (0, to, from, change.job) } else { (1, -to, -from, change.job) }
    });
    changes
}

/// What a job's server may receive in any case, as a part of its link.
const FLOOR_SHARE: u64 = 20;
/// Bands that a box may have given.
pub(super) const BANDS_HELD_MAX: usize = 256;

#[cfg(test)]
mod tests;
