//! The configuration files of nodes and of the controller: TOML, one struct per section, whose
//! comments are the manual. Text in, text out; no file is opened here.
//!
//! Reading goes in steps: [`ConfigFile::read`] makes the types of a text (shape), their `check`
//! finds values that make no sense by themselves, and who uses them judges the rest: `weft-lane` a
//! node's, `weft-controller-engine` a controller's. Whichever step refuses, the error names file,
//! line and field ([`ConfigError`]). An unknown key is an error.
//!
//! ```
//! use weft_config::ConfigFile;
//! use weft_config::node::NodeConfig;
//!
//! let file = ConfigFile::new("node.toml", "[port]\nio = \"udp\"\nip = \"10.0.0.1/24\"\n");
//! let config: NodeConfig = file.read()?;
//! assert_eq!(config.port.mtu, 1500);
//! config.check().map_err(|problem| file.refuse(&problem))?;
//! # Ok::<(), weft_config::ConfigError>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(feature = "text")]
#[macro_use]
mod text;

pub mod controller;
mod format;
pub mod node;
mod problem;
mod tls;

pub use format::StatsFormat;
pub use problem::Problem;
#[cfg(feature = "text")]
pub use text::{ConfigError, ConfigFile, to_toml};
pub use tls::TlsSection;

/// The path of a file, as a configuration names it.
pub type FilePath = alloc::string::String;
