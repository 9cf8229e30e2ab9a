//! A scenario with `[factorisation]`: processes that factor a matrix whose factors are the rows of
//! a table, at a `weft-node` that is the table's home.

use serde::{Deserialize, Serialize};
use weft_client::keys::{IN_FLIGHT_MAX, Mode};
use weft_config::{ConfigError, ConfigFile, Problem};

use super::{FaultSection, LabSection, refuse};
use crate::lab::tc::Rate;
use crate::lab::topology::{Star, Topology, TopologyError};

/// Such a scenario.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FactorisationScenario {
    /// Name in reports, and of the lab.
    pub name: String,
    /// What is computed, and by how many.
    pub factorisation: FactorisationSection,
    /// Where: hosts `w0` and so on, and `a0`, the home.
    #[serde(default)]
    pub lab: LabSection,
    /// What the fault ports of the processes do to frames.
    #[serde(default)]
    pub faults: FaultSection,
    /// Times at which the home is killed without a word and started again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kill: Vec<HomeKillSection>,
    /// What things take in virtual time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<CostsSection>,
}

/// `[costs]`: what things take in virtual time, where each thread has a core of its own.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CostsSection {
    /// Going through an entry whose factors are at the process, with the operations on them.
    pub entry_ns: u64,
    /// Any other operation on a row that is at the process, and saying that a key is to be used.
    pub operation_ns: u64,
    /// A frame, at the host that sends it and at the one that receives it.
    pub frame_ns: u64,
    /// Until a thread that sleeps runs again.
    pub wake_ns: u64,
    /// From a host to another, besides what a frame takes at the links' rate.
    pub delay_ns: u64,
}

/// `[factorisation]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FactorisationSection {
    /// Processes, 1 to 16, each on a host of its own.
    pub nodes: u8,
    /// Worker threads of each, 1 to 16.
    pub threads: u8,
    /// Where the factors are and how processes come to them. Default `relocation`.
    #[serde(default)]
    pub mode: ModeWord,
    /// Accesses to one factor that a process may have in flight, 1 to 4; with more than 1 those
    /// that are open at the same time have no order. Not in the modes that have copies. Default 1.
    #[serde(default = "one_access")]
    pub in_flight: u8,
    /// Clocks, that is steps of an epoch, that copies of factors may be older, 0 to 64: in the
    /// modes that have copies. Default 1.
    #[serde(default = "one")]
    pub staleness: u32,
    /// DSCP of the table's frames, 0 to 63, for hosts and switches that give labels bands
    /// (docs/keys.md). Default 0.
    #[serde(default)]
    pub dscp: u8,
    /// DSCP of those longer than 576 bytes. Default: as `dscp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bulk_dscp: Option<u8>,
    /// What is learnt. Default `matrix`.
    #[serde(default)]
    pub model: ModelWord,
    /// Rows of the matrix; entities; words: a multiple of all threads.
    pub rows: u32,
    /// Columns; relations; words again: a multiple of all threads.
    pub columns: u32,
    /// Elements of a factor; of `rescal` a relation's has the square of it, and all rows of the
    /// table are as long.
    pub rank: u16,
    /// Entries of the matrix that are known, facts, or pairs of words, from which is learnt.
    pub entries: u32,
    /// Times that all of them are gone through.
    pub epochs: u32,
    /// Step of the gradient descent.
    pub learning_rate: f32,
}

/// A word for [`Mode`].
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModeWord {
    /// Factors move to the process that works on them.
    #[default]
    Relocation,
    /// Factors stay; a process has its own ones in its memory.
    ClassicFastLocal,
    /// Factors stay; every access is a message, also to the process's own.
    Classic,
    /// Factors stay; copies are made new when they are read and too old.
    StaleClient,
    /// Factors stay; copies are made new in each clock.
    StaleServer,
    /// Processes say what they use in the next step; factors come, or copies of them.
    Managed,
}

impl ModeWord {
    /// The mode.
    #[must_use]
    pub const fn mode(self) -> Mode {
        match self {
            Self::Relocation => Mode::Relocation,
            Self::ClassicFastLocal => Mode::ClassicFastLocal,
            Self::Classic => Mode::Classic,
            Self::StaleClient => Mode::StaleClient,
            Self::StaleServer => Mode::StaleServer,
            Self::Managed => Mode::Relocation,
        }
    }

