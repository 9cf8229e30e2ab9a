//! Decides what a scenario file means. No I/O: the caller reads the file.
//!
//! Invariants: an unknown field, a missing field and a value that makes no sense are refused with
//! the file, the line and the field; a [`Scenario`] that exists can be run.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use crate::lab::tc::Rate;
use crate::lab::topology::{Star, Topology, TopologyError};
use crate::workload::digits::{TrainerConfig, TrainerError};

/// One scenario: a job, the lab it runs in, and what goes wrong on the way.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name in reports, and of the lab.
    pub name: String,
    /// What is computed.
    pub job: JobSection,
    /// Where.
    #[serde(default)]
    pub lab: LabSection,
    /// Which boxes sum.
    #[serde(default)]
    pub aggregation: AggregationSection,
    /// What the fault port does to frames.
    #[serde(default)]
    pub faults: FaultSection,
    /// Boxes that are killed and started again.
    #[serde(default)]
    pub restart: Vec<RestartSection>,
}

/// `[job]`: the training run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JobSection {
    /// Workers, 1 to 64: as many as one group's bitmap has bits.
    pub workers: u8,
    /// Rounds of gradient, sum, step.
    pub rounds: u32,
    /// Images per worker and round.
    pub batch: usize,
    /// Sizes of the hidden layers.
    pub hidden: Vec<usize>,
    /// Step size.
    pub learning_rate: f32,
    /// Share of the previous step that is kept.
    pub momentum: f32,
    /// Elements on the wire.
    pub element_type: ElementType,
    /// Scale of `i32` elements.
    pub scale_exponent: ScaleExponent,
    /// How long a worker waits for the others before it gives up, in seconds. Default 30.
    #[serde(default = "default_member_timeout_s")]
    pub member_timeout_s: u16,
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

    /// [`JobSection::member_timeout_s`] as a duration.
    #[must_use]
    pub fn member_timeout(&self) -> Duration {
        Duration::from_secs(self.member_timeout_s.into())
    }
}

/// Elements on the wire.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ElementType {
    /// Fixed point, which sums exactly in any order.
    I32,
}

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

/// `[lab]`: the links.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LabSection {
    /// Rate of every link in each direction, Mbit/s; not shaped without it.
    pub rate_mbit: Option<f64>,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
}

impl Default for LabSection {
    fn default() -> Self {
        Self { rate_mbit: None, mtu: 1500 }
    }
}

/// `[aggregation]`: the boxes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AggregationSection {
    /// Leaf aggregators below the root, each with an equal share of the workers; 0 for one level.
    /// Leaves are `a1`, `a2` and so on; the root, or the only box, is `a0`.
    pub leaves: u8,
    /// Slots of the group's lease.
    pub window: u16,
    /// Lanes of every box, each a thread with its own slots.
    pub lanes: u16,
}

impl Default for AggregationSection {
    fn default() -> Self {
        Self { leaves: 0, window: 128, lanes: 1 }
    }
}

impl AggregationSection {
    /// Names of the boxes, the root first.
    #[must_use]
    pub fn boxes(&self) -> Vec<String> {
        (0..=self.leaves).map(|index| format!("a{index}")).collect()
    }
}

/// `[[restart]]`: a box that dies without a word and comes back at once.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RestartSection {
    /// Name of the box.
    #[serde(rename = "box")]
    pub name: String,
    /// It is killed when rank 0 has finished this round, counted from 0.
    pub after_round: u32,
}

/// `[faults]`: probabilities per frame.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultSection {
    /// The frame is lost.
    pub loss: f64,
    /// The frame arrives twice.
    pub duplicate: f64,
    /// The frame is overtaken.
    pub reorder: f64,
    /// A range of the frame's bytes is overwritten.
    pub corrupt: f64,
}

