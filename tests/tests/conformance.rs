//! The scripts of `tests/conformance`, played to the Rust engine, to the compiled P4 program, and
//! to BMv2 where it is; with `WEFT_REQUIRE_P4` (`make test-p4`) that is where it has to be.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use weft_engine::role::switch::{Entry, Write};
use weft_testbed::conformance::target::{Bmv2, Kind, Switch as _};
use weft_testbed::conformance::{Ended, cells, parse, play};
use weft_tests::live::skip;
use weft_wire::MacAddr;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn programs() -> PathBuf {
    root().join("p4/build")
}

/// Name and text of every script, those of the cells last.
fn scripts() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for folder in ["tests/conformance", "tests/conformance/cells"] {
        let entries = fs::read_dir(root().join(folder)).expect("the folder is there");
        let paths = entries.map(|entry| entry.expect("it can be listed").path());
        let mut paths: Vec<_> = paths.filter(|path| path.is_file()).collect();
        paths.sort();
        all.extend(paths.into_iter().map(|path| {
            let name = path.file_name().expect("a file").to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).expect("a text"))
        }));
    }
    all
}

/// Plays every script; those that were left out, with the reason.
fn play_all(kind: Kind) -> Vec<(String, String)> {
    let mut failures = Vec::new();
    let mut skipped = Vec::new();
    for (name, text) in scripts() {
        let script = parse(&name, &text).unwrap_or_else(|error| panic!("{error}"));
        match play(&script, kind, &programs()) {
            Ended::Passed => {}
            Ended::Failed(differences) => {
                failures.extend(differences.iter().map(ToString::to_string));
            }
            Ended::Skipped(reason) => skipped.push((name, reason)),
        }
    }
    assert!(failures.is_empty(), "on {}:\n{}", kind.name(), failures.join("\n"));
    skipped
}

#[test]
fn the_rust_engine_does_what_every_script_says() {
    let skipped = play_all(Kind::Rust);
    let names: Vec<&str> = skipped.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names, ["growth_switch.script"], "what is the switch's alone");
}

#[test]
fn the_p4_program_does_what_every_script_says() {
    for (name, reason) in play_all(Kind::Json) {
        println!("SKIPPED: {name} on the P4 program: {reason}");
    }
}

/// Whether BMv2 is here; says SKIPPED where not.
fn has_bmv2(test: &str) -> bool {
    let Some(reason) = Kind::Bmv2.absence() else { return true };
    assert!(std::env::var_os("WEFT_REQUIRE_P4").is_none(), "{reason}: see docs/switch.md");
    skip(test, &reason);
    false
}

#[test]
fn bmv2_does_what_every_script_says() {
    if !has_bmv2("bmv2_does_what_every_script_says") {
        return;
    }
    // What the interpreter plays the switch plays as well.
    assert_eq!(play_all(Kind::Bmv2), play_all(Kind::Json));
}

#[test]
fn swx_does_what_every_script_says() {
    if let Some(reason) = Kind::Swx.absence() {
        return skip("swx_does_what_every_script_says", &reason);
    }
    let json: BTreeSet<_> = play_all(Kind::Json).into_iter().collect();
    // Beside what no switch plays: scripts for programs of more elements, which SWX has none of.
    let skipped: BTreeSet<_> = play_all(Kind::Swx).into_iter().collect();
    let alone: Vec<_> = skipped.difference(&json).collect();
    for (name, reason) in &alone {
        assert!(reason.contains("a program of"), "{name}: {reason}");
        println!("SKIPPED: {name} on SWX: {reason}");
    }
    assert!(alone.len() <= SWX_LACKS_MAX, "{alone:?}");
}

/// Scripts for 128 and 256 elements.
const SWX_LACKS_MAX: usize = 8;

/// A switch's box that nobody judges, and frames that are judged by nothing, would pass every
/// script.
#[test]
fn what_bmv2_does_not_do_is_told() {
    if !has_bmv2("what_bmv2_does_not_do_is_told") {
        return;
    }
    let text = "row job 1 row 0 members 2\njoin 0 1\n0 > CONTRIB chunk 0 values 1\n";
    for (more, expected) in [
        ("0 < HAVE\n", "x:4: frame: expected 0 < HAVE, got nothing"),
        ("0 > STATUS chunk 0\n", "x:4: frame: expected nothing more, got 0 < HAVE chunk 0"),
        ("0 > STATUS chunk 0\n0 < HAVE members 1\n", "x:5: members: expected 1, got 0"),
        ("drops length 1\n", "x:4: drops: expected length 1, got none"),
        ("transitions none\n", "x:4: transitions: expected none, got "),
    ] {
        let script = parse("x", &format!("{text}{more}")).expect("a script");
        let Ended::Failed(differences) = play(&script, Kind::Bmv2, &programs()) else {
            panic!("{more:?} went unnoticed");
        };
        let told = differences[0].to_string();
        assert!(told.starts_with(expected), "{told}, not {expected}");
    }
}

