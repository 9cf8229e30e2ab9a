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
//! | `push` | `[push]`: a parameter server instead of an allreduce |
//! | `locate` | the line and the field of a mistake |

mod background;
mod boxes;
mod job;
mod lab;
mod locate;
mod push;

use std::fmt;

use serde::{Deserialize, Serialize};

use background::BACKGROUND_MAX;
pub use background::BackgroundSection;
pub use boxes::{AggregationSection, FaultSection, RestartSection};
pub use job::{JobSection, ScaleExponent};
pub use lab::{LabSection, LinkRate, RackSection, RateStepSection};
pub use push::{CONTROLLER, LinkRates, PushSection, REPLICA, Replication, SERVER};

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
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = toml::from_str(text).map_err(|error| {
            let offset = error.span().map(|span| span.start);
            let (line, field) = offset.map_or((1, None), |offset| locate::locate(text, offset));
            let reason = error.message().trim().to_owned();
            ScenarioError { file: file.to_owned(), line, field, reason }
        })?;
        scenario.validate().map_err(|Invalid { section, index, key, reason }| {
            let line = locate::line_of(text, section, index, &key);
            let dot = if section.is_empty() { "" } else { "." };
            let field = Some(format!("{section}{dot}{key}"));
            ScenarioError { file: file.to_owned(), line, field, reason }
        })?;
        Ok(scenario)
    }

    /// Reads a restart or a crash as the command line writes it: `a1@40`. `option` is its name.
    ///
    /// # Errors
    /// Says what was expected.
    pub fn restart(option: &str, text: &str) -> Result<RestartSection, ScenarioError> {
        let parsed = text.split_once('@').and_then(|(name, round)| {
            Some(RestartSection { name: name.to_owned(), after_round: round.parse().ok()? })
        });
        parsed.ok_or_else(|| ScenarioError {
            file: option.to_owned(),
            line: 1,
            field: None,
            reason: format!("expected BOX@ROUND such as a1@40, not `{text}`"),
        })
    }

    /// Finds the first value that makes no sense: its section, its key and why.
    fn validate(&self) -> Result<(), Invalid> {
        if self.name.is_empty() {
            return refuse("", "name", "must not be empty");
        }
        self.job.validate()?;
        if let Some(push) = &self.push {
            push.validate(&self.job)?;
        }
        self.lab.validate(&self.hosts())?;
        if self.push.is_none() && !self.lab.racks.is_empty() {
            return refuse("lab.rack", "hosts", "are for a scenario with [push]");
        }
        self.aggregation.validate(&self.job)?;
        self.topology().map_err(|error| Invalid::new("lab", "mtu", error.to_string()))?;
        for (index, restart) in self.restart.iter().enumerate() {
            restart
                .validate("restart", &self.job, &self.restartable())
                .map_err(|invalid| invalid.at(index))?;
            if restart.name == SERVER && self.push.as_ref().is_some_and(|push| !push.durable) {
                let reason = "is the server, which forgets the job; set durable = true in [push]";
                return refuse("restart", "box", reason).map_err(|invalid| invalid.at(index));
            }
        }
        let mortal = self.push.as_ref().map(PushSection::boxes).unwrap_or_default();
        for (index, crash) in self.crash.iter().enumerate() {
            crash.validate("crash", &self.job, &mortal).map_err(|invalid| invalid.at(index))?;
        }
        for (index, step) in self.rate_step.iter().enumerate() {
            step.validate(self).map_err(|invalid| invalid.at(index))?;
        }
        let hosts = self.hosts();
        for (index, flow) in self.background.iter().enumerate() {
            flow.validate(&hosts).map_err(|invalid| invalid.at(index))?;
            if index == BACKGROUND_MAX {
                let reason = format!("is flow {}; expected at most {BACKGROUND_MAX}", index + 1);
                return refuse("background", "from", reason).map_err(|invalid| invalid.at(index));
            }
        }
        self.faults.validate()
    }

    /// Names of the hosts that a lab of this scenario has.
    fn hosts(&self) -> Vec<String> {
        let workers = (0..self.job.workers).map(|rank| format!("w{rank}"));
        match &self.push {
            None => workers.chain(self.aggregation.boxes()).collect(),
            Some(push) => workers.chain(push.boxes()).collect(),
        }
    }

    /// What may be killed.
    fn restartable(&self) -> Vec<String> {
        if self.push.is_some() { self.hosts() } else { self.aggregation.boxes() }
    }
}

/// A value that makes no sense: where, and why.
#[derive(Debug)]
struct Invalid {
    section: &'static str,
    /// Which of several sections of that name.
    index: usize,
    key: String,
    reason: String,
}

impl Invalid {
    fn new(section: &'static str, key: &str, reason: impl Into<String>) -> Self {
        Self { section, index: 0, key: key.to_owned(), reason: reason.into() }
    }

    fn at(self, index: usize) -> Self {
        Self { index, ..self }
    }
}

fn refuse(section: &'static str, key: &str, reason: impl Into<String>) -> Result<(), Invalid> {
    Err(Invalid::new(section, key, reason))
}

/// What is wrong with a scenario file, and where.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScenarioError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The field, with its section.
    pub field: Option<String>,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for ScenarioError {}

#[cfg(test)]
mod tests;
