//! Factors a matrix by gradient descent with parameter blocking, and the same in one process. Pure.
//!
//! The rows and columns of the matrix are cut into as many blocks as there are worker threads. A
//! worker has a block of rows; in each step of an epoch all work on columns that no other works on,
//! and take the next ones in the next step. So nothing that a step changes is seen by another
//! worker of that step, and the result is the same bits in whatever order the workers run: the
//! reference runs them one after the other.
//!
//! Data and first factors come of a seed: the matrix is a product of factors that are not known,
//! of which some entries are.
//!
//! The other models (`model.rs`) share factors in a step, so what comes out depends on who was
//! faster; the reference is one order of many. Their entries are at the worker that has the rows,
//! and are cut into as many steps.

use weft_engine::random::SplitMix64;

use super::model::dot;
use crate::scenario::{FactorisationSection, ModelWord};

/// A known entry of the matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// Its row.
    pub row: u32,
    /// Its column.
    pub column: u32,
    /// The second row, of a model that has two.
    pub other: u32,
    /// Its value.
    pub value: f32,
}

/// What is known of the matrix, and where it and its factors are.
#[derive(Clone, Debug)]
pub struct Matrix {
    section: FactorisationSection,
    seed: u64,
    /// By worker, then by block of columns.
    blocks: Vec<Vec<Entry>>,
}

impl Matrix {
    /// The matrix of a seed.
    #[must_use]
    pub fn new(section: &FactorisationSection, seed: u64) -> Self {
        let workers = section.workers();
        let mut matrix = Self {
            section: section.clone(),
            seed,
            blocks: vec![Vec::new(); (workers * workers) as usize],
        };
        let mut random = SplitMix64::new(seed ^ ENTRIES);
        let mut below = |count: u32| {
            let drawn = random.next_u64() % u64::from(count);
            u32::try_from(drawn).unwrap_or(0)
        };
        for number in 0..section.entries {
            let (row, column) = (below(section.rows), below(section.columns));
            let worker = row / (section.rows / workers);
            let mut entry = Entry { row, column, other: row, value: 0.0 };
            let block = match section.model {
                ModelWord::Matrix => {
                    entry.value =
                        dot(&matrix.draw(TRUE_ROWS, row), &matrix.draw(TRUE_COLUMNS, column));
                    column / (section.columns / workers)
                }
                model => {
                    model.draw(&mut entry, number, (section.rows, section.columns), &mut below);
                    number % workers
                }
            };
            matrix.blocks[(worker * workers + block) as usize].push(entry);
        }
        matrix
    }

    /// The entries that a worker goes through in a step of an epoch.
    #[must_use]
    pub fn entries(&self, worker: u32, step: u32) -> &[Entry] {
        let workers = self.section.workers();
        &self.blocks[(worker * workers + (worker + step) % workers) as usize]
    }

    /// The keys that a worker works on in a step of an epoch and that others work on in others.
    #[must_use]
    pub fn keys_of(&self, worker: u32, step: u32) -> Vec<u64> {
        let workers = self.section.workers();
        if self.section.model != ModelWord::Matrix {
            let entries = self.entries(worker, step).iter();
            let mut keys: Vec<u64> = entries.flat_map(|entry| self.keys(entry)).collect();
            keys.sort_unstable();
            keys.dedup();
            return keys;
        }
        let count = self.section.columns / workers;
        let first = (worker + step) % workers * count;
        (first..first + count).map(|column| self.column_key(column)).collect()
    }

    /// The keys of an entry's factors.
    #[must_use]
    pub fn keys(&self, entry: &Entry) -> Vec<u64> {
        let (row, column) = (self.row_key(entry.row), self.column_key(entry.column));
        match self.section.model.has_two_rows() {
            true => vec![row, self.row_key(entry.other), column],
            false => vec![row, column],
        }
    }

    /// The key of a row's factor. Keys lie so that a table which is cut into equal ranges has each
    /// row at the process that works on it, and as many columns at each.
    #[must_use]
    pub fn row_key(&self, row: u32) -> u64 {
        self.key(row, self.section.rows / u32::from(self.section.nodes), 0)
    }

    /// The key of a column's factor.
    #[must_use]
    pub fn column_key(&self, column: u32) -> u64 {
        let nodes = u32::from(self.section.nodes);
        self.key(column, self.section.columns / nodes, self.section.rows / nodes)
    }

    fn key(&self, index: u32, per_node: u32, before: u32) -> u64 {
        let range = self.section.key_count() / u32::from(self.section.nodes);
        u64::from(index / per_node * range + before + index % per_node)
    }

    /// The factor that a key has at first.
    #[must_use]
    pub fn first_factor(&self, key: u64) -> Vec<f32> {
        self.draw(FIRST, u32::try_from(key).unwrap_or(u32::MAX))
    }

    fn draw(&self, kind: u64, index: u32) -> Vec<f32> {
        let mut random = SplitMix64::new(self.seed ^ kind ^ u64::from(index));
        let mut draw = || {
            let sixteen = u16::try_from(random.next_u64() >> 48).unwrap_or(0);
            f32::from(sixteen) / 65_536.0 - 0.5
        };
        (0..self.section.row_len()).map(|_| draw()).collect()
    }

