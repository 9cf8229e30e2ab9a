//! The models that a node starts with: reads what `initial` names.

use std::path::{Path, PathBuf};

use weft_engine::role::replica::ReplicaJobConfig;
use weft_engine::role::server::ServerJobConfig;

use crate::config::Settings;
use crate::error::NodeError;

/// The jobs of a server, and of a replica, with their initial models.
pub(crate) type Models = (Vec<ServerJobConfig>, Vec<ReplicaJobConfig>);

/// Reads the initial models.
///
/// # Errors
/// [`NodeError::Initial`] when a file cannot be read or does not fit its job.
pub(crate) fn read(settings: &Settings) -> Result<Models, NodeError> {
    let (mut servers, mut replicas) = (settings.servers.clone(), settings.replicas.clone());
    for (job, section) in servers.iter_mut().zip(&settings.config.server) {
        job.initial = initial(section.initial.as_deref(), section.dimension)?;
    }
    for (job, section) in replicas.iter_mut().zip(&settings.config.replica) {
        job.initial = initial(section.initial.as_deref(), section.dimension)?;
    }
    Ok((servers, replicas))
}

fn initial(path: Option<&Path>, dimension: usize) -> Result<Vec<f32>, NodeError> {
    let Some(path) = path else { return Ok(Vec::new()) };
    let failed = |problem: String| NodeError::Initial { path: PathBuf::from(path), problem };
    let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    if bytes.len() != dimension * 4 {
        let len = bytes.len();
        return Err(failed(format!("has {len} bytes; {dimension} parameters have 4 each")));
    }
    let word = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    Ok(bytes.chunks_exact(4).map(word).collect())
}
