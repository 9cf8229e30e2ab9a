//! The engines and the wire format have no I/O: no clock, socket, file, thread or random device
//! that could make a run differ from its seed (DESIGN I10).
//!
//! Three proofs: the crates are `no_std` and without unsafe code, all that they depend on is on a
//! list that a person has read, and they build for a target that has no I/O to offer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates whose whole normal dependency tree is without I/O, as far as the engines use it.
const ALLOWED: &[&str] = &[
    // Ours.
    "weft-config",
    "weft-control",
    "weft-controller-engine",
    "weft-engine",
    "weft-jobs",
    "weft-kernel",
    "weft-plan",
    "weft-wire",
    // Data structures, hashes and number formats.
    "arrayvec",
    "cfg-if",
    "half",
    "siphasher",
    "zerocopy",
    // Functions of floats.
    "libm",
    // Text in and out, and errors.
    "serde",
    "serde_core",
    "thiserror",
    // CRC32C with run-time dispatch.
    "crc-fast",
    "crypto-common",
    "digest",
    "generic-array",
    "spin",
    "typenum",
    // Run in the compiler only.
    "proc-macro2",
    "quote",
    "serde_derive",
    "syn",
    "thiserror-impl",
    "unicode-ident",
    "zerocopy-derive",
];

const PURE: &[(&str, &str)] = &[
    ("weft-config", "proto/config"),
    ("weft-control", "proto/control"),
    ("weft-controller-engine", "controller/engine"),
    ("weft-engine", "dataplane/engine"),
    ("weft-jobs", "controller/jobs"),
    ("weft-plan", "controller/plan"),
    ("weft-wire", "proto/wire"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn cargo(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("cargo runs the tests, so it can be run")
}

#[test]
fn the_pure_crates_are_no_std_without_unsafe() {
    for (name, folder) in PURE {
        let source = root().join(folder).join("src/lib.rs");
        let source = fs::read_to_string(source).expect("the crate has a lib.rs");
        for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            assert!(source.lines().any(|line| line == attribute), "{name} lacks {attribute}");
        }
        let brings_std = |line: &&str| line.starts_with("extern crate std");
        let lines: Vec<_> = source.lines().collect();
        for (index, line) in lines.iter().enumerate().filter(|(_, line)| brings_std(line)) {
            let tests_only = index > 0 && lines[index - 1] == "#[cfg(test)]";
            assert!(tests_only, "{name}: `{line}` is not for tests only");
        }
    }
}

#[test]
fn they_depend_on_nothing_with_io() {
    for (name, _) in PURE {
        let output = cargo(&["tree", "-p", name, "-e", "normal", "--prefix", "none", "--locked"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cargo tree failed: {errors}");
        let tree = String::from_utf8(output.stdout).expect("names are ASCII");
        let crates = tree.lines().filter_map(|line| line.split(' ').next());
        let strangers: Vec<_> = crates.filter(|name| !ALLOWED.contains(name)).collect();
        assert_eq!(strangers, [""; 0], "new below {name}: read them, then list them here");
    }
}

#[test]
fn nightly_they_build_where_there_is_no_io() {
    let target = "wasm32-unknown-unknown";
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).current_dir(root()).output();
    let sysroot = String::from_utf8(sysroot.expect("rustc runs").stdout).expect("a path");
    if !Path::new(sysroot.trim()).join("lib/rustlib").join(target).exists() {
        println!("SKIPPED: {target} is not installed; rustup target add {target}");
        return;
    }
    // A folder of its own: the one of this run may be locked.
    let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/no_io");
    let names = PURE.iter().flat_map(|(name, _)| ["-p", name]);
    let arguments = ["build", "--locked", "--target", target, "--target-dir", folder];
    let arguments: Vec<_> = arguments.into_iter().chain(names).collect();
    let output = cargo(&arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "no build for {target}: {errors}");
}
