//! The proof of a push run: recomputes the server's model from the recorded updates in the decided
//! sequence, by the independent reference, and follows the replica behind it.
//!
//! What must hold: every committed member of a group is exactly one recorded update, and every
//! update whose worker was told "committed" is in the sequence at that version (I1); the sequence
//! is as the controller had it installed (I3); delays are at most `tau_max` (I4); the final model
//! has the reference's bits; the replica took the same decisions with the same norms, and its
//! distance stayed below the bound while that was declared held (I5). Loss and accuracy over time
//! are those of the reference's models, so that measuring them costs the run nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::curve::{Curve, CurvePoint};
use super::installs::contradictions;
use super::log::{LogLine, LoggedDecision};
use super::recording::{UpdateReader, read_model, updates_path};
use super::replica::{DivergencePoint, Follower};
use super::sequence::{Decided, Sequence};
use super::succession::Succession;
use crate::run::plan::model_path;
use crate::run::{RecordingError, UpdateMessage, UpdateOutcome};
use crate::scenario::{REPLICA, SERVER, Scenario};
use crate::workload::digits::{Trainer, TrainerError, model_bytes, sha256_hex};
use crate::workload::push_reference::{LengthError, PushReference, ReferenceGroup};

/// What there is to judge a run by.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// What was asked for.
    pub scenario: &'a Scenario,
    /// Seed of data and model.
    pub seed: u64,
    /// Where the recordings are.
    pub directory: &'a Path,
    /// The server's log.
    pub server: &'a [LogLine],
    /// The replica's.
    pub replica: Option<&'a [LogLine]>,
    /// The controller's; `None` where nobody plans.
    pub controller: Option<&'a [LogLine]>,
    /// What workers said of their updates, with rank and life.
    pub updates: &'a [(u8, u32, UpdateMessage)],
    /// The version and loss that ended a run which trains until a loss.
    pub reached: Option<(u64, f64)>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PushProof {
    /// The server's decisions.
    pub decided: Vec<Decided>,
    /// Delays of the committed updates, in the order of their commits.
    pub delays: Vec<u64>,
    /// Where each committed update is in the recordings: index of the decision, rank, life, number.
    pub places: Vec<(usize, u8, u32, u64)>,
    /// The model over time.
    pub curve: Vec<CurvePoint>,
    /// Parameters of the server's final model that differ from the reference's; `None`: there is
    /// no model to compare, for its holder did not come to its end.
    pub wrong_parameters: Option<u64>,
    /// SHA-256 of the reference's model.
    pub model_sha256: String,
    /// The replica behind the server.
    pub divergence: Vec<DivergencePoint>,
    /// Whether the replica has the server's bits at equal order numbers; `None` without one, or
    /// where what it left does not show it.
    pub replica_identical: Option<bool>,
    /// When the replica took the server's place, and the first order number that it had not
    /// applied.
    pub promoted: Option<(u64, u64)>,
    /// Everything that contradicts what the run promises.
    pub problems: Vec<String>,
}

