//! Why the controller could not run. Each message says what was attempted and what to do.

use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;
use weft_config::{ConfigError, ConfigFile, Problem};

/// Why the controller could not run.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// The configuration cannot be read.
    #[error("cannot read {path}: {source}; give --config a readable file")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is not TOML, has a key too many, too few, or of the wrong type, or a value that makes no
    /// sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A value makes no sense; [`DaemonError::in_file`] finds where it stands.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// The state file cannot be read or is not one.
    #[error("cannot use the state in {path}: {problem}; move it away to begin without it")]
    State {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// Another controller has the state file.
    #[error("another weft-controller has the state in {path}; end that one first", path = .path.display())]
    StateTaken {
        /// The file.
        path: PathBuf,
    },
    /// The state file cannot be written.
    #[error("cannot write the state to {path}: {source}; make its directory writable")]
    SaveState {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The log of installs cannot be opened.
    #[error("cannot write events to {path}: {source}; make its directory writable")]
    Events {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A socket cannot be opened.
    #[error("cannot listen on {addr} for {what}: {source}; give another address")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// gRPC or metrics.
        what: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The runtime or a signal handler.
    #[error("cannot {what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The gRPC server ended by itself.
    #[error("the gRPC server ended: {0}")]
    Serve(#[from] tonic::transport::Error),
}

impl DaemonError {
    /// The error with the line of the key that is at fault.
    #[must_use]
    pub fn in_file(self, file: &ConfigFile) -> Self {
        match self {
            Self::Problem(problem) => Self::Config(file.refuse(&problem)),
            other => other,
        }
    }

    /// Exit status: 2 for usage and configuration, 3 where this machine cannot run it.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Unreadable { .. } | Self::Config(_) | Self::Problem(_) => 2,
            _ => 3,
        }
    }
}
