//! Every recording of the corpus through DPDK's net_pcap: the same frames, octet for octet. A
//! process a recording, for DPDK starts once in each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/replay")
}

fn replay(arguments: &[&str]) -> Output {
    let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
    weft.arg("replay").args(arguments).args(["--format", "json"]).output().expect("weft runs")
}

fn outcome(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn every_recording_gives_the_same_frames_through_net_pcap() {
    let mut count = 0;
    for entry in fs::read_dir(corpus()).expect("the corpus") {
        let path = entry.expect("a recording").path();
        if !path.join("recording.json").is_file() {
            continue;
        }
        let recording = path.to_str().expect("UTF-8");
        let output = replay(&[recording, "--io", "net_pcap"]);
        let (carried, memory) = (outcome(&output), outcome(&replay(&[recording])));
        assert_eq!(carried["verdict"], "pass", "{recording}: {carried}");
        assert_eq!(output.status.code(), Some(0), "{recording}");
        for key in ["packets_in", "packets_out", "draws_missing"] {
            assert_eq!(carried[key], memory[key], "{recording}: {key}");
        }
        count += 1;
    }
    assert!(count >= 18, "{count} recordings");
}

/// What left is held against the recording here as well.
#[test]
fn a_frame_that_left_otherwise_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = folder.path().join("out.pcap");
    let (one, write) = (corpus().join("one-member"), write.to_str().expect("UTF-8"));
    let recording = one.to_str().expect("UTF-8");
    assert_eq!(replay(&[recording, "--write", write]).status.code(), Some(0));
    let mut bytes = fs::read(write).expect("it was written");
    *bytes.last_mut().expect("frames") ^= 0x40;
    fs::write(write, bytes).expect("it can be written");
    let output = replay(&[recording, "--io", "net_pcap", "--expect", write]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(outcome(&output)["differences"], 1);
}

#[test]
fn several_recordings_at_once_are_refused() {
    let one = corpus().join("one-member");
    let one = one.to_str().expect("UTF-8");
    let output = replay(&[one, one, "--io", "net_pcap"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("DPDK starts once in a process"));
}