    /// Whether each step is a clock, and processes may work on copies.
    #[must_use]
    pub const fn has_copies(self) -> bool {
        matches!(self, Self::StaleClient | Self::StaleServer | Self::Managed)
    }
}

/// What is learnt from entries.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelWord {
    /// The factors of a matrix, without two workers at one factor in a step.
    #[default]
    Matrix,
    /// A knowledge graph: entities' vectors, and a matrix for each relation.
    Rescal,
    /// A knowledge graph: complex vectors.
    Complex,
    /// Words' vectors, from which words stand beside each other.
    Word2vec,
}

/// `[[kill]]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HomeKillSection {
    /// What is killed: `home`.
    #[serde(rename = "box")]
    pub name: String,
    /// In the middle of this epoch, counted from 0.
    pub in_epoch: u32,
}

/// Whether a file is of such a scenario.
///
/// # Errors
/// It is no TOML.
pub fn has_factorisation(file: &str, text: &str) -> Result<bool, ConfigError> {
    /// What alone is looked at.
    #[derive(Deserialize)]
    struct Shape {
        #[serde(default)]
        factorisation: serde_json::Value,
    }
    let shape: Shape = ConfigFile::new(file, text).read()?;
    Ok(!shape.factorisation.is_null())
}

impl FactorisationScenario {
    /// Reads a scenario; `file` is its name in errors.
    ///
    /// # Errors
    /// Names the file, the line and the field.
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        let file = ConfigFile::new(file, text);
        let scenario: Self = file.read()?;
        scenario.check().map_err(|problem| file.refuse(&problem))?;
        Ok(scenario)
    }

    /// Finds the first value that makes no sense.
    ///
    /// # Errors
    /// The key, and why.
    pub fn check(&self) -> Result<(), Problem> {
        if self.name.is_empty() {
            return refuse("", "name", "must not be empty");
        }
        let section = &self.factorisation;
        section.check()?;
        self.costs.map_or(Ok(()), CostsSection::check)?;
        let hosts = (0..section.nodes).map(|node| format!("w{node}"));
        self.lab.validate(&hosts.chain([HOME.to_owned()]).collect::<Vec<_>>())?;
        let is_plain = self.lab.links.is_empty() && self.lab.racks.is_empty();
        if !is_plain || self.lab.delay_ms.is_some() || !self.lab.delays_ms.is_empty() {
            let reason = "has links of their own, racks or delays: with [factorisation] all links \
                          have one rate, rate_mbit";
            return refuse("", "lab", reason);
        }
        self.topology().map_err(|error| Problem::new("lab.mtu", error.to_string()))?;
        for (index, kill) in self.kill.iter().enumerate() {
            let at = format!("kill[{index}]");
            if kill.name != "home" {
                return refuse(&at, "box", format!("is `{}`; expected home", kill.name));
            }
            if kill.in_epoch >= section.epochs {
                let reason =
                    format!("is {}; the last epoch is {}", kill.in_epoch, section.epochs - 1);
                return refuse(&at, "in_epoch", reason);
            }
            if self.kill[..index].iter().any(|other| other.in_epoch == kill.in_epoch) {
                let reason = format!("is {} twice: an epoch has one kill", kill.in_epoch);
                return refuse(&at, "in_epoch", reason);
            }
        }
        self.faults.validate()
    }

    /// The lab: a star around one switch.
    ///
    /// # Errors
    /// When the MTU is out of range.
    pub fn topology(&self) -> Result<Topology, TopologyError> {
        Topology::star(&Star {
            workers: self.factorisation.nodes,
            aggregators: 1,
            rate: self.lab.rate_mbit.and_then(Rate::from_mbit),
            mtu: self.lab.mtu,
        })
    }
}

impl CostsSection {
    fn check(self) -> Result<(), Problem> {
        for (key, ns) in [
            ("entry_ns", self.entry_ns),
            ("operation_ns", self.operation_ns),
            ("frame_ns", self.frame_ns),
            ("wake_ns", self.wake_ns),
            ("delay_ns", self.delay_ns),
        ] {
            if ns > COST_NS_MAX {
                return refuse("costs", key, format!("is {ns}; expected 0 to {COST_NS_MAX}"));
            }
        }
        Ok(())
    }
}

