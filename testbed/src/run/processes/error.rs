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
    /// There is no switch.
    #[error(
        "no simple_switch_grpc found on PATH or in WEFT_SIMPLE_SWITCH: build BMv2 from its public \
         source (docs/switch.md), or run without --switch"
    )]
    NoSwitch,
    /// An interface hands on packets that are none yet.
    #[error(
        "{feature} of {interface} stays on, so the switch would see packets without checksums or \
         of 64 KiB: switch it off with `ethtool -K`"
    )]
    OffloadOn {
        /// The interface.
        interface: String,
        /// The offload, in ethtool's words.
        feature: String,
    },
    /// Jobs wait for slots under a policy that cannot be followed.
    #[error("which job may run: {problem}")]
    Order {
        /// Why.
        problem: String,
    },
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
    /// A box has ended, and nobody of the run had ended it.
    #[error("`{name}` ended without a word: {status}")]
    BoxEnded {
        /// Its name.
        name: String,
        /// How.
        status: String,
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