/// Why a run could not be recomputed.
#[derive(Debug, thiserror::Error)]
pub enum PushVerifyError {
    /// A recording is incomplete.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A recording does not fit the model.
    #[error(transparent)]
    Length(#[from] LengthError),
    /// The initial model could not be made.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
}

/// Recomputes a run.
///
/// # Errors
/// When it cannot be: a recording is missing or does not fit. What is *wrong* with the run is in
/// [`PushProof::problems`].
pub fn verify_push(evidence: &Evidence<'_>) -> Result<PushProof, PushVerifyError> {
    let job = &evidence.scenario.job;
    let workers = usize::from(job.workers);
    let trainer = Trainer::new(0, workers, evidence.seed, &job.trainer())?;
    let elements = trainer.parameter_count();
    let mut recordings = Recordings::open(evidence, elements)?;
    let mut succession = Succession::new(evidence.server, evidence.replica.unwrap_or_default());
    let sequence = Sequence::new("server", &succession.server);
    let holder = if succession.promoted.is_some() { REPLICA } else { SERVER };
    let model = read_model(&model_path(evidence.directory, holder))?;
    // A process that did not come to its end left no model, and its log may lack its last lines.
    let logged = match model {
        Some(_) => u64::MAX,
        None => sequence.decided.last().map_or(0, |last| last.version),
    };
    if model.is_none() {
        succession.cut(sequence.decided.last().map(|last| last.order));
    }
    let mut reference = PushReference::new(job.momentum, trainer.parameters());
    let problems = [sequence.problems.clone(), contradictions(evidence, &sequence)].concat();
    let mut proof = PushProof { problems, promoted: succession.promoted, ..PushProof::default() };
    let mut follower = evidence.replica.map(|_| {
        let (server, replica) = (&succession.followed, &succession.replica);
        Follower::new(job.momentum.into(), server, replica, reference.model())
    });
    let followed_below = succession.promoted.map_or(u64::MAX, |(_, applied)| applied);
    let commits = sequence.committed().count();
    let began_ns = evidence.server.first().map_or(0, |line| line.t_ns);
    let reached = evidence.reached.filter(|(version, _)| *version <= logged);
    let mut curve = Curve::new(trainer, began_ns, commits, reached);
    let tau_max =
        evidence.scenario.push.as_ref().map_or(u64::MAX, |push| u64::from(push.tau_max(job)));
    for (index, decided) in sequence.decided.iter().enumerate() {
        if decided.decision == LoggedDecision::Committed {
            commit(&mut proof, &mut reference, &mut recordings, (index, decided), tau_max)?;
            curve.commit(decided.t_ns, decided.version, reference.model());
        }
        if let Some(follower) = follower.as_mut().filter(|_| decided.order < followed_below) {
            follower.server_decided(decided.order, reference.model());
        }
    }
    recordings.find_lost(logged, &mut proof.problems);
    proof.curve = curve.finish(&mut proof.problems);
    proof.model_sha256 = sha256_hex(&model_bytes(reference.model()));
    proof.wrong_parameters = model.map(|model| reference.wrong_parameters(&model));
    proof.problems.extend(match proof.wrong_parameters {
        None => Some(no_model(holder)),
        Some(0) => None,
        Some(wrong) => Some(format!("{wrong} parameters differ from the reference")),
    });
    if let Some(follower) = follower {
        let div_max = evidence.scenario.push.as_ref().and_then(|push| push.div_max);
        let replica = follower.finish(div_max);
        let mut problems = replica.problems;
        let own = Sequence::new("replica", &succession.replica);
        problems.extend(compare(&sequence, &own, snapshots_max(evidence.scenario)));
        let model = read_model(&model_path(evidence.directory, REPLICA))?;
        let last = |sequence: &Sequence| sequence.decided.last().map(|decided| decided.order);
        // A promoted replica's model is judged as the server's.
        let is_judged = last(&own) == last(&sequence) && proof.promoted.is_none();
        let wrong = model.as_ref().map(|model| reference.wrong_parameters(model));
        let is_shown = wrong.is_some() && proof.wrong_parameters.is_some();
        if let Some(wrong @ 1..) = wrong.filter(|_| is_judged && is_shown) {
            problems.push(format!("replica: {wrong} parameters differ from the server's"));
        }
        proof.replica_identical = match problems.is_empty() {
            true => is_shown.then_some(true),
            false => Some(false),
        };
        if wrong.is_none() && holder == SERVER {
            problems.push(no_model(REPLICA));
        }
        proof.divergence = replica.points;
        proof.problems.extend(problems);
    }
    proof.decided = sequence.decided;
    Ok(proof)
}

/// Takes one committed group into the reference.
fn commit(
    proof: &mut PushProof,
    reference: &mut PushReference,
    recordings: &mut Recordings,
    (index, decided): (usize, &Decided),
    tau_max: u64,
) -> Result<(), PushVerifyError> {
    let mut updates = Vec::with_capacity(decided.members.len());
    for (position, member) in decided.members.iter().enumerate() {
        let Some(found) = recordings.take(member.rank, member.version, decided.version)? else {
            proof.problems.push(format!(
                "order {}: no recorded update of rank {} fits its commit at version {}",
                decided.order, member.rank, decided.version
            ));
            continue;
        };
        let delay = decided.delay(position, found.version);
        if delay > tau_max {
            let order = decided.order;
            proof.problems.push(format!("order {order}: delay {delay} above tau_max {tau_max}"));
        }
        proof.delays.push(delay);
        proof.places.push((index, member.rank, found.life, found.number));
        updates.push(found.values);
    }
    // Spelt out here and not taken from the quantiser: no contribution may exceed an equal share
    // of the largest sum of the group as it was granted.
    let clamp_limit = clamp_limit(decided.granted);
    let group = ReferenceGroup { updates: &updates, exponent: decided.exponent, clamp_limit };
    let norm = reference.commit(&group)?;
    if (norm - decided.norm).abs() > NORM_TOLERANCE * norm.max(1e-30) {
        let (order, said) = (decided.order, decided.norm);
        proof.problems.push(format!("order {order}: the server says norm {said}, it is {norm}"));
    }
    Ok(())
}

fn clamp_limit(members: usize) -> i32 {
    i32::MAX / i32::try_from(members.max(1)).unwrap_or(i32::MAX)
}

fn no_model(name: &str) -> String {
    format!("the {name} left no model, which it writes at its end: nothing to compare")
}

/// Whether the replica applied what the server decided, in the same sequence, with the same bits.
/// A replica that found its server, or itself, restarted took a version of the server's and went on
/// behind it: at most so often.
fn compare(server: &Sequence, replica: &Sequence, mut snapshots_max: usize) -> Vec<String> {
    let mut problems = Vec::new();
    let by_order: HashMap<u64, &Decided> =
        server.decided.iter().map(|decided| (decided.order, decided)).collect();
    let mut next = None;
    for own in &replica.decided {
        if let Some(next) = next
            && own.order != next
            && !(own.is_hole() && own.order > next)
        {
            let order = own.order;
            if order > next && snapshots_max > 0 {
                snapshots_max -= 1;
            } else {
                problems.push(format!("replica: order {order} applied out of sequence"));
            }
        }
        next = Some(own.order + 1);
        let Some(decided) = by_order.get(&own.order) else {
            problems.push(format!("replica: order {} was never decided", own.order));
            continue;
        };
        let mask = |decided: &Decided| {
            decided.members.iter().fold(0_u64, |mask, member| mask | 1 << member.rank)
        };
        // A log knows the version from commits alone, so a VOID behind a snapshot has an old one.
        let same = own.decision == decided.decision
            && (own.version == decided.version || decided.decision != LoggedDecision::Committed)
            && mask(own) == mask(decided)
            && own.norm.to_bits() == decided.norm.to_bits()
            && own.momentum_norm.to_bits() == decided.momentum_norm.to_bits();
        if !same {
            problems.push(format!("replica: order {} differs from the server's", own.order));
        }
    }
    problems
}

/// Snapshots that a run's restarts make a replica take.
fn snapshots_max(scenario: &Scenario) -> usize {
    let causes = |name: &str| name == SERVER || name == REPLICA;
    scenario.restart.iter().filter(|restart| causes(&restart.name)).count()
}

/// One recorded update that was found.
struct Found {
    life: u32,
    number: u64,
    version: u64,
    values: Vec<f32>,
}

/// All workers' recordings, and what of them is in the model.
struct Recordings {
    lives: HashMap<u8, Vec<Life>>,
}

/// One life of a worker: its file, its updates with what it was told, and the first that may
/// still be committed.
struct Life {
    life: u32,
    reader: UpdateReader,
    updates: Vec<UpdateRecord>,
    next: usize,
}

/// A recorded update, what its worker was told, and whether it is in the sequence.
struct UpdateRecord {
    number: u64,
    version: u64,
    outcome: UpdateOutcome,
    committed_version: u64,
    is_taken: bool,
}

impl Recordings {
    fn open(evidence: &Evidence<'_>, elements: usize) -> Result<Self, RecordingError> {
        let told: HashMap<(u8, u32, u64), (UpdateOutcome, u64)> = evidence
            .updates
            .iter()
            .map(|(rank, life, said)| {
                ((*rank, *life, said.number), (said.outcome, said.committed_version))
            })
            .collect();
        let mut lives = HashMap::new();
        for rank in 0..evidence.scenario.job.workers {
            let mut of_rank = Vec::new();
            for (life, path) in existing(evidence.directory, rank) {
                let mut reader = UpdateReader::open(&path, elements)?;
                let updates = reader
                    .updates()?
                    .into_iter()
                    .map(|recorded| {
                        let key = (rank, life, recorded.number);
                        let (outcome, committed_version) =
                            told.get(&key).copied().unwrap_or_default();
                        let (number, version) = (recorded.number, recorded.version);
                        UpdateRecord {
                            number,
                            version,
                            outcome,
                            committed_version,
                            is_taken: false,
                        }
                    })
                    .collect();
                of_rank.push(Life { life, reader, updates, next: 0 });
            }
            lives.insert(rank, of_rank);
        }
        Ok(Self { lives })
    }

