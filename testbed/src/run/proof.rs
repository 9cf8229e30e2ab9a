//! What a run leaves in its directory for its proof, and the proof: the run recomputed by the
//! independent reference.

use std::fs;
use std::path::{Path, PathBuf};

use super::plan::{Plan, initial_path, model_path};
use super::push::{Evidence, LIVES_MAX, PushProof, updates_path, verify_push};
use super::reduce::verify::{ReduceProof, verify};
use super::{Observed, recording_path};
use crate::scenario::{CONTROLLER, REPLICA, SERVER, Scenario};
use crate::workload::digits::{Trainer, TrainerError, model_bytes};

/// What the proof found.
#[derive(Clone, Debug, PartialEq)]
pub enum Proof {
    /// In an allreduce.
    Reduce(ReduceProof),
    /// In a run with a parameter server.
    Push(Box<PushProof>),
}

/// Why a run cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The initial model could not be made.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// It could not be written.
    #[error("writing {path}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

/// Writes what the boxes read: the model that everybody starts from, for a server.
///
/// # Errors
/// [`PrepareError`].
pub fn prepare(scenario: &Scenario, seed: u64, directory: &Path) -> Result<(), PrepareError> {
    if scenario.push.is_none() {
        return Ok(());
    }
    let trainer = Trainer::new(0, scenario.job.workers.into(), seed, &scenario.job.trainer())?;
    let path = initial_path(directory);
    fs::write(&path, model_bytes(trainer.parameters()))
        .map_err(|source| PrepareError::Io { path, source })
}

/// Proves a run from the recordings in `directory`.
///
/// # Errors
/// Why it could not be recomputed.
pub fn prove(
    scenario: &Scenario,
    plan: &Plan,
    seed: u64,
    directory: &Path,
    observed: &Observed,
) -> Result<Proof, String> {
    let Some(push) = &scenario.push else {
        let (finished, workers) = (observed.summaries.len(), plan.workers.len());
        if finished != workers {
            return Err(format!("{finished} of {workers} workers finished"));
        }
        let proof = verify(scenario, seed, usize::from(plan.elements), directory);
        return proof.map(Proof::Reduce).map_err(|error| error.to_string());
    };
    let evidence = Evidence {
        scenario,
        seed,
        directory,
        server: observed.log(SERVER).ok_or("the server left no log")?,
        replica: observed.log(REPLICA),
        controller: match push.controller {
            true => Some(observed.log(CONTROLLER).ok_or("the controller left no log")?),
            false => None,
        },
        updates: &observed.updates,
        reached: observed.reached,
    };
    let proof = verify_push(&evidence);
    proof.map(|proof| Proof::Push(Box::new(proof))).map_err(|error| error.to_string())
}

/// Removes what a run left for its proof.
pub fn remove_recordings(scenario: &Scenario, directory: &Path) {
    let ranks = 0..scenario.job.workers;
    let mut paths: Vec<PathBuf> = Vec::new();
    if scenario.push.is_some() {
        let lives = |rank| (0..=LIVES_MAX).map(move |life| updates_path(directory, rank, life));
        paths.extend(ranks.flat_map(lives));
        paths.extend([SERVER, REPLICA].map(|name| model_path(directory, name)));
        paths.push(initial_path(directory));
    } else {
        paths.extend(ranks.map(|rank| recording_path(directory, rank.into())));
    }
    for path in paths {
        // Most workers have one life, and who failed early or was killed may have left nothing.
        let _ = fs::remove_file(path);
    }
}