impl Scenario {
    /// Reads a scenario; `file` is its name in errors.
    ///
    /// # Errors
    /// Names the file, the line and the field.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = toml::from_str(text).map_err(|error| {
            let offset = error.span().map(|span| span.start);
            let (line, field) = offset.map_or((1, None), |offset| locate(text, offset));
            let reason = error.message().trim().to_owned();
            ScenarioError { file: file.to_owned(), line, field, reason }
        })?;
        scenario.validate().map_err(|(section, key, reason)| {
            let line = line_of(text, section, key);
            let dot = if section.is_empty() { "" } else { "." };
            let field = Some(format!("{section}{dot}{key}"));
            ScenarioError { file: file.to_owned(), line, field, reason }
        })?;
        Ok(scenario)
    }

    /// Reads a restart as the command line writes it: `a1@40`.
    ///
    /// # Errors
    /// Says what was expected.
    pub fn restart(text: &str) -> Result<RestartSection, ScenarioError> {
        let parsed = text.split_once('@').and_then(|(name, round)| {
            Some(RestartSection { name: name.to_owned(), after_round: round.parse().ok()? })
        });
        parsed.ok_or_else(|| ScenarioError {
            file: "--restart".to_owned(),
            line: 1,
            field: None,
            reason: format!("expected BOX@ROUND such as a1@40, not `{text}`"),
        })
    }

    /// The lab of this scenario with `aggregators` aggregators.
    ///
    /// # Errors
    /// When the lab's address plan is too small.
    pub fn topology(&self, aggregators: u8) -> Result<Topology, TopologyError> {
        Topology::star(&Star {
            workers: self.job.workers,
            aggregators,
            rate: self.lab.rate_mbit.and_then(Rate::from_mbit),
            mtu: self.lab.mtu,
        })
    }

    /// Finds the first value that makes no sense: its section, its key and why.
    fn validate(&self) -> Result<(), (&'static str, &'static str, String)> {
        let job = &self.job;
        if self.name.is_empty() {
            return Err(("", "name", "must not be empty".to_owned()));
        }
        if !(1..=WORKERS_MAX).contains(&job.workers) {
            let reason = format!("is {}; expected 1 to {WORKERS_MAX}", job.workers);
            return Err(("job", "workers", reason));
        }
        if job.rounds == 0 {
            return Err(("job", "rounds", "is 0; expected at least 1".to_owned()));
        }
        job.trainer().validate(usize::from(job.workers)).map_err(|error| {
            let key = match &error {
                TrainerError::Hidden => "hidden",
                TrainerError::LearningRate { .. } => "learning_rate",
                TrainerError::Momentum { .. } => "momentum",
                TrainerError::Batch { .. } => "batch",
                _ => "workers",
            };
            ("job", key, error.to_string())
        })?;
        if !(1..=MEMBER_TIMEOUT_S_MAX).contains(&job.member_timeout_s) {
            let reason =
                format!("is {}; expected 1 to {MEMBER_TIMEOUT_S_MAX}", job.member_timeout_s);
            return Err(("job", "member_timeout_s", reason));
        }
        if let Some(mbit) = self.lab.rate_mbit
            && Rate::from_mbit(mbit).is_none()
        {
            let reason = format!("is {mbit}; expected 0.01 to 100000 Mbit/s");
            return Err(("lab", "rate_mbit", reason));
        }
        self.topology(1).map_err(|error| ("lab", "mtu", error.to_string()))?;
        let leaves = self.aggregation.leaves;
        if leaves > 0 && (leaves > job.workers || !job.workers.is_multiple_of(leaves)) {
            let reason = format!("is {leaves}; expected a divisor of the {} workers", job.workers);
            return Err(("aggregation", "leaves", reason));
        }
        let window = self.aggregation.window;
        if !window.is_power_of_two() || window > 2048 {
            let reason = format!("is {window}; expected a power of two, at most 2048");
            return Err(("aggregation", "window", reason));
        }
        let lanes = self.aggregation.lanes;
        if !lanes.is_power_of_two() || lanes > window.min(LANES_MAX) {
            let reason =
                format!("is {lanes}; expected a power of two, at most {LANES_MAX} and the window");
            return Err(("aggregation", "lanes", reason));
        }
        if let Some(restart) = self.restart.iter().find(|r| r.after_round >= job.rounds) {
            let reason =
                format!("is {}; the last round is {}", restart.after_round, job.rounds - 1);
            return Err(("restart", "after_round", reason));
        }
        if let Some(restart) =
            self.restart.iter().find(|restart| !self.aggregation.boxes().contains(&restart.name))
        {
            return Err(("restart", "box", format!("names no box: {}", restart.name)));
        }
        let faults = &self.faults;
        for (key, value) in [
            ("loss", faults.loss),
            ("duplicate", faults.duplicate),
            ("reorder", faults.reorder),
            ("corrupt", faults.corrupt),
        ] {
            if !(0.0..1.0).contains(&value) {
                let reason = format!("is {value}; expected a probability, 0 to below 1");
                return Err(("faults", key, reason));
            }
        }
        Ok(())
    }
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

/// The line of a byte offset, and the field that it is in.
fn locate(text: &str, offset: usize) -> (usize, Option<String>) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let section = text.lines().take(line).filter_map(header).last();
    let key = text.lines().nth(line - 1).and_then(key);
    let field = match (section, key) {
        (Some(section), Some(key)) => Some(format!("{section}.{key}")),
        (section, key) => key.or(section).map(str::to_owned),
    };
    (line, field)
}

/// The line of a key, else of its section, else the first.
fn line_of(text: &str, section: &str, wanted: &str) -> usize {
    let mut current = "";
    let mut section_line = 1;
    for (index, line) in text.lines().enumerate() {
        if let Some(name) = header(line) {
            current = name;
            if current == section {
                section_line = index + 1;
            }
        } else if current == section && key(line) == Some(wanted) {
            return index + 1;
        }
    }
    section_line
}

fn header(line: &str) -> Option<&str> {
    let (name, _) = line.trim_start().strip_prefix('[')?.split_once(']')?;
    Some(name.trim())
}

fn key(line: &str) -> Option<&str> {
    let (key, _) = line.split_once('=')?;
    let key = key.trim();
    (!key.is_empty() && !key.starts_with('#')).then_some(key)
}

