//! What the real switch did, done again: the captures of `p4/golden` byte for byte, and, where
//! simple_switch is on PATH, the same frames damaged at random through both.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::rig::{Golden, Random, on_path, run_switch};

#[test]
fn the_interpreter_does_what_the_real_switch_did() {
    let all = Golden::all();
    assert!(all.len() >= 40, "{} golden pairs", all.len());
    for golden in all {
        let name = &golden.name;
        let mut switch = golden.switch();
        let out = golden.play(&mut switch, &golden.frames);
        for (port, expected) in &golden.out {
            let got = out.get(port).map_or(&[][..], Vec::as_slice);
            assert_eq!(got.len(), expected.len(), "{name}: frames out of port {port}");
            for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
                assert_eq!(hex(got), hex(expected), "{name}: port {port}, frame {index}");
            }
        }
        let unknown = out.keys().find(|port| !golden.out.contains_key(port));
        assert_eq!(unknown, None, "{name}: a port that the real switch sent nothing out of");
        for (array, counts) in &golden.counts {
            // Of transitions those of the scopes that the pair names were read.
            let scopes = counts.keys().map(|cell| cell / 32).max().unwrap_or(0) + 1;
            let size = switch.array_len(array).expect("the program has it");
            let size = if *array == "transitions" { 32 * scopes } else { size };
            for index in 0..size {
                let count = switch.counter(array, index).expect("it is inside").packets;
                let expected = counts.get(&index).copied();
                assert_eq!(count, expected.unwrap_or(0), "{name}: {array} {index}");
            }
        }
    }
}

/// `WEFT_P4_SEED` is the first seed, `WEFT_P4_SCALE` plays so many times as many.
#[test]
fn the_interpreter_does_what_the_real_switch_does_with_damaged_frames() {
    let test = "the_interpreter_does_what_the_real_switch_does_with_damaged_frames";
    if !on_path("simple_switch") || !on_path("simple_switch_CLI") {
        let required = std::env::var_os("WEFT_REQUIRE_P4").is_some();
        assert!(!required, "simple_switch or simple_switch_CLI is not on PATH: docs/switch.md");
        println!("SKIPPED: {test}: simple_switch or simple_switch_CLI is not on PATH");
        return;
    }
    let number = |name: &str, default: usize| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
    };
    let (first, scale) = (number("WEFT_P4_SEED", 1), number("WEFT_P4_SCALE", 1));
    let all = Golden::all();
    for seed in first..first + RUNS * scale {
        // A number that the count of pairs does not divide: each seed is of another pair.
        let golden = &all[seed * STRIDE % all.len()];
        let name = &golden.name;
        let mut random = Random(seed as u64);
        let mut frames = Vec::new();
        while frames.len() < FRAMES {
            for (port, frame) in &golden.frames {
                frames.push((*port, random.damaged(frame)));
            }
        }
        let mut switch = golden.switch();
        let mut out: BTreeMap<u16, Vec<Vec<u8>>> = BTreeMap::new();
        for (port, frame) in &frames {
            let sent = switch.process(*port, frame);
            let sent =
                sent.unwrap_or_else(|fault| panic!("{name}, seed {seed}: {fault}: {}", hex(frame)));
            sent.into_iter().for_each(|(port, frame)| out.entry(port).or_default().push(frame));
        }
        let frames_out: usize = out.values().map(Vec::len).sum();
        assert!(frames_out > FRAMES / 20, "{name}, seed {seed}: {frames_out} frames left");
        let real = run_switch(golden, &frames, &out);
        for (port, expected) in &real {
            let got = out.get(port).map_or(&[][..], Vec::as_slice);
            for (index, expected) in expected.iter().enumerate() {
                let got = got.get(index).map(|frame| hex(frame));
                assert_eq!(
                    got,
                    Some(hex(expected)),
                    "{name}, seed {seed}: port {port}, frame {index}"
                );
            }
            assert_eq!(got.len(), expected.len(), "{name}, seed {seed}: port {port}");
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where the program and the pairs are.
pub(crate) fn p4() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Pairs that are damaged.
const RUNS: usize = 6;
const STRIDE: usize = 5;
/// Frames to each, at least.
const FRAMES: usize = 600;
