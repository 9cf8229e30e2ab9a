//! The example programs as a user meets them who makes a mistake.

use std::env;
use std::process::{Command, Output};

/// Cargo builds the examples before the tests, beside the folder of the test programs.
fn example(name: &str, arguments: &[&str]) -> Output {
    let this = env::current_exe().expect("a test program has a path");
    let folder = this.ancestors().nth(2).expect("test programs are in target/PROFILE/deps");
    let program = folder.join("examples").join(name);
    Command::new(program)
        .args(arguments)
        .env_remove("RUST_BACKTRACE")
        .env_remove("RUST_LIB_BACKTRACE")
        .output()
        .expect("the example runs")
}

#[test]
fn an_example_ends_with_a_sentence_and_not_with_a_type() {
    for name in ["allreduce", "tickets", "async_sgd"] {
        let output = example(name, &[]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(said.trim(), "Error: missing argument: this worker's address", "{name}");
        // 192.0.2.1 is nobody's.
        let output = example(name, &["192.0.2.1:22500", "127.0.0.1:22341", "0"]);
        let said = String::from_utf8(output.stderr).expect("text");
        let cause = "Error: could not open this worker's port: no interface of this host";
        assert!(said.starts_with(cause), "{name}: {said}");
        assert!(!said.contains(['{', '}']), "{name}: {said}");
    }
}

#[test]
fn the_factors_of_a_matrix_are_found() {
    let output = example("matrix_factorisation", &[]);
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let losses: Vec<f64> = said
        .lines()
        .map(|line| line.rsplit(' ').next().and_then(|loss| loss.parse().ok()).expect("a loss"))
        .collect();
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    assert!(losses.len() == 30 && last < first / 100.0, "{said}");
}
