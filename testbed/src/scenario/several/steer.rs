//! `[[word]]` and `[cluster]`: what an operator says while jobs run, and what they wait for.

use serde::{Deserialize, Serialize};
use weft_config::Problem;
use weft_control::BandPolicy;

use weft_controller::core::JobPolicy;

use super::{JobSection, JobsScenario, START_S_MAX};
use crate::scenario::refuse;

/// `[[word]]`: an operator's word to the controller; one of `bands`, `pause`, `resume` and
/// `resize`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WordOfJobs {
    /// When it is said, in seconds after the first job may start.
    pub at_s: f64,
    /// The policy of bands from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bands: Option<BandPolicy>,
    /// Name of a job that pauses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<String>,
    /// Name of one that goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
    /// Name of an allreduce with `places` that goes on with so many `workers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<String>,
    /// `resize`: how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u8>,
}

impl WordOfJobs {
    /// It in words.
    #[must_use]
    pub fn words(&self) -> String {
        let named = [("pause", &self.pause), ("resume", &self.resume), ("resize", &self.resize)];
        let given = named.iter().filter_map(|(verb, job)| Some((verb, job.as_ref()?)));
        let bands = self.bands.map(|policy| format!("bands {policy}"));
        let text: Vec<String> =
            bands.into_iter().chain(given.map(|(verb, job)| format!("{verb} {job}"))).collect();
        let workers = self.workers.map(|workers| format!(" to {workers}")).unwrap_or_default();
        text.join(", ") + &workers
    }
}

/// `[cluster]`: slots for workers, for which jobs wait. With it `start_s` is when a job comes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSection {
    /// Workers that may run at a time.
    pub slots: u32,
    /// Who goes first, a policy of `weft cluster` that stops no job: `fifo` (default) or `fjf`,
    /// which lets those go ahead that fit.
    #[serde(default = "default_order")]
    pub policy: String,
}

fn default_order() -> String {
    "fifo".to_owned()
}

impl JobsScenario {
    pub(super) fn check_word(&self, section: &str, word: &WordOfJobs) -> Result<(), Problem> {
        if !(0.0..=START_S_MAX).contains(&word.at_s) {
            let reason = format!("is {}; expected 0 to {START_S_MAX} s", word.at_s);
            return refuse(section, "at_s", reason);
        }
        let named = [("pause", &word.pause), ("resume", &word.resume), ("resize", &word.resize)];
        let given: Vec<_> =
            named.iter().filter_map(|(key, name)| Some((*key, name.as_ref()?))).collect();
        let count = given.len() + usize::from(word.bands.is_some());
        if count != 1 {
            return refuse(section, "at_s", format!("has {count} words at a time; expected one"));
        }
        let [(key, name)] = given.as_slice() else {
            let reason = "is for a scenario with [bands]";
            return if self.bands.is_none() { refuse(section, "bands", reason) } else { Ok(()) };
        };
        let Some(job) = self.jobs.iter().find(|job| job.name == **name) else {
            return refuse(section, key, format!("is `{name}`, which is no job"));
        };
        if !job.has_controller() || (*key == "resize" && job.places.is_none()) {
            let reason = format!("is `{name}`, which no controller steers so; give it `places`");
            return refuse(section, key, reason);
        }
        match (*key, word.workers) {
            ("resize", Some(workers)) if (1..=job.places()).contains(&workers) => Ok(()),
            ("resize", _) => {
                refuse(section, "workers", format!("must be 1 to the {} places", job.places()))
            }
            (_, None) => Ok(()),
            (_, Some(_)) => refuse(section, "workers", "belongs to `resize`"),
        }
    }

    /// Bands are of links that servers share, and that have a rate.
    pub(super) fn check_bands(&self) -> Result<(), Problem> {
        let Some(bands) = &self.bands else { return Ok(()) };
        if let Some(problem) = bands.interval_problem() {
            return refuse("bands", "interval_s", problem);
        }
        let pushes = self.jobs.iter().filter(|job| job.push.is_some());
        for job in pushes {
            if self.lab.rates(&job.server)[0].is_none() {
                let reason =
                    format!("are of links with a rate; the link of {} has none", job.server);
                return refuse("bands", "policy", reason);
            }
            if !job.has_controller() {
                return refuse("bands", "policy", "is a controller's; a job has none");
            }
        }
        Ok(())
    }

    /// The policy's own keys the controller judges, as it will.
    pub(super) fn check_job_policy(&self) -> Result<(), Problem> {
        let Some(policy) = &self.job_policy else { return Ok(()) };
        JobPolicy::new(policy)?;
        if !self.jobs.iter().any(JobSection::has_controller) {
            let reason = "is a controller's, and no job has one; give one `places`";
            return refuse("job_policy", "policy", reason);
        }
        if self.jobs.iter().any(|job| u32::from(job.workers) > policy.slots) {
            let reason = format!("is {}; a job has more workers", policy.slots);
            return refuse("job_policy", "slots", reason);
        }
        Ok(())
    }

    pub(super) fn check_cluster(&self) -> Result<(), Problem> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        let most = self.jobs.iter().map(|job| u32::from(job.workers)).max().unwrap_or(0);
        if cluster.slots < most {
            let reason = format!("is {}; a job has {most} workers", cluster.slots);
            return refuse("cluster", "slots", reason);
        }
        if !ORDERS.contains(&cluster.policy.as_str()) {
            let reason = format!("is `{}`; expected {}", cluster.policy, ORDERS.join(" or "));
            return refuse("cluster", "policy", reason);
        }
        Ok(())
    }
}

/// Policies of jobs that stop none.
const ORDERS: [&str; 2] = ["fifo", "fjf"];