impl FactorisationSection {
    /// Threads of all processes.
    #[must_use]
    pub fn workers(&self) -> u32 {
        u32::from(self.nodes) * u32::from(self.threads)
    }

    /// Keys of the table: a factor for each row and each column.
    #[must_use]
    pub fn key_count(&self) -> u32 {
        self.rows + self.columns
    }

    /// Whether what comes out is the reference's, bit for bit.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.model == ModelWord::Matrix && !self.mode.has_copies() || self.workers() == 1
    }

    /// Elements of a row of the table.
    #[must_use]
    pub const fn row_len(&self) -> u16 {
        match self.model {
            ModelWord::Rescal => self.rank * self.rank,
            _ => self.rank,
        }
    }

    fn check(&self) -> Result<(), Problem> {
        let refused = |key: &str, reason: String| refuse("factorisation", key, reason);
        for (key, value) in [("nodes", self.nodes), ("threads", self.threads)] {
            if !(1..=EACH_MAX).contains(&value) {
                return refused(key, format!("is {value}; expected 1 to {EACH_MAX}"));
            }
        }
        let workers = self.workers();
        for (key, value) in [("rows", self.rows), ("columns", self.columns)] {
            if value == 0 || value > SIDE_MAX || !value.is_multiple_of(workers) {
                let reason = format!(
                    "is {value}; expected a multiple of nodes * threads, {workers}, up to {SIDE_MAX}"
                );
                return refused(key, reason);
            }
        }
        if !(1..=RANK_MAX).contains(&self.rank) {
            return refused("rank", format!("is {}; expected 1 to {RANK_MAX}", self.rank));
        }
        if self.model == ModelWord::Complex && !self.rank.is_multiple_of(2) {
            return refused("rank", format!("is {}; complex needs an even one", self.rank));
        }
        if self.model == ModelWord::Rescal && self.row_len() > RANK_MAX {
            let reason = format!("is {}; rescal takes its square, up to {RANK_MAX}", self.rank);
            return refused("rank", reason);
        }
        let rows_min = if self.model == ModelWord::Matrix { 1 } else { ROWS_MIN };
        if self.rows < rows_min || self.columns < rows_min && self.model == ModelWord::Word2vec {
            return refused("rows", format!("is {}; this model needs {ROWS_MIN}", self.rows));
        }
        for (key, value) in [("entries", self.entries), ("epochs", self.epochs)] {
            if !(1..=ENTRIES_MAX).contains(&value) {
                return refused(key, format!("is {value}; expected 1 to {ENTRIES_MAX}"));
            }
        }
        if !(1..=IN_FLIGHT_MAX).contains(&self.in_flight) {
            let reason = format!("is {}; expected 1 to {IN_FLIGHT_MAX}", self.in_flight);
            return refused("in_flight", reason);
        }
        if self.in_flight > 1 && self.mode.has_copies() {
            return refused("in_flight", "must be 1 in a mode that has copies".to_owned());
        }
        if self.staleness > STALENESS_MAX {
            let reason = format!("is {}; expected 0 to {STALENESS_MAX}", self.staleness);
            return refused("staleness", reason);
        }
        let labels = [("dscp", Some(self.dscp)), ("bulk_dscp", self.bulk_dscp)];
        for (key, dscp) in labels.into_iter().filter_map(|(key, dscp)| Some((key, dscp?))) {
            if dscp > DSCP_MAX {
                return refused(key, format!("is {dscp}; expected 0 to {DSCP_MAX}"));
            }
        }
        if !(self.learning_rate > 0.0 && self.learning_rate <= 1.0) {
            let reason = format!("is {}; expected above 0, up to 1", self.learning_rate);
            return refused("learning_rate", reason);
        }
        Ok(())
    }
}

const fn one() -> u32 {
    1
}

const fn one_access() -> u8 {
    1
}

