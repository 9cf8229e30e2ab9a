//! `[job]`: the training run, and what its numbers are on the wire; of several, `[[job]]`, also its
//! name, its start and its hosts.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use weft_config::Problem;

use super::{PushSection, refuse};
use crate::workload::digits::{TrainerConfig, TrainerError};
use weft_wire::header::ElementType;

/// `[job]`: the training run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JobSection {
    /// Workers, 1 to 64: as many as one group's bitmap has bits.
    pub workers: u8,
    /// Rounds of gradient, sum, step. With `[push]`: the run ends when the model has taken in as
    /// many updates as this many rounds have.
    pub rounds: u32,
    /// Images per worker and round.
    pub batch: usize,
    /// Sizes of the hidden layers.
    pub hidden: Vec<usize>,
    /// Step size.
    pub learning_rate: f32,
    /// Share of the previous step that is kept.
    pub momentum: f32,
    /// Elements on the wire: `i32`, which sums exactly in any order. The others are refused.
    pub element_type: ElementType,
    /// Scale of `i32` elements: an exponent, or `"auto"` for one of each block.
    pub scale_exponent: ScaleExponent,
    /// Elements in a packet: 32, or a multiple of 64 that fits `lab.mtu`. Default 256, or with
    /// jumbo frames as many as fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elements: Option<u16>,
    /// How long a worker waits for the others before it gives up, in seconds. Default 30.
    #[serde(default = "default_member_timeout_s")]
    pub member_timeout_s: u16,
    /// `[[job]]`: its name, in reports and of its folder in the run directory.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `[[job]]`: when its workers start, in seconds after the first job's may. Default 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start_s: f64,
    /// `[[job]]`: its place where jobs are put in an order, the lowest first; those with the same
    /// in the order of the file. Default 0.
    #[serde(default, skip_serializing_if = "is_first")]
    pub priority: u8,
    /// `[[job]]`: host of its server, which may be that of other servers too. Default `server`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub server: String,
    /// `[[job]]`: hosts of its workers by rank, which other jobs may use too. Default: hosts of
    /// their own, `w0`, `w1` and so on over all jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// `[[job]]`, an allreduce: the controller steers it, and there may be so many workers at most;
    /// `hosts` has as many. Default: nobody steers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<u8>,
    /// `[[job]]`: its parameter server, as `[push]` of a scenario of one job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<PushSection>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
const fn is_first(priority: &u8) -> bool {
    *priority == 0
}

const fn default_member_timeout_s() -> u16 {
    30
}

impl JobSection {
    /// The trainer's part.
    #[must_use]
    pub fn trainer(&self) -> TrainerConfig {
        TrainerConfig {
            hidden: self.hidden.clone(),
            batch: self.batch,
            learning_rate: self.learning_rate,
            momentum: self.momentum,
        }
    }

    /// Elements in a packet on links of this MTU.
    #[must_use]
    pub fn chunk_elements(&self, mtu: u32) -> u16 {
        let fit = elements_max(mtu);
        let auto = if (256..512).contains(&fit) { 256 } else { fit / 64 * 64 };
        self.elements.unwrap_or(auto)
    }

    /// Refuses packets that do not fit links of this MTU, or that no row may have.
    pub(super) fn validate_elements(&self, mtu: u32) -> Result<(), Problem> {
        let max = elements_max(mtu);
        match self.elements {
            Some(elements)
                if elements > max || elements == 0 || (elements != 32 && elements % 64 != 0) =>
            {
                let reason = format!(
                    "is {elements}; expected 32 or a multiple of 64, at most the {max} that lab.mtu \
                     = {mtu} carries"
                );
                refuse("job", "elements", reason)
            }
            _ => Ok(()),
        }
    }

    /// `[[job]]`: the most workers that it may have.
    #[must_use]
    pub fn places(&self) -> u8 {
        self.places.unwrap_or(self.workers)
    }

    /// `[[job]]`: whether a controller plans or steers it.
    #[must_use]
    pub fn has_controller(&self) -> bool {
        self.places.is_some() || self.push.as_ref().is_some_and(|push| push.controller)
    }

    /// [`JobSection::member_timeout_s`] as a duration.
    #[must_use]
    pub fn member_timeout(&self) -> Duration {
        Duration::from_secs(self.member_timeout_s.into())
    }

    /// Refuses what only one of several jobs has.
    pub(super) fn validate_alone(&self) -> Result<(), Problem> {
        let given = [
            ("name", !self.name.is_empty()),
            ("start_s", !is_zero(&self.start_s)),
            ("priority", !is_first(&self.priority)),
            ("server", !self.server.is_empty()),
            ("hosts", !self.hosts.is_empty()),
            ("places", self.places.is_some()),
            ("push", self.push.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) => refuse("job", key, "belongs to one of several jobs, [[job]]"),
            None => Ok(()),
        }
    }

    /// Finds the first value that makes no sense.
    pub(super) fn validate(&self) -> Result<(), Problem> {
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            let reason = format!("is {}; expected 1 to {WORKERS_MAX}", self.workers);
            return refuse("job", "workers", reason);
        }
        if self.element_type != ElementType::I32 {
            return refuse("job", "element_type", "must be `i32`, which sums exactly in any order");
        }
        if self.rounds == 0 {
            return refuse("job", "rounds", "is 0; expected at least 1");
        }
        self.trainer().validate(usize::from(self.workers)).map_err(|error| {
            let key = match &error {
                TrainerError::Hidden => "hidden",
                TrainerError::LearningRate { .. } => "learning_rate",
                TrainerError::Momentum { .. } => "momentum",
                TrainerError::Batch { .. } => "batch",
                _ => "workers",
            };
            Problem::new(format!("job.{key}"), error.to_string())
        })?;
        if !(1..=MEMBER_TIMEOUT_S_MAX).contains(&self.member_timeout_s) {
            let reason =
                format!("is {}; expected 1 to {MEMBER_TIMEOUT_S_MAX}", self.member_timeout_s);
            return refuse("job", "member_timeout_s", reason);
        }
        Ok(())
    }
}

/// Elements of 4 bytes that a frame carries at most beside its headers.
fn elements_max(mtu: u32) -> u16 {
    u16::try_from(mtu.saturating_sub(OVERHEAD) / 4).unwrap_or(u16::MAX)
}

/// Bytes of a frame's IPv4, UDP and Weft headers.
const OVERHEAD: u32 = 60;

/// Scale of fixed-point elements: value = element x 2^exponent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ScaleExponent {
    /// Agreed per chunk before each round, at the price of a round trip.
    Auto,
    /// Fixed for the job.
    Fixed(i8),
}

impl<'de> Deserialize<'de> for ScaleExponent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Number(i64),
            Word(String),
        }
        let expected = || serde::de::Error::custom("expected \"auto\" or an exponent, -126 to 126");
        match Raw::deserialize(deserializer).map_err(|_| expected())? {
            Raw::Word(word) if word == "auto" => Ok(Self::Auto),
            Raw::Number(number) if (-126..=126).contains(&number) => {
                i8::try_from(number).map(Self::Fixed).map_err(|_| expected())
            }
            _ => Err(expected()),
        }
    }
}

impl Serialize for ScaleExponent {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Fixed(exponent) => serializer.serialize_i8(*exponent),
        }
    }
}

/// Positions in a group's member bitmap.
const WORKERS_MAX: u8 = 64;
/// An hour: whoever waits longer has left.
const MEMBER_TIMEOUT_S_MAX: u16 = 3600;
