//! Every recording of `tests/replay` gives the same frames again, octet for octet.

use std::fs;
use std::path::{Path, PathBuf};

use weft_testbed::replay::{Options, replay};

fn corpus() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("replay");
    let entries = fs::read_dir(&root).expect("tests/replay is there");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let mut all: Vec<PathBuf> = paths.filter(|path| path.join("recording.json").exists()).collect();
    all.sort();
    all
}

#[test]
fn every_recording_gives_the_same_frames_again() {
    let mut failed = Vec::new();
    for path in corpus() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let outcome = replay(&path, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
        assert!(outcome.packets_in > 0, "{name} is empty");
        assert_eq!(outcome.notes, Vec::<String>::new(), "{name}");
        if outcome.differences > 0 {
            let shown = outcome.first_differences.iter().take(5).map(|it| format!("    {it}\n"));
            let shown: String = shown.collect();
            failed.push(format!("{name}: {} differences\n{shown}", outcome.differences));
        }
    }
    assert!(
        failed.is_empty(),
        "what boxes do has changed:\n{}If that is meant, for each of them\n    \
         weft replay --bless --reason \"why\" tests/replay/NAME",
        failed.concat()
    );
}

#[test]
fn every_recording_has_an_origin_and_all_of_them_are_small() {
    let mut bytes = 0;
    for path in corpus() {
        let origin = fs::read_to_string(path.join("ORIGIN.md"));
        let origin = origin.unwrap_or_else(|_| panic!("{}: no ORIGIN.md", path.display()));
        assert!(origin.contains("Guards: "), "{}: guards what?", path.display());
        for entry in fs::read_dir(&path).expect("it can be read") {
            bytes += entry.and_then(|entry| entry.metadata()).expect("it can be read").len();
        }
    }
    assert!(bytes < BYTES_MAX, "the corpus has {bytes} bytes");
}

/// What a repository can carry.
const BYTES_MAX: u64 = 8 << 20;
