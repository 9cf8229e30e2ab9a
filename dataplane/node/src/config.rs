//! Reads the configuration file: [`weft_config::node`] has its keys, [`Settings`] what they mean.

use std::path::Path;

use weft_config::{ConfigError, ConfigFile};
use weft_lane::Settings;

use crate::error::NodeError;

/// Reads a configuration file.
///
/// # Errors
/// [`NodeError::Unreadable`], [`NodeError::Config`]; one line.
pub fn load(path: &Path) -> Result<Settings, NodeError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|source| NodeError::Unreadable { path: name.clone(), source })?;
    Ok(parse(&ConfigFile::new(name, text))?)
}

/// What the text of a configuration file means.
///
/// # Errors
/// File, line and field of the first mistake.
pub fn parse(file: &ConfigFile) -> Result<Settings, ConfigError> {
    Settings::new(file.read()?).map_err(|problem| file.refuse(&problem))
}
