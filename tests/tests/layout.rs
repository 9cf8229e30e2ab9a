//! SPEC.md, the layout tables of weft-wire and the dissector say the same, and every anchor of
//! SPEC that code cites exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use weft_wire::MEMBERS_MAX;
use weft_wire::header::{
    self, ElementType, Flags, HEADER_LEN, Kind, Operation, Outcome, PORT_BASE, VERSION,
};
use weft_wire::hello::{self, BODY_LEN, Integrity, Overflow, Phase, Reason, STEP_BITS_MAX};
use weft_wire::{keys, probe, rows};

/// Names and values of a set of codes, in order of value.
type Codes = BTreeMap<u64, String>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn spec() -> String {
    fs::read_to_string(root().join("proto/SPEC.md")).expect("SPEC.md is there")
}

fn dissector() -> String {
    fs::read_to_string(root().join("proto/wireshark/weft.lua")).expect("weft.lua is there")
}

/// The cells of the table in SPEC whose head row begins with these cells; rows without the head.
fn spec_table(head: &[&str]) -> Vec<Vec<String>> {
    let cells = |line: &str| -> Vec<String> {
        let line = line.trim().trim_start_matches('|').trim_end_matches('|');
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let text = spec();
    let is_head = |line: &&str| {
        let cells = cells(line);
        cells.len() >= head.len() && cells.iter().zip(head).all(|(cell, name)| cell == name)
    };
    let mut lines = text.lines().skip_while(|line| !is_head(line));
    assert!(lines.next().is_some(), "SPEC has no table {head:?}");
    lines.skip(1).take_while(|line| line.starts_with('|')).map(cells).collect()
}

fn number(text: &str) -> u64 {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("{text:?} is no number"))
}

/// A table of codes in SPEC, the name in column `column` and the value behind it.
fn spec_codes(head: &[&str], column: usize) -> Codes {
    let named = |row: &Vec<String>| !row[column].is_empty();
    let rows = spec_table(head).into_iter().filter(named);
    rows.map(|row| (number(&row[column + 1]), row[column].clone())).collect()
}

/// Codes that SPEC lists in a handshake field's meaning: "0 none, 1 crc32c".
fn spec_meaning_codes(field: &str) -> Codes {
    let rows = spec_table(&["field", "byte", "bytes", "meaning"]);
    let row = rows.iter().find(|row| row[0] == field).expect(field);
    let meaning = row[3].rsplit(": ").next().expect("rsplit yields something");
    let words: Vec<_> = meaning.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    words.chunks(2).map(|pair| (number(pair[0]), pair[1].to_owned())).collect()
}

fn rust_codes<T: Copy>(all: &[(T, &str)], value: fn(T) -> u8) -> Codes {
    all.iter().map(|(code, name)| (u64::from(value(*code)), (*name).to_owned())).collect()
}

/// The lines of `local NAME = {` … `}` in the dissector.
fn lua_rows(name: &str) -> Vec<String> {
    let text = dissector();
    let opening = format!("local {name} = {{");
    let mut lines = text.lines().skip_while(|line| *line != opening);
    assert!(lines.next().is_some(), "weft.lua has no table {name}");
    lines.take_while(|line| *line != "}").map(|line| line.trim().to_owned()).collect()
}

/// A layout table of the dissector: name and numbers of `{ "name", 0, 0, 4 },`.
fn lua_layout(name: &str) -> Vec<(String, Vec<u64>)> {
    let row = |line: String| {
        let inner = line.strip_prefix("{ ").and_then(|line| line.strip_suffix(" },"));
        let mut cells = inner.expect("a layout row").split(", ");
        let name = cells.next().expect("a name").trim_matches('"').to_owned();
        (name, cells.map(number).collect())
    };
    lua_rows(name).into_iter().map(row).collect()
}

/// A table of codes in the dissector: `[1] = "NAME",`.
fn lua_codes(name: &str) -> Codes {
    let row = |line: String| {
        let (value, name) = line.split_once("] = ").expect("a code row");
        let name = name.trim_end_matches(',').trim_matches('"').to_owned();
        (number(value.trim_start_matches('[')), name)
    };
    lua_rows(name).into_iter().map(row).collect()
}

