//! Non-negative least squares for a handful of unknowns.
//!
//! The best non-negative coefficients are the plain least squares of the columns that they use, so
//! every set of columns is tried, and the best that needs no negative coefficient is the answer:
//! exact, without a tolerance for when to stop, and never round in a circle. Lawson and Hanson's
//! walk ("Solving Least Squares Problems", 1974, chapter 23) pays where columns are many; here they
//! are at most [`COLUMNS_MAX`]. The crate `nnls` 0.5 needs `std`, ndarray and its dependencies.
//!
//! Invariant: no other non-negative coefficients leave a smaller residual (the test asks for the
//! conditions of Karush, Kuhn and Tucker).

use weft_plan::float::sqrt;

/// The most unknowns of a problem.
pub const COLUMNS_MAX: usize = 6;

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit<const N: usize> {
    /// Each at least 0.
    pub coefficients: [f64; N],
    /// The root of the mean of the squared residuals, in the unit of the values.
    pub residual_rms: f64,
}

impl<const N: usize> Fit<N> {
    /// What the fit says of a row.
    #[must_use]
    pub fn predict(&self, row: &[f64; N]) -> f64 {
        row.iter().zip(&self.coefficients).map(|(x, c)| x * c).sum()
    }
}

/// Minimises the squares of `row · coefficients - value` over all rows, no coefficient below 0.
/// `None` without rows, or if a number is not finite.
///
/// Of columns that say the same, the first ones are used. Work grows with 2 to the power of `N`.
#[must_use]
pub fn solve<const N: usize>(rows: &[([f64; N], f64)]) -> Option<Fit<N>> {
    const { assert!(N <= COLUMNS_MAX, "too many columns to try every set of them") };
    let numbers =
        |(row, value): &([f64; N], f64)| row.iter().all(|x| x.is_finite()) && value.is_finite();
    if rows.is_empty() || !rows.iter().all(numbers) {
        return None;
    }
    let mut best = of_columns(rows, 0)?;
    for count in 1..=N {
        let sets = (0..1_u32 << N).filter(|set| set.count_ones() as usize == count);
        for fit in sets.filter_map(|set| of_columns(rows, set)) {
            let is_feasible = fit.coefficients.iter().all(|c| *c >= 0.0);
            if is_feasible && fit.residual_rms < best.residual_rms {
                best = fit;
            }
        }
    }
    Some(best)
}

/// The least squares of the columns in `set`, by normal equations of columns of length 1 that were
/// made orthogonal one after the other. `None` if one of them follows from others.
fn of_columns<const N: usize>(rows: &[([f64; N], f64)], set: u32) -> Option<Fit<N>> {
    let mut triangle = [[0.0; N]; N];
    let mut projections = [0.0; N];
    let chosen = |column: usize| set >> column & 1 == 1;
    // The part of a row's entry that no chosen column before it explains, over and over from the
    // rows, so that no memory is taken: columns are few.
    let mut directions = [[0.0; N]; N];
    let along = |direction: &[f64; N], row: &[f64; N]| -> f64 {
        direction.iter().zip(row).map(|(d, x)| d * x).sum()
    };
    for column in (0..N).filter(|column| chosen(*column)) {
        let mut direction = [0.0; N];
        direction[column] = 1.0;
        let full = length(rows.iter().map(|(row, _)| row[column]));
        // Twice is enough (Kahan, in Parlett's "The Symmetric Eigenvalue Problem").
        for _ in 0..2 {
            for before in (0..column).filter(|before| chosen(*before)) {
                let share: f64 = rows
                    .iter()
                    .map(|(row, _)| along(&directions[before], row) * along(&direction, row))
                    .sum();
                triangle[before][column] += share;
                for (d, b) in direction.iter_mut().zip(directions[before]) {
                    *d -= share * b;
                }
            }
        }
        let rest = length(rows.iter().map(|(row, _)| along(&direction, row)));
        if rest <= DEPENDENT_BELOW * full {
            return None;
        }
        direction.iter_mut().for_each(|d| *d /= rest);
        triangle[column][column] = rest;
        projections[column] = rows.iter().map(|(row, value)| along(&direction, row) * value).sum();
        directions[column] = direction;
    }
    let mut coefficients = [0.0; N];
    for column in (0..N).rev().filter(|column| chosen(*column)) {
        let later: f64 = (column + 1..N).map(|l| triangle[column][l] * coefficients[l]).sum();
        coefficients[column] = (projections[column] - later) / triangle[column][column];
    }
    let mut fit = Fit { coefficients, residual_rms: 0.0 };
    let residual = length(rows.iter().map(|(row, value)| fit.predict(row) - value));
    fit.residual_rms = residual / sqrt(rows.len() as f64);
    Some(fit)
}

fn length(numbers: impl Iterator<Item = f64>) -> f64 {
    sqrt(numbers.map(|x| x * x).sum())
}

/// A column of which less than this share is left, once others are taken away, says nothing new.
const DEPENDENT_BELOW: f64 = 1e-9;

#[cfg(test)]
mod tests;
