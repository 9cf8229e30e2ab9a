//! `weft replay` as scripts see it: a frame that came out otherwise, and how it is blessed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use weft_io::pcap::Capture;
use weft_io::record::Direction;

const FRAMES: &str = "lane-0.pcapng";

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/replay/one-member")
}

fn replay(recording: &Path, arguments: &[&str]) -> Output {
    let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
    weft.arg("replay").arg(recording).args(arguments).output().expect("weft runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn frames(recording: &Path) -> Vec<(Option<Direction>, Vec<u8>)> {
    let capture = Capture::load(&recording.join(FRAMES)).unwrap();
    capture.packets().map(|packet| (packet.direction, packet.bytes.to_vec())).collect()
}

/// A copy of a recording in which the last frame that the box sent had another last octet.
fn changed(recording: &Path) {
    for entry in fs::read_dir(corpus()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), recording.join(entry.file_name())).unwrap();
    }
    let (direction, frame) = frames(recording).pop().unwrap();
    assert_eq!(direction, Some(Direction::Out));
    let path = recording.join(FRAMES);
    let mut bytes = fs::read(&path).unwrap();
    // Behind the frame: padding, two options, the block's length.
    let behind = frame.len().next_multiple_of(4) - frame.len() + 16;
    let at = bytes.len() - behind - 1;
    bytes[at] ^= 0x40;
    fs::write(path, bytes).unwrap();
}

#[test]
fn what_comes_out_is_blessed_with_a_reason_that_its_origin_keeps() {
    let ground = tempfile::tempdir().unwrap();
    let recording = ground.path();
    changed(recording);
    let origin = || fs::read_to_string(recording.join("ORIGIN.md")).unwrap();
    let before = origin();
    let names = || fs::read_dir(recording).unwrap().count();
    let files = names();

    let output = replay(recording, &[]);
    let packet = frames(recording).len();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output).contains(&format!("packet {packet} ")), "{}", text(&output));
    assert!(text(&output).contains("payload[7]"), "{}", text(&output));
    assert_eq!(replay(recording, &["--ignore", "payload"]).status.code(), Some(0));
    let json = replay(recording, &["--format", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["verdict"], &json["differences"]), (&"fail".into(), &1.into()));

    // Not without a reason.
    assert_eq!(replay(recording, &["--bless"]).status.code(), Some(2));
    assert_eq!(replay(recording, &[]).status.code(), Some(1));

    let output = replay(recording, &["--bless", "--reason", "sums are whole"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(origin(), format!("{before}\nBlessed (1 differences): sums are whole\n"));
    assert_eq!(frames(recording), frames(&corpus()), "it is what the engine sends");
    assert_eq!(replay(recording, &[]).status.code(), Some(0));
    assert_eq!(names(), files, "nothing is left behind");

    // A second blessing finds nothing.
    let after = origin();
    let output = replay(recording, &["--bless", "--reason", "again"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(origin(), after);
}
