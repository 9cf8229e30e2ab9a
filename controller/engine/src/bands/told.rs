//! Decides what boxes that apply bands are told, and what their answers mean.
//!
//! Invariants: while a host's bands change one by one, no job that is before another one before and
//! after the change is ever behind it; a box is told what it has not, and nothing else, but for
//! what it refused or lost, which it is told again every [`RETRY_NS`]; each answer is of what was
//! told last; a refusal is news once; a job of which no box can tell or order the frames is not
//! said to have a band.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use weft_control::{BandError, BandPolicy, Command, Event, LABELS, REST_BAND};
use weft_wire::JobId;

use super::Bands;
use crate::message::{Action, NodeId, Notice};
use crate::node::Node;
use crate::{Controller, check};

/// What boxes know of bands and labels.
#[derive(Debug, Default)]
pub(super) struct Boxes {
    /// What boxes that apply bands have, or were told last.
    told: BTreeMap<(NodeId, JobId), Told>,
    /// Boxes that know their jobs' labels.
    labelled: BTreeSet<(NodeId, JobId)>,
    /// Boxes that know labels of jobs that are gone.
    unlabelled: Vec<(NodeId, JobId)>,
    /// Bands that boxes may have had when their streams ended, until they come again.
    left: BTreeSet<(NodeId, JobId)>,
    /// When what was refused is told again.
    retry_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    label: u8,
    band: Option<u8>,
    answer: Answer,
    /// What it said last that the job has.
    has: Option<u8>,
    /// Why it refused the same before; another reason is news.
    before: Option<BandError>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Answer {
    Awaited,
    Done,
    Refused(BandError),
    /// It refused, and is to be told again.
    Due,
}

/// A job's band, for reports.
#[derive(Clone, Debug, Default, Eq, PartialEq, serde::Serialize)]
pub struct BandStatus {
    /// The DSCP of its frames; 0: none was left.
    pub label: u8,
    /// 0 goes first; none under `fifo`, and where nobody can give it one.
    pub band: Option<u8>,
    /// Boxes that have given it the band.
    pub boxes_done: u32,
    /// Boxes that were told and have not answered.
    pub boxes_awaited: u32,
    /// The box that refused or lost it, and why, or why there is none; empty: all is as it is to
    /// be.
    pub refused: String,
}

impl Boxes {
    pub(super) fn attach(&mut self, node: NodeId, held: &[(JobId, u8)]) {
        self.detach(node);
        self.left.retain(|(known, _)| *known != node);
        for (job, band) in held {
            // Its label is not known: what is wanted is told again, and what is not is taken away.
            let told = Told {
                label: 0,
                band: Some(*band),
                answer: Answer::Done,
                has: Some(*band),
                before: None,
            };
            self.told.insert((node, *job), told);
        }
    }

    pub(super) fn detach(&mut self, node: NodeId) {
        let of_node = self.told.extract_if(.., |(known, _), _| *known == node);
        let banded = of_node.filter(|(_, told)| told.band.or(told.has).is_some());
        self.left.extend(banded.map(|(key, _)| key));
        self.labelled.retain(|(known, _)| *known != node);
    }

    /// A job is gone, and its label is another one's soon.
    pub(super) fn forget_label(&mut self, job: JobId) {
        let of_job = self.labelled.extract_if(.., |(_, known)| *known == job);
        self.unlabelled.extend(of_job);
        self.left.retain(|(_, known)| *known != job);
    }

    pub(super) const fn retry_ns(&self) -> Option<u64> {
        self.retry_ns
    }

    /// What was refused is told again, if it is time.
    pub(super) fn retry(&mut self, now_ns: u64) {
        if self.retry_ns.is_none_or(|due_ns| due_ns > now_ns) {
            return;
        }
        self.retry_ns = None;
        let told = self.told.values_mut();
        for told in told.filter(|told| matches!(told.answer, Answer::Refused(_))) {
            told.answer = Answer::Due;
        }
    }
}

impl Bands {
    pub(super) fn status(&self, job: JobId, name: impl Fn(NodeId) -> String) -> BandStatus {
        let band = self.wanted.get(&job).copied();
        // What a box has that it is not to have is not done.
        let answer = |told: &Told| match told.answer {
            Answer::Done if told.band != band => Answer::Due,
            answer => answer,
        };
        let told: Vec<(NodeId, Answer)> = (self.boxes.told.iter())
            .filter(|((_, known), _)| *known == job)
            .map(|((node, _), told)| (*node, answer(told)))
            .collect();
        let count = |wanted: Answer| {
            let all = told.iter().filter(|(_, answer)| *answer == wanted);
            u32::try_from(all.count()).unwrap_or(u32::MAX)
        };
        let refused = told.iter().find_map(|(node, answer)| match answer {
            Answer::Refused(error) => Some(format!("{}: {error}", name(*node))),
            Answer::Awaited | Answer::Done | Answer::Due => None,
        });
        BandStatus {
            label: self.label(job),
            band,
            boxes_done: count(Answer::Done),
            boxes_awaited: count(Answer::Awaited),
            refused: refused.unwrap_or_default(),
        }
    }
}

impl Controller {
    /// A job's band, for reports.
    pub(crate) fn band_status(&self, job: JobId) -> BandStatus {
        let status = self.bands.status(job, |node| self.nodes[node.index()].name().to_string());
        if !status.refused.is_empty() {
            return status;
        }
        if !self.bands.is_on || self.bands.policy == BandPolicy::Fifo {
            let left = self.bands.boxes.left.iter().find(|(_, known)| *known == job);
            let refused = left.map_or(String::new(), |(node, _)| {
                let name = self.nodes[node.index()].name();
                format!(
                    "{name}: it has no stream; its host may still have the band that the job had"
                )
            });
            return BandStatus { refused, ..status };
        }
        if status.label == 0 {
            let refused = format!(
                "no label is left for it, {} jobs have one each: its frames leave with the rest",
                LABELS.len()
            );
            return BandStatus { refused, ..status };
        }
        let Some(host) = self.jobs.get(&job).map(|job| self.host_of(job.server)) else {
            return status;
        };
        let mut there =
            self.nodes.iter().filter(|node| node.host() == host && node.applies_bands());
        match (there.clone().next(), there.any(Node::is_attached)) {
            (None, _) => {
                let refused = "no box of its server's host applies bands: add [bands] to the file \
                               of one there, and start it again"
                    .to_string();
                BandStatus { band: None, refused, ..status }
            }
            (Some(node), false) => {
                let refused = format!(
                    "{}: it has no stream; its host has the bands that it had",
                    node.name()
                );
                BandStatus { refused, ..status }
            }
            (Some(_), true) => status,
        }
    }