    /// The update of `rank` that the group of `committed_version` took in.
    fn take(
        &mut self,
        rank: u8,
        version: Option<u64>,
        committed_version: u64,
    ) -> Result<Option<Found>, RecordingError> {
        for life in self.lives.entry(rank).or_default() {
            let fits = |told: &UpdateRecord| {
                version.is_none_or(|version| version == told.version)
                    && match told.outcome {
                        UpdateOutcome::Committed => told.committed_version == committed_version,
                        UpdateOutcome::Unknown => true,
                        UpdateOutcome::Dropped | UpdateOutcome::Void => false,
                    }
            };
            let rest = life.updates.get(life.next..).unwrap_or_default();
            if let Some(offset) = rest.iter().position(fits) {
                let index = life.next + offset;
                life.next = index + 1;
                let values = life.reader.update(index)?;
                let told = &mut life.updates[index];
                told.is_taken = true;
                let (number, version) = (told.number, told.version);
                return Ok(Some(Found { life: life.life, number, version, values }));
            }
        }
        Ok(None)
    }

    /// Updates in the model by their workers' answers, but not in the sequence, which is known
    /// up to version `logged`.
    fn find_lost(&self, logged: u64, problems: &mut Vec<String>) {
        let mut ranks: Vec<_> = self.lives.iter().collect();
        ranks.sort_unstable_by_key(|(rank, _)| **rank);
        for (rank, lives) in ranks {
            for life in lives {
                for told in &life.updates {
                    let is_known = told.committed_version <= logged;
                    if told.outcome == UpdateOutcome::Committed && !told.is_taken && is_known {
                        problems.push(format!(
                            "rank {rank} was told that its update {} is in version {}, which took \
                             in none of it",
                            told.number, told.committed_version
                        ));
                    }
                }
            }
        }
    }
}

/// The recordings of a worker's lives that are there.
fn existing(directory: &Path, rank: u8) -> Vec<(u32, PathBuf)> {
    (0..LIVES_MAX)
        .map(|life| (life, updates_path(directory, rank, life)))
        .filter(|(_, path)| path.is_file())
        .collect()
}

/// The server may add squares in another order than the reference.
const NORM_TOLERANCE: f64 = 1e-5;
/// Lives of one worker in a run.
pub const LIVES_MAX: u32 = 16;

#[cfg(test)]
mod tests;