/// The command line says so in many words, and goes on.
#[test]
fn a_write_that_bmv2_refuses_is_told() {
    if !has_bmv2("a_write_that_bmv2_refuses_is_told") {
        return;
    }
    let program = programs().join("weft-v1model-32.json");
    let mut switch = Bmv2::start(program, vec![1, 255]).expect("it starts");
    let entry = || Entry::Bridge { mac: MacAddr([2, 0, 0, 0, 0, 1]), port: 1 };
    switch.write(&Write::Insert(entry())).expect("the first");
    let told = switch.write(&Write::Insert(entry())).expect_err("the same again");
    assert!(told.contains("DUPLICATE_ENTRY"), "{told}");
    switch.write(&Write::Delete(entry())).expect("it is there");
    let told = switch.write(&Write::Delete(entry())).expect_err("it is gone");
    assert_eq!(told, "there is no such entry");
}

/// The table of the document knows each script, and no verdict that should not be.
#[test]
fn the_table_of_verdicts_has_every_script() {
    let document = fs::read_to_string(root().join("docs/conformance.md")).expect("it is there");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows: Vec<_> = rows.filter_map(|row| row.split_once("` | ")).collect();
    let verdicts: Vec<_> = rows
        .iter()
        .filter(|(_, cells)| cells.starts_with("pass |") || cells.starts_with("skipped ("))
        .collect();
    let tabled: BTreeSet<String> = verdicts
        .iter()
        .map(|(name, _)| format!("{}.script", name.trim_start_matches("cells/")))
        .collect();
    let there: BTreeSet<String> = scripts().into_iter().map(|(name, _)| name).collect();
    assert_eq!(tabled, there, "weft conformance --table docs/conformance.md");
    for (name, cells) in verdicts {
        assert!(!cells.contains("fail"), "{name}: {cells}");
        assert_eq!(cells.matches('|').count(), 4, "{name} was played to every target");
    }
    assert!(document.contains("| script | rust | json | bmv2 | swx |"), "in every column");
}

#[test]
fn the_scripts_of_the_cells_are_as_the_table_makes_them() {
    let folder = root().join("tests/conformance/cells");
    let made = cells::scripts().expect("every cell has one");
    for (name, text) in &made {
        let file = fs::read_to_string(folder.join(format!("{name}.script"))).unwrap_or_default();
        assert_eq!(&file, text, "{name}: weft conformance --from-table tests/conformance/cells");
    }
    let names: BTreeSet<String> = made.into_iter().map(|(name, _)| name + ".script").collect();
    let entries = fs::read_dir(folder).expect("the folder is there");
    let files = entries.map(|entry| entry.expect("it can be listed").file_name());
    let files: BTreeSet<String> = files.map(|name| name.to_string_lossy().into_owned()).collect();
    assert_eq!(files, names, "no script is left of a cell that is gone");
}

/// What each field of an expectation being wrong comes to: a script whose comparison overlooked one
/// would prove nothing.
#[test]
fn a_frame_that_is_not_as_a_line_says_is_told_field_by_field() {
    let good = "row job 1 row 0 members 2\njoin 0 1\n0 > CONTRIB chunk 0 values 1\n\
                1 > CONTRIB chunk 0 values 2 3\n0 < ANSWER chunk 0 members 0,1 values 3 4\n\
                1 < ANSWER\n0 > STATUS chunk 1\n0 < HAVE chunk 1 members none\n";
    let ends = |text: &str| play(&parse("x", text).unwrap(), Kind::Rust, &programs());
    assert_eq!(ends(good), Ended::Passed);
    for (from, to, expected) in [
        ("ANSWER chunk 0", "ANSWER chunk 1", "x:5: chunk: expected 1, got 0"),
        ("members 0,1", "members 0", "x:5: members: expected 0, got 0,1"),
        ("members none", "members 1", "x:8: members: expected 1, got none"),
        ("values 3 4", "values 3 5", "x:5: values: expected 3 5, got 3 4"),
        (
            "1 < ANSWER",
            "1 < HAVE",
            "x:6: frame: expected HAVE, got ANSWER chunk 0 members 0,1 values 3 4",
        ),
        (
            "1 < ANSWER\n",
            "",
            "x:6: frame: expected nothing more, got 1 < ANSWER chunk 0 members 0,1 values 3 4",
        ),
        ("1 < ANSWER", "1 < ANSWER flags CLAMPED", "x:6: flags: expected CLAMPED, got none"),
        ("1 < ANSWER", "1 < ANSWER cookie up", "x:6: cookie: expected"),
        ("1 < ANSWER", "1 < ANSWER exponent 1", "x:6: exponent: expected 1, got 0"),
        ("1 < ANSWER", "1 < ANSWER generation other", "x:6: generation: expected"),
        ("0 < HAVE chunk 1", "0 < HAVE chunk 1 count 0", "x:8: count: expected 0, got 32"),
        (
            "members none\n",
            "members none\n0 < HAVE\n",
            "x:9: frame: expected 0 < HAVE, got nothing",
        ),
        (
            "members none\n",
            "members none\ndrops duplicate 1\n",
            "x:9: drops: expected duplicate 1, got none",
        ),
        (
            "members none\n",
            "members none\nbank 0 0 SENT\n",
            "x:9: bank: expected SENT, got ANSWERED",
        ),
    ] {
        let Ended::Failed(differences) = ends(&good.replacen(from, to, 1)) else {
            panic!("{to:?} in the place of {from:?} went unnoticed");
        };
        let told = differences[0].to_string();
        assert!(told.starts_with(expected), "{told}, not {expected}");
    }
}
