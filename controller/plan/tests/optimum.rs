//! How far the plans are from the best there is; `weft plan optimum` prints it for more cases.
//! `cargo test -p weft-plan --test plan -- optimum --nocapture` prints the table.

use weft_plan::optimum::{KINDS, measure};

/// Mean and largest ratio to the optimum that are accepted, by kind: what was measured, and a
/// little.
const LIMITS: [(f64, f64); 6] =
    [(1.01, 1.1), (1.01, 1.1), (1.005, 1.05), (1.01, 1.1), (1.01, 1.1), (1.01, 1.12)];

#[test]
fn plans_are_near_the_optimum() {
    let (all, rows) = measure(CASES).expect("plans");
    assert_eq!((all.cases, rows.len()), (CASES, KINDS.len()));
    println!(
        "{:26} {:>5} {:>8} {:>8} {:>8} {:>8}",
        "plan", "cases", "optimal", "mean", "p95", "max"
    );
    for (row, (mean_max, worst_max)) in rows.iter().zip(LIMITS) {
        let (name, at) = (row.kind.name, &row.distance);
        println!(
            "{name:26} {:5} {:8} {:8.3} {:8.3} {:8.3}",
            at.cases, at.optimal, at.mean_ratio, at.p95_ratio, at.max_ratio
        );
        assert!(at.mean_ratio <= mean_max && at.max_ratio <= worst_max, "{name}: {at:?}");
    }
}

/// Cases of all kinds together.
const CASES: u64 = 240;
