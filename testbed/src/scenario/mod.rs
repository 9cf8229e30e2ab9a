//! Decides what a scenario file means. No I/O: the caller reads the file.
//!
//! Invariants: an unknown field, a missing field and a value that makes no sense are refused with
//! the file, the line and the field; a [`Scenario`] that exists can be run.
//!
//! | file | section |
//! | --- | --- |
//! | `job` | `[job]`: the training run |
//! | `lab` | `[lab]`, `[[rate_step]]`: the links, and how they change |
//! | `background` | `[[background]]`: traffic of others |
//! | `boxes` | `[aggregation]`, `[faults]`, `[[restart]]`, `[[crash]]` |
//! | `resize` | `[resize]`: an allreduce whose number of workers changes |
//! | `push` | `[push]`: a parameter server instead of an allreduce |
//! | `factorisation` | `[factorisation]`: a matrix whose factors are rows of a table |
//! | `several` | `[[job]]`: several training runs side by side |

mod background;
mod boxes;
mod factorisation;
mod job;
mod lab;
mod push;
mod resize;
mod several;

use serde::{Deserialize, Serialize};
use weft_config::{ConfigError, ConfigFile, Problem};

use background::BACKGROUND_MAX;
pub use background::BackgroundSection;
pub use boxes::{AggregationSection, FaultSection, RestartSection};
pub use factorisation::{
    CostsSection, FactorisationScenario, FactorisationSection, HOME, HomeKillSection, ModeWord,
    ModelWord, has_factorisation,
};
pub use job::{JobSection, ScaleExponent};
pub use lab::{LabSection, LinkRate, RackSection, RateStepSection};
pub use push::{CONTROLLER, LinkRates, PushSection, REPLICA, Replication, SERVER};
pub use resize::{KillSection, ResizeSection, WordSection, WordStep};
pub use several::{ClusterSection, JobsScenario, Site, WordOfJobs, has_jobs};

/// One scenario: a job, the lab it runs in, and what goes wrong on the way.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name in reports, and of the lab.
    pub name: String,
    /// What is computed.
    pub job: JobSection,
    /// A parameter server takes the updates; without it they are summed by allreduce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<PushSection>,
    /// The number of workers changes while the job runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<ResizeSection>,
    /// Where.
    #[serde(default)]
    pub lab: LabSection,
    /// Which boxes sum in an allreduce.
    #[serde(default)]
    pub aggregation: AggregationSection,
    /// What the fault port does to frames.
    #[serde(default)]
    pub faults: FaultSection,
    /// Boxes that are killed and started again.
    #[serde(default)]
    pub restart: Vec<RestartSection>,
    /// Links that change while the job runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rate_step: Vec<RateStepSection>,
    /// Traffic of others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<BackgroundSection>,
    /// With `[push]`: boxes that are killed and stay dead.
    #[serde(default)]
    pub crash: Vec<RestartSection>,
}

impl Scenario {
    /// Reads a scenario; `file` is its name in errors.
    ///
    /// # Errors
    /// Names the file, the line and the field.
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        let file = ConfigFile::new(file, text);
        let scenario: Self = file.read()?;
        let checked = scenario.job.validate_alone().and_then(|()| scenario.check());
        checked.map_err(|problem| file.refuse(&problem))?;
        Ok(scenario)
    }

    /// Reads a restart or a crash as the command line writes it: `a1@40`. `option` is its name.
    ///
    /// # Errors
    /// Says what was expected.
    pub fn restart(option: &str, text: &str) -> Result<RestartSection, Problem> {
        let parsed = text.split_once('@').and_then(|(name, round)| {
            Some(RestartSection { name: name.to_owned(), after_round: round.parse().ok()? })
        });
        parsed.ok_or_else(|| {
            Problem::new(option, format!("expected BOX@ROUND such as a1@40, not `{text}`"))
        })
    }

    /// Finds the first value that makes no sense.
    ///
    /// # Errors
    /// The key, and why.
    pub fn check(&self) -> Result<(), Problem> {
        if self.name.is_empty() {
            return refuse("", "name", "must not be empty");
        }
        self.job.validate()?;
        if let Some(push) = &self.push {
            push.validate(&self.job)?;
        }
        if let Some(resize) = &self.resize {
            resize.validate(self)?;
        }
        self.lab.validate(&self.hosts())?;
        if self.push.is_none() && !self.lab.racks.is_empty() {
            return refuse("lab.rack[0]", "hosts", "are for a scenario with [push]");
        }
        self.aggregation.validate(&self.job)?;
        self.topology().map_err(|error| Problem::new("lab.mtu", error.to_string()))?;
        self.job.validate_elements(self.lab.mtu)?;
        for (index, restart) in self.restart.iter().enumerate() {
            let section = format!("restart[{index}]");
            restart.validate(&section, &self.job, &self.restartable())?;
            if restart.name == SERVER && self.push.as_ref().is_some_and(|push| !push.durable) {
                let reason = "is the server, which forgets the job; set durable = true in [push]";
                return refuse(&section, "box", reason);
            }
        }
        let mortal = self.push.as_ref().map(PushSection::boxes).unwrap_or_default();
        for (index, crash) in self.crash.iter().enumerate() {
            crash.validate(&format!("crash[{index}]"), &self.job, &mortal)?;
        }
        for (index, step) in self.rate_step.iter().enumerate() {
            step.validate(&format!("rate_step[{index}]"), self)?;
        }
        let hosts = self.hosts();
        for (index, flow) in self.background.iter().enumerate() {
            let section = format!("background[{index}]");
            flow.validate(&section, &hosts)?;
            if index == BACKGROUND_MAX {
                let reason = format!("is flow {}; expected at most {BACKGROUND_MAX}", index + 1);
                return refuse(&section, "from", reason);
            }
        }
        self.faults.validate()
    }

    /// Versions of the model in a round: of its updates with `[push]`, else one.
    #[must_use]
    pub fn updates_per_round(&self) -> u64 {
        self.push.as_ref().map_or(1, |push| push.updates_per_round(&self.job).into())
    }

    /// Names of the hosts that a lab of this scenario has.
    fn hosts(&self) -> Vec<String> {
        if let Some(resize) = self.resize.as_ref().filter(|resize| resize.lab) {
            let boxes = self.aggregation.boxes().into_iter().chain([CONTROLLER.to_owned()]);
            return resize.host_names().into_iter().chain(boxes).collect();
        }
        let workers = (0..self.job.workers).map(|rank| format!("w{rank}"));
        match &self.push {
            None => workers.chain(self.aggregation.boxes()).collect(),
            Some(push) => workers.chain(push.boxes()).collect(),
        }
    }

    /// What may be killed.
    fn restartable(&self) -> Vec<String> {
        let is_push = self.push.is_some();
        let mut names = if is_push { self.hosts() } else { self.aggregation.boxes() };
        names.push(SWITCH.to_owned());
        names
    }
}

/// The switch of a lab, where it is one that sums.
pub const SWITCH: &str = "s0";

fn refuse(section: &str, key: &str, reason: impl Into<String>) -> Result<(), Problem> {
    let dot = if section.is_empty() { "" } else { "." };
    Err(Problem::new(format!("{section}{dot}{key}"), reason))
}

#[cfg(test)]
mod tests;
