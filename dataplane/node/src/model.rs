//! The models that servers and replicas begin with and leave behind: files of little-endian f32.

use std::path::Path;

use weft_config::node::{ReplicaSection, ServerSection};
use weft_engine::role::replica::ReplicaJobConfig;
use weft_engine::role::server::{ModelView, ServerJobConfig};
use weft_lane::Settings;

use crate::error::NodeError;

/// The server jobs of a node, with their initial models.
///
/// # Errors
/// [`NodeError::Model`].
pub fn server_jobs(settings: &Settings) -> Result<Vec<ServerJobConfig>, NodeError> {
    let sections = settings.config.server.iter().zip(&settings.servers);
    let job = |(section, job): (&ServerSection, &ServerJobConfig)| {
        let initial = read(section.initial_model.as_deref(), job.model.dimension)?;
        Ok(ServerJobConfig { initial, ..job.clone() })
    };
    sections.map(job).collect()
}

/// The replica jobs of a node, with their initial models.
///
/// # Errors
/// [`NodeError::Model`].
pub fn replica_jobs(settings: &Settings) -> Result<Vec<ReplicaJobConfig>, NodeError> {
    let sections = settings.config.replica.iter().zip(&settings.replicas);
    let job = |(section, job): (&ReplicaSection, &ReplicaJobConfig)| {
        let initial = read(section.initial_model.as_deref(), job.model.dimension)?;
        Ok(ReplicaJobConfig { initial, ..job.clone() })
    };
    sections.map(job).collect()
}

fn read(path: Option<&str>, dimension: usize) -> Result<Vec<f32>, NodeError> {
    let Some(path) = path.map(Path::new) else { return Ok(Vec::new()) };
    let failed = |problem: String| NodeError::Model { path: path.to_owned(), problem };
    let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let (words, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() || words.len() > dimension {
        return Err(failed(format!("it is not at most {dimension} numbers of 4 bytes")));
    }
    Ok(words.iter().map(|word| f32::from_le_bytes(*word)).collect())
}

/// Writes a model's weights where a section says.
///
/// # Errors
/// [`NodeError::Model`].
pub fn dump(path: Option<&str>, view: Option<ModelView<'_>>) -> Result<(), NodeError> {
    let (Some(path), Some(view)) = (path.map(Path::new), view) else { return Ok(()) };
    let bytes: Vec<u8> = view.weights.iter().flat_map(|weight| weight.to_le_bytes()).collect();
    let failed = |error: std::io::Error| NodeError::Model {
        path: path.to_owned(),
        problem: error.to_string(),
    };
    std::fs::write(path, bytes).map_err(failed)
}