fn lua_constant(name: &str) -> u64 {
    let text = dissector();
    let opening = format!("local {name} = ");
    let line = text.lines().find_map(|line| line.strip_prefix(&opening));
    number(line.unwrap_or_else(|| panic!("weft.lua has no constant {name}")))
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn header_layouts_agree() {
    let rust: Vec<(String, Vec<u64>)> = header::LAYOUT
        .iter()
        .map(|&(name, byte, bit, bits)| {
            (name.to_owned(), [byte, bit, bits].map(|number| number as u64).to_vec())
        })
        .collect();
    let spec: Vec<(String, Vec<u64>)> = spec_table(&["field", "byte", "bit", "bits"])
        .into_iter()
        .map(|row| (row[0].clone(), row[1..4].iter().map(|cell| number(cell)).collect()))
        .collect();
    assert_eq!(spec, rust, "SPEC and weft-wire");
    assert_eq!(lua_layout("HEADER"), rust, "weft.lua and weft-wire");
}

#[test]
fn handshake_layouts_agree() {
    let rust: Vec<(String, Vec<u64>)> = hello::LAYOUT
        .iter()
        .map(|&(name, byte, bytes)| (name.to_owned(), vec![byte as u64, bytes as u64]))
        .collect();
    let spec: Vec<(String, Vec<u64>)> = spec_table(&["field", "byte", "bytes"])
        .into_iter()
        .map(|row| (row[0].clone(), row[1..3].iter().map(|cell| number(cell)).collect()))
        .collect();
    assert_eq!(spec, rust, "SPEC and weft-wire");
    assert_eq!(lua_layout("HELLO"), rust, "weft.lua and weft-wire");
}

#[test]
fn probe_layouts_agree() {
    let rust: Vec<(String, Vec<u64>)> = probe::LAYOUT
        .iter()
        .map(|&(name, byte, bytes)| (name.to_owned(), vec![byte as u64, bytes as u64]))
        .collect();
    let spec: Vec<(String, Vec<u64>)> = spec_table(&["probe field", "byte", "bytes"])
        .into_iter()
        .map(|row| (row[0].clone(), row[1..3].iter().map(|cell| number(cell)).collect()))
        .collect();
    assert_eq!(spec, rust, "SPEC and weft-wire");
    let text = words(&spec_text_of_probes());
    assert!(text.contains(&format!("begins with {} bytes", probe::PROBE_LEN)), "{text}");
    assert!(text.contains(&format!("{:#x}: version {VERSION}", probe::MARK)), "{text}");
}

fn spec_text_of_probes() -> String {
    let text = spec();
    let from = text.find("## Probe trains").expect("a section on probe trains");
    text[from..].to_owned()
}

#[test]
fn layouts_of_keys_agree() {
    let rust: Vec<(String, Vec<u64>)> = keys::LAYOUT
        .iter()
        .map(|&(name, byte, bytes)| (name.to_owned(), vec![byte as u64, bytes as u64]))
        .collect();
    let spec: Vec<(String, Vec<u64>)> = spec_table(&["key field", "byte", "bytes"])
        .into_iter()
        .map(|row| (row[0].clone(), row[1..3].iter().map(|cell| number(cell)).collect()))
        .collect();
    assert_eq!(spec, rust, "SPEC and weft-wire");
    assert_eq!(lua_layout("KEYS"), rust, "weft.lua and weft-wire");
    assert_eq!(lua_constant("KEYS_LEN"), keys::HEAD_LEN as u64);
    assert_eq!(lua_constant("ROW_KEYS"), u64::from(rows::ROW_KEYS));
    assert_eq!(lua_constant("TABLES_MAX"), u64::from(rows::TABLES_MAX));

    let rust: Vec<Vec<String>> = keys::What::ALL
        .iter()
        .map(|(_, name, kind, direct, outcome)| {
            let direct = if *direct { "DIRECT" } else { "" };
            [*name, &kind.to_string(), direct, &outcome.to_string()].map(str::to_owned).to_vec()
        })
        .collect();
    let spec: Vec<Vec<String>> = spec_table(&["key frame", "kind", "flag", "outcome"])
        .into_iter()
        .map(|row| row[..4].to_vec())
        .collect();
    assert_eq!(spec, rust, "SPEC and weft-wire");

    let lengths = [
        ("key", keys::KEY_LEN),
        ("floor, last number", keys::LAST_LEN),
        ("access, answer", keys::ACCESS_LEN),
        ("claim", keys::CLAIM_LEN),
        ("row", keys::ROW_HEAD_LEN),
    ];
    let spec = spec_table(&["key entry", "bytes"]);
    let spec: Vec<_> = spec.iter().map(|row| (row[0].as_str(), number(&row[1]))).collect();
    assert_eq!(spec, lengths.map(|(entry, len)| (entry, len as u64)));
    let parts = spec_codes(&["part", "value"], 0);
    assert_eq!(parts, rust_codes(keys::Parts::ALL, |part| part.0));
}

#[test]
fn codes_agree() {
    let reasons = {
        let mut reasons = spec_meaning_codes("reason");
        // SPEC lists why a box refuses; 0 says that it did not.
        reasons.insert(0, "NONE".to_owned());
        reasons
    };
    let element_head = ["element type", "value", "bytes", "", "operation", "value"];
    let sets = [
        ("KIND", spec_codes(&["kind", "value"], 0), rust_codes(Kind::ALL, |code| code as u8)),
        ("FLAGS", spec_codes(&["flag", "value"], 0), rust_codes(Flags::ALL, |code| code.0)),
        (
            "OUTCOME",
            spec_codes(&["outcome", "value"], 0),
            rust_codes(Outcome::ALL, |code| code as u8),
        ),
        (
            "ELEMENT_TYPE",
            spec_codes(&element_head, 0),
            rust_codes(ElementType::ALL, |code| code as u8),
        ),
        ("OPERATION", spec_codes(&element_head, 4), rust_codes(Operation::ALL, |code| code as u8)),
        ("PHASE", spec_codes(&["phase", "value"], 0), rust_codes(Phase::ALL, |code| code as u8)),
        ("REASON", reasons, rust_codes(Reason::ALL, |code| code as u8)),
        (
            "INTEGRITY",
            spec_meaning_codes("integrity"),
            rust_codes(Integrity::ALL, |code| code as u8),
        ),
        ("OVERFLOW", spec_meaning_codes("overflow"), rust_codes(Overflow::ALL, |code| code as u8)),
    ];
    for (name, spec, rust) in sets {
        assert_eq!(spec, rust, "{name}: SPEC and weft-wire");
        assert_eq!(lua_codes(name), rust, "{name}: weft.lua and weft-wire");
    }
}

#[test]
fn outcomes_of_an_allreduce_agree() {
    let rows = spec_table(&["kind", "outcome of an allreduce", "value"]);
    let spec: Vec<_> =
        rows.iter().map(|row| [&row[0], &row[1], &row[2]].map(Clone::clone)).collect();
    let rust = Outcome::OF_KINDS.iter().map(|(kind, outcome, name)| {
        [kind.to_string(), (*name).to_owned(), (*outcome as u8).to_string()]
    });
    assert_eq!(spec, rust.collect::<Vec<_>>(), "SPEC and weft-wire");
    let lua = spec.iter().map(|[kind, name, value]| format!("[\"{kind}.{value}\"] = \"{name}\","));
    assert_eq!(lua_rows("OUTCOME_OF_KIND"), lua.collect::<Vec<_>>(), "weft.lua and SPEC");
}

#[test]
fn element_lengths_agree() {
    let rust: BTreeMap<u64, u64> =
        ElementType::ALL.iter().map(|(code, _)| (*code as u64, code.len_bytes() as u64)).collect();
    let spec: BTreeMap<u64, u64> = spec_table(&["element type", "value", "bytes"])
        .iter()
        .map(|row| (number(&row[1]), number(&row[2])))
        .collect();
    assert_eq!(spec, rust);
    let lengths: Vec<_> = rust.iter().map(|(code, len)| format!("[{code}] = {len}")).collect();
    let line = format!("local ELEMENT_LEN = {{ {} }}", lengths.join(", "));
    assert!(dissector().contains(&line), "weft.lua lacks: {line}");
}

#[test]
fn constants_agree() {
    assert_eq!(lua_constant("HEADER_LEN"), HEADER_LEN as u64);
    assert_eq!(lua_constant("BODY_LEN"), BODY_LEN as u64);
    assert_eq!(lua_constant("STEP_BITS_MAX"), STEP_BITS_MAX as u64);
    assert_eq!(lua_constant("VERSION"), u64::from(VERSION));
    assert_eq!(lua_constant("PORT_BASE"), u64::from(PORT_BASE));
    assert_eq!(
        lua_constant("ELEMENTS_SHOWN"),
        weft_tests::vectors::ELEMENTS_SHOWN as u64,
        "the index lists as many elements as the dissector shows"
    );
    let text = words(&spec());
    for stated in [
        format!("# The Weft protocol, version {VERSION}"),
        format!("| version | 0 | 0 | 4 | {VERSION} |"),
        format!("## Header {HEADER_LEN} bytes;"),
        format!("default port base {PORT_BASE:#x} (\"WE\")"),
        format!("the bitmap that follows byte {BODY_LEN} |"),
        format!("| members of one group at one box | {MEMBERS_MAX} |"),
        format!("| bitmap | {STEP_BITS_MAX} bits |"),
    ] {
        assert!(text.contains(&stated), "SPEC lacks: {stated}");
    }
}

/// Every file of the repository with one of these extensions.
fn sources(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if !name.starts_with('.') && !name.starts_with("target") {
                sources(&path, extensions, found);
            }
        } else if path.extension().is_some_and(|e| extensions.iter().any(|known| e == *known)) {
            found.push(path);
        }
    }
}