    /// Tells the boxes of each job its label, before any of them has a band for it, and those of
    /// jobs that are gone that there is none.
    pub(super) fn tell_labels(&mut self) {
        for (node, job) in core::mem::take(&mut self.bands.boxes.unlabelled) {
            if self.nodes[node.index()].is_attached() {
                self.command(node, Command::SetLabel { job, label: 0 });
            }
        }
        let mut untold = Vec::new();
        for (id, label) in &self.bands.labels {
            let Some(job) = self.jobs.get(id) else { continue };
            for node in job.aggregators.iter().chain([&job.server]).chain(&job.replica) {
                let is_new = !self.bands.boxes.labelled.contains(&(*node, *id));
                if is_new && self.nodes[node.index()].is_attached() {
                    untold.push((*node, *id, *label));
                }
            }
        }
        for (node, job, label) in untold {
            self.bands.boxes.labelled.insert((node, job));
            self.command(node, Command::SetLabel { job, label });
        }
    }

    /// Tells a box what it has otherwise than is wanted, in an order in which no job is behind
    /// another one that it is before in the end, and was before.
    pub(super) fn tell_bands(&mut self, node: NodeId, jobs: &[JobId]) {
        let mut changes: Vec<Change> = Vec::new();
        for job in jobs {
            let (label, to) = (self.bands.label(*job), self.bands.wanted.get(job).copied());
            let told = self.bands.boxes.told.get(&(node, *job));
            // One that has no label, or none any more, may have had a band.
            let label = if label == 0 { told.map_or(0, |told| told.label.max(1)) } else { label };
            let from = told.and_then(|told| match told.answer {
                Answer::Due => told.has,
                Answer::Awaited | Answer::Done | Answer::Refused(_) => told.band,
            });
            let is_same =
                |told: &Told| told.band == to && told.label == label && told.answer != Answer::Due;
            let is_said = told.map_or_else(|| to.is_none(), is_same);
            if label != 0 && !is_said {
                changes.push(Change { job: *job, label, from, to });
            }
        }
        let of_node = self.bands.boxes.told.iter().filter(|((known, _), _)| *known == node);
        for ((_, job), told) in of_node {
            if !jobs.contains(job) && told.band.is_some() {
                let (job, label, from) = (*job, told.label.max(1), told.band);
                changes.push(Change { job, label, from, to: None });
            }
        }
        for Change { job, label, to, .. } in in_order(changes) {
            let known = self.bands.boxes.told.get(&(node, job));
            let before = known.filter(|known| known.band == to).and_then(|known| known.before);
            let has = known.and_then(|known| known.has);
            let told = Told { label, band: to, answer: Answer::Awaited, has, before };
            self.bands.boxes.told.insert((node, job), told);
            self.command(node, Command::SetBands { job, label, band: to });
        }
    }

    /// A box has given a job its band, or not, or has lost it. An answer to what was told before is
    /// taken without effect.
    pub(crate) fn note_band(&mut self, now_ns: u64, node: NodeId, job: JobId, event: &Event) {
        let (band, answer) = match *event {
            Event::BandSet { band } => (band, Answer::Done),
            Event::BandRefused { band, error } | Event::BandLost { band, error } => {
                (band, Answer::Refused(error))
            }
            _ => return,
        };
        let Some(told) = self.bands.boxes.told.get_mut(&(node, job)) else { return };
        let is_of_now = match (event, told.answer) {
            (Event::BandLost { .. }, before) => before == Answer::Done,
            // What was in the way is gone.
            (Event::BandSet { .. }, Answer::Refused(_)) => true,
            (_, before) => before == Answer::Awaited,
        };
        if told.band != band || !is_of_now {
            return;
        }
        told.answer = answer;
        if let Event::BandLost { .. } = event {
            told.has = None;
        }
        if let Answer::Refused(error) = answer {
            let is_news = told.before.replace(error) != Some(error);
            self.bands.boxes.retry_ns.get_or_insert_with(|| now_ns.saturating_add(RETRY_NS));
            if !is_news {
                return;
            }
            let name = check::shown(self.nodes[node.index()].name());
            let notice = Notice::BandRefused { node: name, band, error };
            self.actions.push_back(Action::Notice { job, notice });
            return;
        }
        (told.has, told.before) = (band, None);
        if band.is_none() {
            self.bands.boxes.told.remove(&(node, job));
        }
        let is_refused = |told: &Told| matches!(told.answer, Answer::Refused(_));
        if !self.bands.boxes.told.values().any(is_refused) {
            self.bands.boxes.retry_ns = None;
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

/// When a box that refused is asked again: what was in its way may be gone.
const RETRY_NS: u64 = 5_000_000_000;