/// Positions in a group's member bitmap.
const WORKERS_MAX: u8 = 64;
/// An hour: whoever waits longer has left.
const MEMBER_TIMEOUT_S_MAX: u16 = 3600;
/// A worker has a UDP port for each lane, and on loopback the ranks share an address.
const LANES_MAX: u16 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: &str = include_str!("../scenarios/digits.toml");

    #[test]
    fn the_shipped_scenario_is_read() {
        let scenario = Scenario::parse("digits.toml", DIGITS).unwrap();
        assert_eq!((scenario.job.workers, scenario.job.rounds), (4, 150));
        assert_eq!(scenario.job.scale_exponent, ScaleExponent::Fixed(-20));
        assert_eq!(scenario.job.trainer(), TrainerConfig::default());
        let topology = scenario.topology(1).unwrap();
        assert_eq!(topology.hosts.len(), 5);
        assert_eq!(topology.links[0].shapes[0].unwrap().rate.bits_per_sec(), 1_000_000_000);
        let auto = DIGITS.replace("scale_exponent = -20", "scale_exponent = \"auto\"");
        let scenario = Scenario::parse("x", &auto).unwrap();
        assert_eq!(scenario.job.scale_exponent, ScaleExponent::Auto);
    }

    #[test]
    fn mistakes_name_file_line_and_field() {
        let line = |needle: &str| {
            1 + DIGITS.lines().position(|line| line.starts_with(needle)).expect("a line")
        };
        let table = [
            ("workers = 4", "workers = 65", "job.workers", "1 to 64"),
            ("workers = 4", "workers = \"four\"", "job.workers", "invalid type"),
            ("workers = 4", "worker = 4", "job.worker", "unknown field `worker`"),
            ("rounds = 150", "rounds = 0", "job.rounds", "at least 1"),
            (
                "rounds = 150",
                "member_timeout_s = 0\nrounds = 150",
                "job.member_timeout_s",
                "1 to 3600",
            ),
            ("batch = 32", "batch = 3200", "job.batch", "359 training images"),
            ("hidden = [256, 320]", "hidden = []", "job.hidden", "at least one layer"),
            ("momentum = 0.9", "momentum = 1.5", "job.momentum", "below 1"),
            (
                "element_type = \"i32\"",
                "element_type = \"i8\"",
                "job.element_type",
                "unknown variant",
            ),
            ("scale_exponent = -20", "scale_exponent = 200", "job.scale_exponent", "\"auto\""),
            ("rate_mbit = 1000", "rate_mbit = 0", "lab.rate_mbit", "0.01"),
            ("mtu = 1500", "mtu = 64", "lab.mtu", "1280"),
            ("loss = 0.0", "loss = 1.0", "faults.loss", "below 1"),
            ("corrupt = 0.0", "corrupt = nan", "faults.corrupt", "probability"),
            ("corrupt = 0.0", "corrupted = 0.0", "faults.corrupted", "unknown field"),
        ];
        for (from, to, field, reason) in table {
            let error = Scenario::parse("d.toml", &DIGITS.replace(from, to)).unwrap_err();
            assert_eq!(error.line, line(from), "{error}");
            assert_eq!(error.field.as_deref(), Some(field), "{error}");
            let text = error.to_string();
            assert!(text.starts_with(&format!("d.toml:{}: {field}: ", error.line)), "{text}");
            assert!(text.contains(reason), "{text:?} lacks {reason:?}");
        }
    }

    #[test]
    fn lanes_and_restarts_fit_their_run() {
        let parse = |more: &str| Scenario::parse("d.toml", &format!("{DIGITS}{more}"));
        let scenario = parse("[aggregation]\nlanes = 4\nleaves = 2\n").unwrap();
        assert_eq!(scenario.aggregation.lanes, 4);
        for (more, words) in [
            ("[aggregation]\nlanes = 3\n", "aggregation.lanes: is 3; expected a power of two"),
            ("[aggregation]\nlanes = 32\n", "at most 16"),
            ("[aggregation]\nlanes = 4\nwindow = 2\n", "and the window"),
            ("[[restart]]\nbox = \"a0\"\nafter_round = 150\n", "the last round is 149"),
            ("[[restart]]\nbox = \"a1\"\nafter_round = 1\n", "names no box: a1"),
        ] {
            let text = parse(more).unwrap_err().to_string();
            assert!(text.contains(words), "{text:?} lacks {words:?}");
        }
    }

    #[test]
    fn a_missing_field_points_at_its_section() {
        let text = DIGITS.replace("batch = 32 ", "# ");
        let error = Scenario::parse("d.toml", &text).unwrap_err();
        assert!(error.reason.contains("`batch`"), "{error}");
        assert_eq!(error.field.as_deref(), Some("job"), "{error}");
        let error = Scenario::parse("d.toml", "name = \"x\"\n[job\n").unwrap_err();
        assert_eq!(error.line, 2, "{error}");
    }
}
