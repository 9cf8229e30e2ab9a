//! What p4testgen predicted of the program, path by path (`p4/testgen/vectors.toml`): the frame
//! that leaves, the reason of a refusal, and what is counted of a slot.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use toml::Value;
use weft_p4_interpreter::Switch;

#[test]
fn the_interpreter_does_what_p4testgen_predicts() {
    let program = text("build/weft-v1model-32.json");
    let fresh = Switch::load(&program).unwrap_or_else(|error| panic!("{error}"));
    let file: toml::Table = text(VECTORS).parse().expect("TOML");
    let vectors = file["vector"].as_array().expect("vectors");
    assert!(vectors.len() >= 80, "{} vectors", vectors.len());
    let mut reasons = BTreeSet::new();
    for vector in vectors {
        let name = vector["name"].as_str().expect("a name");
        let mut switch = fresh.clone();
        for entry in list(vector, "entries") {
            insert(&mut switch, name, entry);
        }
        let frame = octets(&vector["frame"]);
        let sent = switch.process(small(&vector["port"]), &frame);
        let sent = sent.unwrap_or_else(|fault| panic!("{name}: {fault}"));
        let shown: Vec<(u16, String)> =
            sent.iter().map(|(port, frame)| (*port, hex(frame))).collect();
        let expected: Vec<(u16, String)> =
            list(vector, "out").iter().map(|out| (small(&out[0]), hex(&octets(&out[1])))).collect();
        assert_eq!(shown, expected, "{name}: what leaves");
        for array in ["drops", "transitions"] {
            let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
            for cell in list(vector, array) {
                *counts.entry(usize::from(small(cell))).or_default() += 1;
            }
            for index in 0..switch.array_len(array).expect("the program has it") {
                let count = switch.counter(array, index).expect("it is inside").packets;
                let expected = counts.get(&index).copied();
                assert_eq!(count, expected.unwrap_or(0), "{name}: {array} {index}");
            }
        }
        reasons.extend(list(vector, "drops").iter().map(small));
    }
    assert!(reasons.len() >= 10, "refusals of these reasons only: {reasons:?}");
}

#[test]
fn the_vectors_are_of_the_committed_sources() {
    let of = |name: &str, mark: &str| -> BTreeSet<String> {
        let text = text(name);
        let lines = text.lines().filter_map(|line| line.strip_prefix(mark));
        let is_sum = |line: &&str| line.ends_with(".p4") && line.find("  ") == Some(64);
        lines.filter(is_sum).map(str::to_owned).collect()
    };
    let (sources, known) = (of("build/SOURCES.sha256", ""), of(VECTORS, "# "));
    assert!(!sources.is_empty(), "the sums are read");
    assert_eq!(known, sources, "a source changed: make -C p4 testgen");
}

/// Adds an entry of a vector, by the names that p4testgen gave.
fn insert(switch: &mut Switch, vector: &str, entry: &Value) {
    let text = |key: &str| entry[key].as_str().expect("a name");
    let (table, action) = (text("table"), text("action"));
    let pairs = |key: &str| -> Vec<(String, u128)> {
        let pair = |pair: &Value| {
            let [name, value] = [0, 1].map(|at| pair[at].as_str().expect("a text"));
            let digits = value.strip_prefix("0x").expect("hexadecimal");
            (name.to_owned(), u128::from_str_radix(digits, 16).expect("a number"))
        };
        list(entry, key).iter().map(pair).collect()
    };
    let (keys, params) = (pairs("keys"), pairs("params"));
    let keys: Vec<(&str, u128)> = keys.iter().map(|(name, value)| (&name[..], *value)).collect();
    let params: Vec<(&str, u128)> =
        params.iter().map(|(name, value)| (&name[..], *value)).collect();
    let done = switch.insert(table, &keys, action, &params);
    done.unwrap_or_else(|error| panic!("{vector}: {error}"));
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("{key} is a list"))
}

fn small(value: &Value) -> u16 {
    u16::try_from(value.as_integer().expect("a number")).expect("a small one")
}

fn octets(value: &Value) -> Vec<u8> {
    let digits = value.as_str().expect("hexadecimal");
    let octet = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
    (0..digits.len()).step_by(2).map(octet).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file of `p4/`.
fn text(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

const VECTORS: &str = "testgen/vectors.toml";