#[test]
fn every_anchor_cited_exists() {
    let slug = |heading: &str| -> String {
        let heading = heading.trim().to_lowercase().replace(' ', "-");
        heading.chars().filter(|c| c.is_alphanumeric() || *c == '-').collect()
    };
    let text = spec();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchors: BTreeSet<_> = headings.map(|line| slug(line.trim_start_matches('#'))).collect();
    assert!(anchors.contains("two-levels"), "{anchors:?}");

    let mut files = Vec::new();
    sources(&root(), &["rs", "lua", "md"], &mut files);
    let mut cited = 0;
    for file in files {
        let text = fs::read_to_string(&file).expect("sources are UTF-8");
        for rest in text.split("SPEC#").skip(1) {
            let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            let anchor = &rest[..rest.find(|c| !word(c)).unwrap_or(rest.len())];
            // "SPEC#" alone is talk about anchors, as here.
            if anchor.is_empty() {
                continue;
            }
            assert!(anchors.contains(anchor), "{}: SPEC has no #{anchor}", file.display());
            cited += 1;
        }
    }
    assert!(cited > 0, "nothing cites SPEC, which cannot be");
}

#[test]
fn every_promise_has_a_test() {
    let mut files = Vec::new();
    sources(&root(), &["rs"], &mut files);
    let texts: Vec<String> =
        files.iter().map(|file| fs::read_to_string(file).expect("sources are UTF-8")).collect();
    let tests: BTreeSet<&str> = texts
        .iter()
        .flat_map(|text| text.split("fn ").skip(1))
        .filter_map(|rest| rest.split_once('(').map(|(name, _)| name))
        .collect();
    let page = fs::read_to_string(root().join("docs/promises.md")).expect("it is there");
    let mut promises = 0;
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let Ok(number) = cells[1].parse::<usize>() else { continue };
        promises += 1;
        assert_eq!(number, promises, "promises are numbered one by one");
        let named: Vec<&str> = cells[3].split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "promise {number} has no test");
        for name in named {
            assert!(tests.contains(name), "promise {number}: there is no test {name}");
        }
    }
    assert!(promises > 30, "{promises}");
}
