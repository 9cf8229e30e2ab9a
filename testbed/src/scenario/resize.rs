//! `[resize]`: an allreduce whose number of workers changes while it runs.

use serde::{Deserialize, Serialize};
use weft_config::Problem;
use weft_config::controller::Placement;

use super::{ScaleExponent, Scenario, refuse};
use crate::workload::digits::TrainerError;

/// `[resize]`: the job has a controller, which stops its workers before one round and has others go
/// on from their checkpoint. The job's `workers` and `learning_rate` are those that it begins with.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeSection {
    /// Places for workers: the most that there may be.
    pub places: u8,
    /// Run it in a lab: a namespace for each host, links as `[lab]` says, and a controller that is
    /// called with certificates. Default: over loopback, without any; so does --no-lab.
    #[serde(default)]
    pub lab: bool,
    /// The host of each place; places of one host share its name. Default: each has its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Which places workers get: `order` (default), `consolidate`, `fragments` or `skew`, as in a
    /// controller's `[[reduce]]`.
    #[serde(default)]
    pub placement: Placement,
    /// What an operator says, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub word: Vec<WordSection>,
    /// Boxes that are killed without a word and started again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kill: Vec<KillSection>,
}

/// `[[resize.word]]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WordSection {
    /// It is said when this round has ended.
    pub after_round: u32,
    /// With so many workers the job goes on; missing: it pauses, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u8>,
    /// ... and goes on when it has stood still for so long. Default 200.
    #[serde(default = "pause_ms")]
    pub pause_ms: u64,
}

/// `[[resize.kill]]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct KillSection {
    /// `a0`, the aggregator; `controller`; or a worker, `w0` and so on, which does not come back.
    #[serde(rename = "box")]
    pub name: String,
    /// Which word it follows, from 0.
    pub word: usize,
    /// How long after it. Default 0.
    #[serde(default)]
    pub after_ms: u64,
    /// Instead of a time: as soon as the word has come to this step, by what the controller saved.
    /// At `start` a worker is one of those that the word asked for, as soon as it is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<WordStep>,
}

/// How far a word has come.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WordStep {
    /// The workers are asked where they are.
    Hold,
    /// They are told the round that they stop before.
    Stop,
    /// All stand there; of a pause.
    Stand,
    /// They keep a checkpoint; of a resize, as what follows but the last.
    Checkpoint,
    /// Their cohort is over, and the next one's lease is not in.
    Lease,
    /// It is, and the next workers start.
    Start,
    /// The job is told to go on, after a pause.
    Resume,
}

impl KillSection {
    /// It kills a worker, and no box.
    #[must_use]
    pub fn is_worker(&self) -> bool {
        self.rank().is_some()
    }

    fn rank(&self) -> Option<u8> {
        self.name.strip_prefix('w')?.parse().ok()
    }
}

impl WordStep {
    /// Its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Stop => "stop",
            Self::Stand => "stand",
            Self::Checkpoint => "checkpoint",
            Self::Lease => "lease",
            Self::Start => "start",
            Self::Resume => "resume",
        }
    }

    /// Whether a word that resizes, or else pauses, comes to it.
    #[must_use]
    pub const fn is_of(self, resizes: bool) -> bool {
        match self {
            Self::Hold | Self::Stop => true,
            Self::Checkpoint | Self::Lease | Self::Start => resizes,
            Self::Stand | Self::Resume => !resizes,
        }
    }
}

const fn pause_ms() -> u64 {
    200
}