    /// All factors after all epochs, by key, as one process computes them.
    #[must_use]
    pub fn reference(&self) -> Vec<f32> {
        let row_len = usize::from(self.section.row_len());
        let keys = u64::from(self.section.key_count());
        let mut factors: Vec<f32> = (0..keys).flat_map(|key| self.first_factor(key)).collect();
        let at = |key: u64| usize::try_from(key).unwrap_or(usize::MAX) * row_len;
        let (mut found, mut change) = (Vec::new(), Vec::new());
        let workers = self.section.workers();
        for step in (0..self.section.epochs).flat_map(|_| 0..workers) {
            for worker in 0..workers {
                for entry in self.entries(worker, step) {
                    let keys = self.keys(entry);
                    found.clear();
                    keys.iter().for_each(|key| found.extend(&factors[at(*key)..at(key + 1)]));
                    change.resize(found.len(), 0.0);
                    self.descend(entry.value, &found, &mut change);
                    for (key, term) in keys.iter().zip(change.chunks_exact(row_len)) {
                        let factor = &mut factors[at(*key)..at(key + 1)];
                        factor.iter_mut().zip(term).for_each(|(element, term)| *element += term);
                    }
                }
            }
        }
        factors
    }

    /// What a step on one entry adds to its factors, which are one after the other, as are the
    /// changes.
    pub fn descend(&self, value: f32, factors: &[f32], change: &mut [f32]) {
        let Self { section, .. } = self;
        let row_len = usize::from(section.row_len());
        section.model.descend(section.learning_rate, (value, factors), row_len, change);
    }

    /// The mean of what all known entries cost, with these factors by key: of a matrix the square
    /// of what they lack.
    #[must_use]
    pub fn loss(&self, factors: &[f32]) -> f64 {
        let row_len = usize::from(self.section.row_len());
        let mut found = Vec::new();
        let costs = self.blocks.iter().flatten().map(|entry| {
            found.clear();
            for key in self.keys(entry) {
                let place = usize::try_from(key).unwrap_or(usize::MAX).saturating_mul(row_len);
                let factor = factors.get(place..place.saturating_add(row_len));
                found.extend(factor.unwrap_or_default());
            }
            self.section.model.cost(entry.value, &found, row_len)
        });
        costs.sum::<f64>() / f64::from(self.section.entries)
    }
}

/// What is drawn: apart from each other in the upper half.
const ENTRIES: u64 = 1 << 32;
const TRUE_ROWS: u64 = 2 << 32;
const TRUE_COLUMNS: u64 = 3 << 32;
const FIRST: u64 = 4 << 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::ModeWord;

    fn section(nodes: u8, threads: u8) -> FactorisationSection {
        FactorisationSection {
            nodes,
            threads,
            mode: ModeWord::Relocation,
            in_flight: 1,
            staleness: 1,
            dscp: 0,
            bulk_dscp: None,
            model: ModelWord::Matrix,
            rows: 24,
            columns: 12,
            rank: 4,
            entries: 300,
            epochs: 30,
            learning_rate: 0.2,
        }
    }

    #[test]
    fn every_entry_is_gone_through_once_an_epoch_and_nobody_shares_a_factor_in_a_step() {
        let matrix = Matrix::new(&section(2, 2), 7);
        let mut count = 0;
        for step in 0..4 {
            let mut columns = Vec::new();
            for worker in 0..4 {
                let own = matrix.keys_of(worker, step);
                for entry in matrix.entries(worker, step) {
                    assert_eq!(entry.row / 6, worker);
                    assert!(own.contains(&matrix.column_key(entry.column)));
                    count += 1;
                }
                columns.extend(own);
            }
            columns.sort_unstable();
            columns.dedup();
            assert_eq!(columns.len(), 12, "each column is at one worker");
        }
        assert_eq!(count, 300);
    }

    #[test]
    fn each_key_is_one_factor_and_a_process_has_its_rows() {
        let matrix = Matrix::new(&section(3, 2), 7);
        let rows = (0..24).map(|row| matrix.row_key(row));
        let columns = (0..12).map(|column| matrix.column_key(column));
        let mut keys: Vec<u64> = rows.chain(columns).collect();
        keys.sort_unstable();
        assert_eq!(keys, (0..36).collect::<Vec<_>>());
        for row in 0..24 {
            assert_eq!(matrix.row_key(row) / 12, u64::from(row / 8), "twelve keys a process");
        }
    }

    #[test]
    fn the_loss_falls_and_another_seed_is_another_matrix() {
        let matrix = Matrix::new(&section(1, 2), 7);
        let first: Vec<f32> = (0..36).flat_map(|key| matrix.first_factor(key)).collect();
        let last = matrix.reference();
        let losses = [matrix.loss(&first), matrix.loss(&last)];
        assert!(losses[1] < losses[0] / 10.0, "{losses:?}");
        let other = Matrix::new(&section(1, 2), 8);
        assert!(other.loss(&last) > losses[0] / 10.0);
    }

    #[test]
    fn each_model_as_shipped_is_learnt() {
        use crate::scenario::FactorisationScenario;
        for (text, least) in [
            (include_str!("../../scenarios/rescal.toml"), 0.5),
            (include_str!("../../scenarios/complex.toml"), 0.5),
            (include_str!("../../scenarios/word2vec.toml"), 0.5),
        ] {
            let scenario = FactorisationScenario::parse("shipped", text).unwrap();
            let matrix = Matrix::new(&scenario.factorisation, 1);
            let keys = 0..u64::from(scenario.factorisation.key_count());
            let first: Vec<f32> = keys.flat_map(|key| matrix.first_factor(key)).collect();
            let (before, after) = (matrix.loss(&first), matrix.loss(&matrix.reference()));
            println!("{}: {before} {after}", scenario.name);
            assert!(after < before * least, "{}: {before} {after}", scenario.name);
        }
    }
}
