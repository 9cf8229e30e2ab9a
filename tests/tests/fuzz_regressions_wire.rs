//! Replays on a stable compiler what the fuzz targets start from, and what ever broke them.

use std::fs;
use std::path::{Path, PathBuf};

use weft_tests::fuzz::{TARGETS, frame_parse, header_parse, hello_parse};
use weft_tests::vectors;
use weft_wire::frame::Udp;
use weft_wire::header::HEADER_LEN;

fn inputs(kind: &str, target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(kind).join(target);
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.expect("a readable entry").path()).collect()
}

#[test]
fn corpora_and_regressions_replay() {
    let mut replayed = 0;
    for (name, target) in TARGETS {
        let corpus = inputs("corpus", name);
        assert!(corpus.len() >= 10, "{name} starts from {} inputs", corpus.len());
        for path in corpus.into_iter().chain(inputs("regressions", name)) {
            // The harness shows this when a target panics.
            println!("{}", path.display());
            target(&fs::read(&path).expect("a readable input"));
            replayed += 1;
        }
    }
    assert!(replayed > 50, "{replayed} inputs");
}

#[test]
fn vectors_replay_at_every_length() {
    for vector in vectors::load().expect("the vectors load") {
        println!("{}", vector.file);
        let frame = &vector.bytes;
        let lens = (0..=frame.len()).filter(|len| *len < 200 || frame.len() - len < 8);
        lens.for_each(|len| frame_parse(&frame[..len]));
        let Ok(udp) = Udp::parse(frame) else { continue };
        let datagram = &frame[udp.payload_range()];
        (0..=datagram.len().min(200)).for_each(|len| header_parse(&datagram[..len]));
        let body = datagram.get(HEADER_LEN..).unwrap_or_default();
        (0..=body.len().min(200)).for_each(|len| hello_parse(&body[..len]));
    }
}

#[test]
fn every_target_has_a_binary() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("the manifest is there");
    for (name, _) in TARGETS {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "no binary for {name}");
        let main = folder.join("fuzz_targets").join(format!("{name}.rs"));
        let main = fs::read_to_string(main).expect(name);
        assert!(main.contains(&format!("weft_tests::fuzz::{name}(data)")), "{name}");
    }
}
