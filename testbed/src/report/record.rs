//! What every run's directory says of it: what was run, on what, and how it ended. No I/O.

use serde::{Deserialize, Serialize};

use super::machine::Machine;

/// The record of a run that ends as `O` says.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Record<O> {
    /// The run's name: the scenario's unless it was given one.
    #[serde(default)]
    pub name: String,
    /// Version of Weft.
    pub weft_version: String,
    /// Commit that the binary was built from, or `unknown`.
    pub commit: String,
    /// Start of the run, seconds since 1970.
    pub started_unix_s: u64,
    /// The command line.
    pub arguments: Vec<String>,
    /// Seed of every random choice.
    pub seed: u64,
    /// The scenario with every default filled in.
    pub configuration: serde_json::Value,
    /// Where it ran.
    pub machine: Machine,
    /// How it ended; absent while it runs and after a crash.
    pub outcome: Option<O>,
}

impl<O> Record<O> {
    /// The record of a part of this run that has just begun.
    #[must_use]
    pub fn of_part<P>(&self, name: &str, seed: u64, configuration: serde_json::Value) -> Record<P> {
        Record {
            name: name.to_owned(),
            weft_version: self.weft_version.clone(),
            commit: self.commit.clone(),
            started_unix_s: self.started_unix_s,
            arguments: self.arguments.clone(),
            seed,
            configuration,
            machine: self.machine.clone(),
            outcome: None,
        }
    }

    /// What the run is called in pictures: its name and seed.
    #[must_use]
    pub fn title(&self) -> String {
        // Records of earlier versions have no name.
        let name = if self.name.is_empty() { self.scenario() } else { &self.name };
        format!("{name}, seed {}", self.seed)
    }

    /// The scenario's name.
    #[must_use]
    pub fn scenario(&self) -> &str {
        self.configuration.get("name").and_then(serde_json::Value::as_str).unwrap_or("a run")
    }

    /// True if it is of a matrix that was factored.
    #[must_use]
    pub fn has_factorisation(&self) -> bool {
        self.configuration.get("factorisation").is_some_and(|section| !section.is_null())
    }

    /// True if the number of workers changed on the way.
    #[must_use]
    pub fn has_resizes(&self) -> bool {
        self.configuration.get("resize").is_some_and(|section| !section.is_null())
    }
}
