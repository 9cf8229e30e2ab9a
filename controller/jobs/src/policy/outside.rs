//! A policy of jobs outside of this program: what it is told and what its answers mean.
//!
//! One line each way for every poll, as JSON: what happened since the last, and what shall change.
//! The first line has the setting too. Jobs go by their names. Who carries the lines is not known
//! here. Invariant: a line holds what changed since the one before, and no job that did not.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::{Change, Decision, Delta, PolicyError, Scheduler, Setting};
use crate::job::JobId;

/// Carries a line to a program and its answer back.
pub trait Carrier: fmt::Debug + Send {
    /// Asks.
    ///
    /// # Errors
    /// [`PolicyError::NoAnswer`] when there is none in time.
    fn ask(&mut self, question: &str) -> Result<String, PolicyError>;
}

/// The scheduler that a program outside is.
#[derive(Debug)]
pub struct Outside {
    policy: String,
    carrier: Box<dyn Carrier>,
    setting: Option<SettingText>,
    deltas: Vec<DeltaText>,
    names: Vec<Option<Arc<str>>>,
    ids: BTreeMap<Arc<str>, JobId>,
}

impl Outside {
    /// A program that was told nothing yet.
    #[must_use]
    pub fn new(policy: &str, setting: &Setting, carrier: Box<dyn Carrier>) -> Self {
        Self {
            policy: policy.into(),
            carrier,
            setting: Some(SettingText::from(setting)),
            deltas: Vec::new(),
            names: Vec::new(),
            ids: BTreeMap::new(),
        }
    }

    fn name(&self, id: JobId) -> Arc<str> {
        self.names[id.index()].clone().expect("only jobs that are there are named")
    }

    fn bad(&self, reason: impl fmt::Display) -> PolicyError {
        PolicyError::BadAnswer { policy: self.policy.clone(), reason: reason.to_string() }
    }

    fn id(&self, name: &str, field: &str, index: usize) -> Result<JobId, PolicyError> {
        let id = self.ids.get(name).copied();
        id.ok_or_else(|| self.bad(format_args!("{field}[{index}]: there is no job `{name}`")))
    }
}

impl Scheduler for Outside {
    fn handle(&mut self, _: u64, delta: Delta<'_>) -> Result<(), PolicyError> {
        let delta = match delta {
            Delta::Arrived { id, job } => {
                let name = Arc::clone(&job.name);
                self.names.resize(self.names.len().max(id.index() + 1), None);
                self.names[id.index()] = Some(Arc::clone(&name));
                self.ids.insert(Arc::clone(&name), id);
                DeltaText::Arrived {
                    job: name,
                    gpus: job.gpus,
                    duration_ns: job.duration_ns,
                    model: Arc::clone(&job.model),
                }
            }
            Delta::Ended { id } => {
                let job = self.name(id);
                self.ids.remove(&job);
                self.names[id.index()] = None;
                DeltaText::Ended { job }
            }
            Delta::Served { id, executed_ns, gpu_ns, remaining_ns } => {
                DeltaText::Served { job: self.name(id), executed_ns, gpu_ns, remaining_ns }
            }
            Delta::Unplaced { id } => DeltaText::Unplaced { job: self.name(id) },
        };
        self.deltas.push(delta);
        Ok(())
    }

    fn poll(&mut self, now_ns: u64, decision: &mut Decision) -> Result<(), PolicyError> {
        let deltas = core::mem::take(&mut self.deltas);
        let question = QuestionText { now_ns, setting: self.setting.take(), deltas };
        let question = serde_json::to_string(&question).map_err(|error| self.bad(error))?;
        let answer = self.carrier.ask(&question)?;
        let answer: AnswerText = serde_json::from_str(&answer).map_err(|error| self.bad(error))?;
        for (index, ChangeText { job, gpus }) in answer.changes.into_iter().enumerate() {
            let id = self.id(&job, "changes", index)?;
            if decision.changes.iter().any(|change| change.id == id) {
                return Err(self.bad(format_args!("changes[{index}]: job `{job}` is named twice")));
            }
            decision.changes.push(Change { id, gpus });
        }
        for (index, job) in answer.promoted.into_iter().enumerate() {
            let id = self.id(&job, "promoted", index)?;
            decision.promoted.push(id);
        }
        decision.again_at_ns = answer.again_at_ns;
        Ok(())
    }
}

#[derive(Debug, Serialize)]
struct QuestionText {
    now_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    setting: Option<SettingText>,
    deltas: Vec<DeltaText>,
}

#[derive(Debug, Serialize)]
struct SettingText {
    gpus: u32,
    nodes: u32,
    gpus_per_node: u32,
    restart_ns: u64,
    seed: u64,
}

impl From<&Setting> for SettingText {
    fn from(setting: &Setting) -> Self {
        Self {
            gpus: setting.cluster.gpus(),
            nodes: setting.cluster.nodes(),
            gpus_per_node: setting.cluster.gpus_per_node,
            restart_ns: setting.knobs.restart_ns,
            seed: setting.seed,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum DeltaText {
    Arrived { job: Arc<str>, gpus: u32, duration_ns: u64, model: Arc<str> },
    Ended { job: Arc<str> },
    Served { job: Arc<str>, executed_ns: u64, gpu_ns: u64, remaining_ns: u64 },
    Unplaced { job: Arc<str> },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerText {
    #[serde(default)]
    changes: Vec<ChangeText>,
    #[serde(default)]
    again_at_ns: Option<u64>,
    #[serde(default)]
    promoted: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeText {
    job: String,
    gpus: u32,
}

#[cfg(test)]
mod tests;
