//! Why a run's processes could not do their work, and what to do.

use std::path::PathBuf;

/// Why a run's processes could not do their work.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// There is no `weft-node`.
    #[error(
        "no weft-node found beside this program, on PATH or in WEFT_NODE: build it with `cargo \
         build --release -p weft-node --features dpdk`"
    )]
    NoNode,
    /// There is no `weft-controller`.
    #[error(
        "no weft-controller found beside this program, on PATH or in WEFT_CONTROLLER: build it \
         with `cargo build --release -p weft-controller`"
    )]
    NoController,
    /// A link did not take its new rate.
    #[error("giving the link of {name} another rate: {problem}")]
    RateStep {
        /// The host.
        name: String,
        /// What `tc` said.
        problem: String,
    },
    /// It is of another version, so its configuration or protocol may differ.
    #[error("{path} is {found}, this is {wanted}: build both from one tree", path = .path.display())]
    NodeVersion {
        /// The program.
        path: PathBuf,
        /// What it says of itself.
        found: String,
        /// This version.
        wanted: &'static str,
    },
    /// A process could not be started or talked to.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// The kernel's answer.
        #[source]
        source: std::io::Error,
    },
    /// A box left a log that makes no sense.
    #[error("{path}: {problem}", path = .path.display())]
    Log {
        /// The log.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A box ended or said nothing at its start.
    #[error("{name} did not become ready: {said}")]
    BoxNotReady {
        /// Its name.
        name: String,
        /// The last thing it said.
        said: String,
    },
    /// SIGINT, SIGTERM or SIGHUP.
    #[error("the run was broken off")]
    Interrupted,
}
