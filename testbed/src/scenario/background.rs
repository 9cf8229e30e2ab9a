//! `[[background]]`: traffic of others between two hosts of the lab.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_config::Problem;

use super::refuse;
use crate::lab::tc::Rate;

/// `[[background]]`: traffic of others while the job runs, which takes its share of every link from
/// one host to another. UDP, a datagram at a time at a steady rate, which gives way to nobody; TCP
/// is not built. A lab only.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BackgroundSection {
    /// Host that sends, such as `w0`.
    pub from: String,
    /// Host that receives.
    pub to: String,
    /// Rate of its frames, Mbit/s; less arrives, and mostly less is sent, where a link is
    /// full.
    pub rate_mbit: f64,
    /// When it begins, in seconds since the boxes were ready. Default 0.
    #[serde(default)]
    pub begin_s: f64,
    /// When it ends, in the same seconds. Default: with the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_s: Option<f64>,
}

impl BackgroundSection {
    /// Rate of its frames.
    ///
    /// # Panics
    /// On a rate that was not validated.
    #[must_use]
    pub fn rate(&self) -> Rate {
        Rate::from_mbit(self.rate_mbit).expect("the scenario was validated")
    }

    /// When it begins, and when it ends if that is before the run does.
    #[must_use]
    pub fn times(&self) -> (Duration, Option<Duration>) {
        (Duration::from_secs_f64(self.begin_s), self.end_s.map(Duration::from_secs_f64))
    }

    pub(super) fn validate(&self, section: &str, hosts: &[String]) -> Result<(), Problem> {
        let refused = |key: &str, reason: String| refuse(section, key, reason);
        for (key, host) in [("from", &self.from), ("to", &self.to)] {
            if !hosts.contains(host) {
                let reason = format!("names no host: {host}; there are {}", hosts.join(", "));
                return refused(key, reason);
            }
        }
        if self.from == self.to {
            return refused("to", format!("is {}, which is the sender itself", self.to));
        }
        if Rate::from_mbit(self.rate_mbit).is_none() {
            let reason = format!("is {}; expected 0.01 to 100000 Mbit/s", self.rate_mbit);
            return refused("rate_mbit", reason);
        }
        if !(0.0..=TIME_S_MAX).contains(&self.begin_s) {
            let reason = format!("is {}; expected 0 to {TIME_S_MAX} seconds", self.begin_s);
            return refused("begin_s", reason);
        }
        match self.end_s {
            Some(end_s) if !(end_s > self.begin_s && end_s <= TIME_S_MAX) => {
                let begin_s = self.begin_s;
                let reason =
                    format!("is {end_s}; expected above {begin_s} (begin_s), to {TIME_S_MAX}");
                refused("end_s", reason)
            }
            _ => Ok(()),
        }
    }
}

/// Flows of a scenario: each takes two threads.
pub(super) const BACKGROUND_MAX: usize = 32;
/// A day.
const TIME_S_MAX: f64 = 86_400.0;
