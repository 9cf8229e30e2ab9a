//! What a factorisation models: an entry's score from its factors, and what a step of gradient
//! descent adds to them. Pure.
//!
//! A matrix is a product of two factors. A knowledge graph is facts "subject, relation, object",
//! each true or not: entities are rows, relations columns, and the logistic of the score says how
//! true a fact is. RESCAL has a matrix for each relation, ComplEx a vector of complex numbers.
//! word2vec (skip-gram with negative samples) has pairs of words that stand beside each other or
//! not, in two vectors for each word.
//!
//! Facts and text come of a seed: entities and words are of [`KINDS`] kinds by their number. A fact
//! is true if the object's kind is the subject's and the relation's number more; words stand beside
//! those of their kind. Every second entry is false.

use crate::scenario::ModelWord;

use super::factorisation::Entry;

/// Factors of a fact.
const FACTS_FACTORS: usize = 3;
/// Kinds of entities, and of words.
const KINDS: u32 = 4;

impl ModelWord {
    /// Whether an entry has two rows and a column, or one of each.
    #[must_use]
    pub const fn has_two_rows(self) -> bool {
        matches!(self, Self::Rescal | Self::Complex)
    }

    /// What a loss may be that is not the reference's bit for bit.
    #[must_use]
    pub const fn loss_max(self, reference: f64) -> f64 {
        match self {
            Self::Matrix => reference * 1.1 + 1e-3,
            // At first it is 0.7.
            _ => reference * 1.5 + 0.05,
        }
    }

    /// Draws the rest of an entry whose row and column are drawn.
    pub(super) fn draw(
        self,
        entry: &mut Entry,
        number: u32,
        (rows, columns): (u32, u32),
        below: &mut impl FnMut(u32) -> u32,
    ) {
        let is_true = number.is_multiple_of(2);
        entry.value = if is_true { 1.0 } else { 0.0 };
        let wrong = if is_true { 0 } else { 1 + below(KINDS - 1) };
        let of_kind = |kind: u32, count: u32, drawn: u32| {
            let first = drawn / KINDS * KINDS + kind % KINDS;
            if first < count { first } else { kind % KINDS }
        };
        if self.has_two_rows() {
            let kind = entry.row + entry.column + wrong;
            entry.other = of_kind(kind, rows, below(rows));
            if entry.other == entry.row {
                // Another one of its kind, or of the first.
                entry.other = (entry.row + KINDS) % rows;
            }
        } else {
            entry.column = of_kind(entry.row + wrong, columns, below(columns));
        }
    }

    /// What a step adds to the factors.
    pub(super) fn descend(
        self,
        learning_rate: f32,
        (value, factors): (f32, &[f32]),
        row_len: usize,
        change: &mut [f32],
    ) {
        let score = self.score(factors, row_len);
        let lack = match self {
            Self::Matrix => value - score,
            _ => value - logistic(score),
        };
        change.fill(0.0);
        self.slope(factors, row_len, change);
        change.iter_mut().for_each(|term| *term *= learning_rate * lack);
    }

    /// What an entry costs: the square of what it lacks, or the logarithm of how unlikely it is.
    pub(super) fn cost(self, value: f32, factors: &[f32], row_len: usize) -> f64 {
        if factors.len() < row_len * 2 {
            return f64::INFINITY;
        }
        let score = self.score(factors, row_len);
        if self == Self::Matrix {
            return f64::from(value - score).powi(2);
        }
        let away = f64::from(if value > 0.5 { -score } else { score });
        away.max(0.0) + (-away.abs()).exp().ln_1p()
    }

    fn score(self, factors: &[f32], row_len: usize) -> f32 {
        let (first, rest) = factors.split_at(row_len);
        match self {
            Self::Matrix | Self::Word2vec => dot(first, rest),
            Self::Rescal => {
                let (second, relation) = rest.split_at(row_len);
                let rank = row_len.isqrt();
                let products = relation.chunks_exact(rank).map(|line| dot(line, &second[..rank]));
                products.zip(first).map(|(product, element)| product * element).sum()
            }
            Self::Complex => {
                let (second, relation) = rest.split_at(row_len);
                complex(first, second, relation).map(|(sum, _)| sum).sum()
            }
        }
    }