impl ResizeSection {
    /// The hosts of its places, each once.
    pub(super) fn host_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for host in (0..self.places).map(|place| self.host(place)) {
            if !names.contains(&host) {
                names.push(host);
            }
        }
        names
    }

    /// The host of a place.
    #[must_use]
    pub fn host(&self, place: u8) -> String {
        self.hosts.get(usize::from(place)).map_or_else(|| format!("w{place}"), String::clone)
    }

    /// Workers that there are when one is killed: those that the word asked for from their start
    /// on, and those before till then. After a time it may be either.
    fn ranks(&self, kill: &KillSection, first: u8) -> u8 {
        let widths = |words: usize| self.word.iter().take(words).rev().find_map(|it| it.workers);
        let before = widths(kill.word).unwrap_or(first);
        let after = widths(kill.word + 1).unwrap_or(first);
        match kill.step {
            Some(WordStep::Start) => after,
            Some(_) => before,
            None => before.max(after),
        }
    }

    pub(super) fn validate(&self, scenario: &Scenario) -> Result<(), Problem> {
        let job = &scenario.job;
        if scenario.push.is_some() {
            return refuse("resize", "places", "are of an allreduce; leave out [push]");
        }
        if scenario.aggregation.leaves > 0 {
            return refuse(
                "aggregation",
                "leaves",
                "must be 0 with [resize]: one box has the lease",
            );
        }
        if !matches!(job.scale_exponent, ScaleExponent::Fixed(_)) {
            let reason = "must be a number with [resize]: all widths round alike";
            return refuse("job", "scale_exponent", reason);
        }
        if !(job.workers..=PLACES_MAX).contains(&self.places) {
            let reason = format!("is {}; expected {} to {PLACES_MAX}", self.places, job.workers);
            return refuse("resize", "places", reason);
        }
        if !self.hosts.is_empty() && self.hosts.len() != usize::from(self.places) {
            let reason = format!("are {}, for {} places", self.hosts.len(), self.places);
            return refuse("resize", "hosts", reason);
        }
        if let Some(host) = self.hosts.iter().find(|host| !is_host(host)) {
            let reason = format!(
                "has `{host}`; a host has 1 to 8 lowercase letters and digits, and is neither a0 \
                 nor {}",
                super::CONTROLLER
            );
            return refuse("resize", "hosts", reason);
        }
        let mut before = None;
        for (index, word) in self.word.iter().enumerate() {
            let section = format!("resize.word[{index}]");
            if word.after_round >= job.rounds || before.is_some_and(|last| word.after_round <= last)
            {
                let reason = format!("is {}; rounds grow, below job.rounds", word.after_round);
                return refuse(&section, "after_round", reason);
            }
            before = Some(word.after_round);
            let Some(workers) = word.workers else { continue };
            if !(1..=self.places).contains(&workers) {
                let reason = format!("is {workers}; there are {} places", self.places);
                return refuse(&section, "workers", reason);
            }
            let shard: Result<(), TrainerError> = job.trainer().validate(usize::from(workers));
            shard.map_err(|error| Problem::new(format!("{section}.workers"), error.to_string()))?;
        }
        for (index, kill) in self.kill.iter().enumerate() {
            let section = format!("resize.kill[{index}]");
            let workers = (0..self.places).map(|rank| format!("w{rank}"));
            let names = ["a0".to_owned(), super::CONTROLLER.to_owned()];
            if !names.into_iter().chain(workers).any(|name| name == kill.name) {
                let (name, controller) = (&kill.name, super::CONTROLLER);
                let reason = format!("is `{name}`; expected a0, {controller}, or a worker as w0");
                return refuse(&section, "box", reason);
            }
            let Some(word) = self.word.get(kill.word) else {
                return refuse(&section, "word", format!("is {}; there is none", kill.word));
            };
            if kill.step.is_some_and(|step| !step.is_of(word.workers.is_some())) {
                let reason = "is none that this word comes to: a pause comes to hold, stop, stand \
                              and resume, a resize to hold, stop, checkpoint, lease and start";
                return refuse(&section, "step", reason);
            }
            let ranks = self.ranks(kill, job.workers);
            if kill.rank().is_some_and(|rank| rank >= ranks) {
                let reason = format!("is `{}`; there are {ranks} workers then", kill.name);
                return refuse(&section, "box", reason);
            }
        }
        Ok(())
    }
}

/// Whether a place may be there: a namespace and interfaces get the name.
fn is_host(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fits = (1..=HOST_LEN_MAX).contains(&name.len()) && name.chars().all(is_plain);
    fits && name != "a0" && name != super::SWITCH && name != super::CONTROLLER
}

/// Bytes of a host's name.
const HOST_LEN_MAX: usize = 8;
/// Members of a group.
const PLACES_MAX: u8 = 64;
