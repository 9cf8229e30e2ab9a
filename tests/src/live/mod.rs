//! Drives the real programs, `weft` and `weft-node`, as a user would: processes, arguments, exit
//! statuses, JSON on standard output.
//!
//! | file | what it drives |
//! | --- | --- |
//! | `controller` | `weft-controller`, and `weft top` as scripts call it |
//! | `daemon` | a program with a file that a test wrote, killed and started again |
//! | `documents` | the commands that documents show |
//! | `run` | `weft run` as a process: its end, its children, what it leaves behind |
//! | `durable` | a server that keeps its job on disk, and workers that push to it |
//! | `node` | `weft-node` on loopback, configured for a test |
//! | `member` | a member of raw sockets, which keeps to no rule unless told to |
//! | `sums` | what workers sum, and what comes of it |
//!
//! The programs are those beside the test executable; nothing is built from within a test. Every
//! wait has an end.

pub mod controller;
pub mod daemon;
pub mod documents;
pub mod durable;
pub mod member;
pub mod node;
pub mod rogue;
pub mod run;
pub mod sums;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A program of this build.
///
/// # Panics
/// When it has not been built; the message has the command.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its path");
    // target/<profile>/deps/<test>
    let profile = test.parent().and_then(|deps| deps.parent()).expect("tests lie in deps");
    let path = profile.join(name);
    assert!(
        path.is_file(),
        "{} is missing: `cargo build --profile test -p weft-testbed -p weft-node -p weft-bench \
         --features weft-node/dpdk,weft-bench/dpdk` (or `--release`, as the test) makes it",
        path.display()
    );
    path
}

/// Whether `weft-node` was built with DPDK. Without it a test on DPDK is skipped, unless
/// `WEFT_REQUIRE_DPDK` asks for it.
///
/// # Panics
/// When DPDK is missing and asked for, or `weft-node` does not run.
#[must_use]
pub fn has_dpdk(test: &str) -> bool {
    let output = Command::new(program("weft-node")).arg("--version").output();
    let version = output.expect("weft-node runs").stdout;
    let has = String::from_utf8_lossy(&version).contains("dpdk");
    assert!(
        has || std::env::var_os("WEFT_REQUIRE_DPDK").is_none(),
        "weft-node has no DPDK: build it with `--features weft-node/dpdk`"
    );
    if !has {
        skip(test, "weft-node was built without DPDK");
    }
    has
}

/// Whether BMv2 is here; says SKIPPED where not.
///
/// # Panics
/// When it is missing and asked for.
#[must_use]
pub fn has_switch(test: &str) -> bool {
    let output = Command::new("simple_switch_grpc").arg("--version").output();
    let has = output.is_ok();
    assert!(
        has || std::env::var_os("WEFT_REQUIRE_P4").is_none(),
        "no simple_switch_grpc on PATH: see docs/switch.md"
    );
    if !has {
        skip(test, "no simple_switch_grpc on PATH");
    }
    has
}

/// Whether this machine lets the user make network namespaces, as root or in a user namespace;
/// says SKIPPED where not.
#[must_use]
pub fn has_lab(test: &str) -> bool {
    let can = |arguments: &[&str]| {
        let status = Command::new("unshare").args(arguments).arg("true").output();
        status.is_ok_and(|output| output.status.success())
    };
    let has = can(&["-nm"]) || can(&["-Urnm"]);
    if !has {
        skip(test, "needs root, or unprivileged user namespaces (see `weft doctor`)");
    }
    has
}

/// Says that a test could not run and why, past the harness, which hides what passing tests print.
pub fn skip(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}

/// Asks every few milliseconds until `done`, at most `timeout`; true when it was done in time.
pub fn eventually(timeout: Duration, mut done: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !done() {
        if begun.elapsed() > timeout {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Runs `work` for each rank on a thread of its own; the results by rank.
///
/// # Panics
/// If one of them panics.
pub fn together<T: Send>(count: u8, work: impl Fn(u8) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..count).map(|rank| scope.spawn(move || work(rank))).collect();
        threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}
