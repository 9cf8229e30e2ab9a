//! Tells the binary which commit it was built from, for `--version` and for every run record.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The log of HEAD grows with every commit and check-out, also in a linked work tree.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    let commit = git(&["rev-parse", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=WEFT_COMMIT={commit}");
    // How it was built, for the rows of a bench.
    let set = |variable: &str| std::env::var(variable).unwrap_or_else(|_| "unknown".to_owned());
    println!("cargo::rustc-env=WEFT_PROFILE={}, opt-level {}", set("PROFILE"), set("OPT_LEVEL"));
    println!("cargo::rustc-env=WEFT_TARGET_FEATURES={}", set("CARGO_CFG_TARGET_FEATURE"));
}
