//! What a worker thread does, from its first factors to the end, in its order. Pure: a live process
//! carries it out with a session, a run in virtual time with engines.

use crate::scenario::{FactorisationSection, ModeWord, ModelWord};
use crate::workload::factorisation::{Entry, Matrix};

/// One thing after the other.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action<'a> {
    /// Set these keys to their first factors.
    Set(Vec<u64>),
    /// These keys are used in the clock that is so many ahead, and no longer.
    Intend(Vec<u64>, u32),
    /// Have these rows come, and wait for them.
    Localize(Vec<u64>),
    /// Have them come meanwhile.
    Begin(Vec<u64>),
    /// Pull an entry's factors, and push what a step of the descent adds.
    Learn(&'a Entry),
    /// Wait for what comes meanwhile.
    Await,
    /// Wait for all threads of all processes. Where each step is a clock, the next one begins.
    Pass,
    /// An epoch begins.
    EpochBegins,
    /// It is over.
    EpochEnds(u32),
    /// Pull all factors and keep them.
    Keep,
}

/// What a worker does.
pub(super) fn script<'a>(
    section: &'a FactorisationSection,
    matrix: &'a Matrix,
    (node, thread): (u8, u8),
) -> impl Iterator<Item = Action<'a>> + use<'a> {
    let worker = u32::from(node) * u32::from(section.threads) + u32::from(thread);
    let first = first_keys(section, node, thread).map(Action::Set).chain([Action::Pass]);
    let epoch = move |epoch| {
        let steps = (0..section.workers())
            .flat_map(move |step| step_of(section, matrix, worker, step).chain([Action::Pass]));
        [Action::EpochBegins].into_iter().chain(steps).chain([Action::EpochEnds(epoch)])
    };
    // Until no copy is as old as the last step.
    let passes = if section.mode.has_copies() { section.staleness as usize + 1 } else { 0 };
    let keeps = (worker == 0).then_some(Action::Keep);
    // Rows leave with their process: nobody goes before all are kept.
    let last = std::iter::repeat_n(Action::Pass, passes).chain(keeps).chain([Action::Pass]);
    first.chain((0..section.epochs).flat_map(epoch)).chain(last)
}

/// A thread's share of the keys that are at its process at first.
fn first_keys(
    section: &FactorisationSection,
    node: u8,
    thread: u8,
) -> impl Iterator<Item = Vec<u64>> + use<> {
    let range = u64::from(section.key_count() / u32::from(section.nodes));
    let first = u64::from(node) * range + u64::from(thread);
    let end = u64::from(node + 1) * range;
    in_calls(&(first..end).step_by(section.threads.into()).collect::<Vec<_>>())
}

/// Has the factors come that others have worked on, and goes through the entries.
fn step_of<'a>(
    section: &'a FactorisationSection,
    matrix: &'a Matrix,
    worker: u32,
    step: u32,
) -> impl Iterator<Item = Action<'a>> + use<'a> {
    let is_matrix = section.model == ModelWord::Matrix;
    let now = matrix.keys_of(worker, step);
    let mut actions = Vec::new();
    if section.mode == ModeWord::Managed {
        actions.push(Action::Intend(now, 0));
        actions.push(Action::Intend(matrix.keys_of(worker, step + 1), 1));
    } else if is_matrix || step == 0 {
        actions.extend(in_calls(&now).map(Action::Localize));
    }
    if section.mode == ModeWord::Relocation && !is_matrix {
        // While this step's entries are gone through.
        actions.extend(in_calls(&matrix.keys_of(worker, step + 1)).map(Action::Begin));
    }
    let entries = matrix.entries(worker, step).iter().map(Action::Learn);
    actions.into_iter().chain(entries).chain([Action::Await])
}

/// The keys of several calls.
pub(super) fn in_calls(keys: &[u64]) -> impl Iterator<Item = Vec<u64>> + use<> {
    let calls: Vec<Vec<u64>> = keys.chunks(KEYS_OF_CALL).map(<[u64]>::to_vec).collect();
    calls.into_iter()
}

/// Keys of one call.
const KEYS_OF_CALL: usize = 1000;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::scenario::FactorisationScenario;

    fn section(model: ModelWord, mode: ModeWord) -> FactorisationSection {
        let text = include_str!("../../../scenarios/factorisation.toml");
        let scenario = FactorisationScenario::parse("factorisation.toml", text).unwrap();
        let section = scenario.factorisation;
        FactorisationSection { model, mode, epochs: 2, ..section }
    }

    const MODES: [ModeWord; 3] = [ModeWord::Relocation, ModeWord::Managed, ModeWord::Classic];

    #[test]
    fn all_workers_pass_as_often_and_learn_each_entry_in_each_epoch() {
        for (mode, model) in MODES
            .into_iter()
            .flat_map(|mode| [(mode, ModelWord::Matrix), (mode, ModelWord::Rescal)])
        {
            let section = section(model, mode);
            let matrix = Matrix::new(&section, 1);
            let (mut passes, mut learnt, mut set) = (BTreeSet::new(), 0, Vec::new());
            for place in (0..section.nodes).flat_map(|n| (0..section.threads).map(move |t| (n, t)))
            {
                let actions: Vec<_> = script(&section, &matrix, place).collect();
                let count =
                    |what: fn(&Action<'_>) -> bool| actions.iter().filter(|a| what(a)).count();
                passes.insert(count(|action| *action == Action::Pass));
                learnt += count(|action| matches!(action, Action::Learn(_)));
                let sets = actions.iter().filter_map(|action| match action {
                    Action::Set(keys) => Some(keys),
                    _ => None,
                });
                set.extend(sets.flatten().copied());
                let keeps = count(|action| *action == Action::Keep);
                assert_eq!(keeps, usize::from(place == (0, 0)));
            }
            set.sort_unstable();
            assert_eq!(set, (0..section.key_count().into()).collect::<Vec<u64>>());
            assert_eq!(learnt, 2 * section.entries as usize);
            let copies = if mode.has_copies() { 2 } else { 0 };
            let steps = 2 * section.workers() as usize;
            assert_eq!(passes, BTreeSet::from([1 + steps + copies + 1]), "{mode:?}");
        }
    }

    #[test]
    fn a_worker_asks_for_what_it_then_learns_from() {
        let section = section(ModelWord::Rescal, ModeWord::Managed);
        let matrix = Matrix::new(&section, 1);
        let mut intended = BTreeSet::new();
        for action in script(&section, &matrix, (1, 1)) {
            match action {
                Action::Intend(keys, 0) => intended.extend(keys),
                Action::Learn(entry) => {
                    assert!(matrix.keys(entry).iter().all(|key| intended.contains(key)));
                }
                Action::Pass => intended.clear(),
                _ => {}
            }
        }
    }
}