    /// How the score changes with each element of the factors.
    fn slope(self, factors: &[f32], row_len: usize, slope: &mut [f32]) {
        let (first, rest) = factors.split_at(row_len);
        let (of_first, of_rest) = slope.split_at_mut(row_len);
        match self {
            Self::Matrix | Self::Word2vec => {
                of_first.copy_from_slice(rest);
                of_rest.copy_from_slice(first);
            }
            Self::Rescal => {
                let (second, relation) = rest.split_at(row_len);
                let (of_second, of_relation) = of_rest.split_at_mut(row_len);
                let rank = row_len.isqrt();
                for line in 0..rank {
                    for place in line * rank..(line + 1) * rank {
                        let column = place % rank;
                        of_first[line] += relation[place] * second[column];
                        of_second[column] += relation[place] * first[line];
                        of_relation[place] = first[line] * second[column];
                    }
                }
            }
            Self::Complex => {
                let (second, relation) = rest.split_at(row_len);
                let (of_second, of_relation) = of_rest.split_at_mut(row_len);
                let half = row_len / 2;
                let mut all = [of_first, of_second, of_relation];
                for (place, (_, slopes)) in complex(first, second, relation).enumerate() {
                    for (of, [real, imaginary]) in all.iter_mut().zip(slopes) {
                        (of[place], of[place + half]) = (real, imaginary);
                    }
                }
            }
        }
    }
}

/// The terms of Re(s r conj(o)), each with its slopes: by s, o and r, the real part and then the
/// imaginary one. The real parts are the first half of each.
fn complex(
    s: &[f32],
    o: &[f32],
    r: &[f32],
) -> impl Iterator<Item = (f32, [[f32; 2]; FACTS_FACTORS])> {
    let half = s.len() / 2;
    (0..half).map(move |place| {
        let [a, b] = [s[place], s[place + half]];
        let [c, d] = [o[place], o[place + half]];
        let [x, y] = [r[place], r[place + half]];
        let of_s = [x * c + y * d, x * d - y * c];
        let of_o = [a * x - b * y, b * x + a * y];
        let of_r = [a * c + b * d, a * d - b * c];
        (a * of_s[0] + b * of_s[1], [of_s, of_o, of_r])
    })
}

fn logistic(score: f32) -> f32 {
    1.0 / (1.0 + (-score).exp())
}

pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODELS: [(ModelWord, usize); 4] = [
        (ModelWord::Matrix, 2),
        (ModelWord::Word2vec, 2),
        (ModelWord::Rescal, 3),
        (ModelWord::Complex, 3),
    ];

    #[test]
    fn slopes_are_those_of_the_score() {
        for (model, count) in MODELS {
            let row_len = 4;
            let factors: Vec<f32> = (0_u8..)
                .take(count * row_len)
                .map(|place| f32::from(place * 7 % 11) / 8.0 - 0.5)
                .collect();
            let mut slope = vec![0.0; factors.len()];
            model.slope(&factors, row_len, &mut slope);
            for place in 0..factors.len() {
                let mut moved = factors.clone();
                moved[place] += 0.01;
                let rise = model.score(&moved, row_len) - model.score(&factors, row_len);
                let expected = slope[place] * 0.01;
                assert!((rise - expected).abs() < 1e-5, "{model:?} {place}: {rise} {expected}");
            }
        }
    }

    #[test]
    fn a_false_entry_differs_from_a_true_one_in_its_kind_alone() {
        let mut drawn = 0;
        let mut below = |count: u32| {
            drawn += 5;
            drawn % count
        };
        for (model, _) in MODELS.into_iter().skip(1) {
            for number in 0..40 {
                let mut entry = Entry { row: number % 24, column: 3, other: 0, value: 0.0 };
                model.draw(&mut entry, number, (24, 12), &mut below);
                let Entry { row, column, other, value } = entry;
                let is_kind = match model.has_two_rows() {
                    true => (row + column) % KINDS == other % KINDS,
                    false => row % KINDS == column % KINDS,
                };
                assert!(row < 24 && column < 12 && other < 24, "{entry:?}");
                let is_moved = model.has_two_rows() && other == (row + KINDS) % 24;
                assert!(is_kind == (value > 0.5) || is_moved, "{model:?} {entry:?}");
                assert!(!model.has_two_rows() || other != row, "{entry:?}");
            }
        }
    }
}
