//! Which seeds of a simulation run, by the environment, and what became of them: `WEFT_SIM_SEED=n`
//! runs one alone, with a log; `WEFT_SIM_COUNT=20` twenty; `WEFT_SIM_SCALE=10` ten times as many.

use std::env;
use std::fmt::Debug;

/// Runs `count` seeds, or those that the environment names. `run` is told whether to log, and
/// returns what its seed violated. True if these were all, so that what they covered can be judged.
///
/// # Panics
/// A seed violated something, or a variable is no number.
pub fn run_seeds<V: Debug>(count: u64, mut run: impl FnMut(u64, bool) -> Vec<V>) -> bool {
    let one = number("WEFT_SIM_SEED");
    let few = number("WEFT_SIM_COUNT");
    let count = few.unwrap_or_else(|| count * number("WEFT_SIM_SCALE").unwrap_or(1));
    let seeds = one.map_or(0..count, |seed| seed..seed + 1);
    let mut failures = Vec::new();
    for seed in seeds {
        let violations = run(seed, one.is_some());
        if !violations.is_empty() {
            failures.push((seed, violations));
        }
    }
    for (seed, violations) in failures.iter().take(10) {
        println!("seed {seed}: {violations:#?}");
    }
    let first: Vec<_> = failures.iter().take(20).map(|(seed, _)| *seed).collect();
    assert!(failures.is_empty(), "{} seeds failed, {first:?} among them", failures.len());
    one.or(few).is_none()
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().expect("a number"))
}
