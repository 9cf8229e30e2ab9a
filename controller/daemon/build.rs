//! Puts the commit that is built into `--version`.

use std::process::Command;

fn main() {
    // HEAD's log changes with every commit and checkout; without git it never does.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]);
    println!("cargo::rerun-if-changed={}", log.as_deref().unwrap_or("build.rs"));
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=WEFT_COMMIT={commit}");
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