/// The host of the home.
pub const HOME: &str = "a0";
const EACH_MAX: u8 = 16;
/// Two of each kind of entities or words.
const ROWS_MIN: u32 = 8;
const STALENESS_MAX: u32 = 64;
/// A tenth of a second: whatever takes longer is none of these.
const COST_NS_MAX: u64 = 100_000_000;
const DSCP_MAX: u8 = 63;
/// Rows or columns of a matrix.
const SIDE_MAX: u32 = 1 << 20;
/// A factor travels in a datagram of an Ethernet's MTU, with what belongs to it.
const RANK_MAX: u16 = 128;
const ENTRIES_MAX: u32 = 1 << 26;

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"f\"\n[factorisation]\nnodes = 2\nthreads = 2\nrows = 8\n\
                        columns = 4\nrank = 3\nentries = 20\nepochs = 2\nlearning_rate = 0.1\n";

    #[test]
    fn a_scenario_has_defaults_and_a_word_for_each_mode() {
        assert!(has_factorisation("f", TEXT).unwrap());
        assert!(!has_factorisation("f", "name = \"x\"\n[job]\nworkers = 2\n").unwrap());
        let scenario = FactorisationScenario::parse("f", TEXT).unwrap();
        assert_eq!(scenario.factorisation.mode.mode(), Mode::Relocation);
        assert_eq!((scenario.lab.mtu, scenario.factorisation.workers()), (1500, 4));
        for (word, mode) in [
            ("classic", Mode::Classic),
            ("classic-fast-local", Mode::ClassicFastLocal),
            ("stale-client", Mode::StaleClient),
            ("stale-server", Mode::StaleServer),
            ("managed", Mode::Relocation),
        ] {
            let scenario = FactorisationScenario::parse("f", &format!("{TEXT}mode = \"{word}\"\n"));
            assert_eq!(scenario.unwrap().factorisation.mode.mode(), mode);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_file_line_and_field() {
        for (from, to, expected) in [
            ("nodes = 2", "nodes = 0", "factorisation.nodes"),
            ("threads = 2", "threads = 17", "factorisation.threads"),
            ("rows = 8", "rows = 6", "factorisation.rows"),
            ("columns = 4", "columns = 0", "factorisation.columns"),
            ("rank = 3", "rank = 0", "factorisation.rank"),
            ("rank = 3", "rank = 3\nmodel = \"complex\"", "factorisation.rank"),
            ("rank = 3", "rank = 12\nmodel = \"rescal\"", "factorisation.rank"),
            ("epochs = 2", "epochs = 0", "factorisation.epochs"),
            ("learning_rate = 0.1", "learning_rate = 0", "factorisation.learning_rate"),
            ("rank = 3", "rank = 3\nmode = \"stale\"", "mode"),
            ("rank = 3", "rank = 3\nstaleness = 65", "factorisation.staleness"),
            ("rank = 3", "rank = 3\nin_flight = 0", "factorisation.in_flight"),
            ("rank = 3", "rank = 3\nin_flight = 5", "factorisation.in_flight"),
            ("rank = 3", "rank = 3\nmode = \"managed\"\nin_flight = 2", "factorisation.in_flight"),
            ("rank = 3", "rank = 3\ndscp = 64", "factorisation.dscp"),
            ("rank = 3", "rank = 3\nbulk_dscp = 64", "factorisation.bulk_dscp"),
            (
                "name = \"f\"",
                "name = \"f\"\nkill = [{ box = \"w0\", in_epoch = 0 }]",
                "kill[0].box",
            ),
            (
                "name = \"f\"",
                "name = \"f\"\nkill = [{ box = \"home\", in_epoch = 2 }]",
                "kill[0].in_epoch",
            ),
            ("name = \"f\"", "name = \"f\"\nlab = { delay_ms = 1.0 }", "lab"),
            (
                "learning_rate = 0.1",
                "learning_rate = 0.1\n[costs]\nentry_ns = 1\noperation_ns = 1\nframe_ns = 1\n\
                 wake_ns = 2000000000\ndelay_ns = 1",
                "costs.wake_ns",
            ),
        ] {
            let text = TEXT.replace(from, to);
            assert_ne!(text, TEXT);
            let error = FactorisationScenario::parse("f.toml", &text).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("f.toml"), "{error}: {expected}");
        }
    }
}
