//! 200 seeds of closed loops do what they did: every message and transfer, at the same time.
//!
//! A change that is to change nothing passes as it is; one that does change something is blessed,
//! and its commit says why: `WEFT_BLESS=1 cargo test -p weft-controller-engine fingerprints`.

use alloc::vec::Vec;
use core::fmt::{Debug, Write as _};
use std::hash::Hasher;
use std::path::Path;
use std::{env, fs};

use siphasher::sip::SipHasher13;
use weft_control::Mode;

use super::closed_loop;
use super::world::Training;
use super::*;

/// Notes something that happens. Only the digits of its text count: a change of a name changes
/// nothing that happens.
pub(super) fn note(transcript: &mut SipHasher13, now_ns: u64, event: &impl Debug) {
    let text = format!("{event:?}");
    transcript.write(&now_ns.to_be_bytes());
    for number in text.split(|char: char| !char.is_ascii_digit()) {
        if !number.is_empty() {
            transcript.write(number.as_bytes());
            transcript.write(b" ");
        }
    }
}

#[test]
fn closed_loops_do_what_they_did() {
    let mut lines = format!("{HEAD}\n");
    for seed in 0..SEEDS {
        let policy = ["mlfabric", "mlfabric", "fair", "fifo"][seed as usize % 4];
        let mode = [Mode::Async, Mode::Sync, Mode::Partial][seed as usize % 3];
        let mut world = closed_loop::world(policy, mode, &Tuning::default());
        world.train(0, Training { seed, compute_ms: [50, 250], target: COMMITS });
        while world.version(0).0 < COMMITS {
            assert!(world.now_ns < 120_000_000_000, "seed {seed} does not come to an end");
            world.run_for(1_000_000);
        }
        let events = world.transcript.finish();
        writeln!(lines, "{policy},{mode:?},{seed},{events:016x},{}", world.now_ns).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/fingerprints.csv");
    if env::var_os("WEFT_BLESS").is_some() {
        return fs::write(&path, lines).expect("the file can be written");
    }
    let there = fs::read_to_string(&path).expect("the fingerprints are there");
    let changed: Vec<_> =
        lines.lines().zip(there.lines()).filter(|(new, old)| new != old).collect();
    assert!(changed.is_empty(), "{} seeds do something else: {changed:#?}", changed.len());
}

const SEEDS: u64 = 200;
/// Commits of a run.
const COMMITS: u64 = 24;
const HEAD: &str = "policy,mode,seed,events,ended_ns";
