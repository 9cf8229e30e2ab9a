//! The switch program's committed products are of its sources, its numbers are the engine's, and
//! where the compiler and the switch are, it compiles to the same and does what its scenarios say.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use weft_engine::drops::DropReason;
use weft_engine::role::{gather, switch};
use weft_engine::slot::counter;
use weft_tests::live::skip;

fn p4() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4")
}

fn text(path: impl AsRef<Path>) -> String {
    let path = p4().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Says that a test cannot run here; false where it can.
fn lacks(test: &str, program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let lacks = !found.is_ok_and(|output| output.status.success());
    if lacks {
        // The compilers may be missing even so: what they make is committed.
        let required = std::env::var_os("WEFT_REQUIRE_P4").is_some();
        let is_needed = required && program.starts_with("simple_switch");
        assert!(!is_needed, "{program} is not on PATH: docs/switch.md");
        skip(test, &format!("{program} is not on PATH"));
    }
    lacks
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

#[track_caller]
fn assert_success(output: &Output) {
    let said = [&output.stdout[..], &output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

/// `#define PREFIX_NAME number` of reasons.p4, names in lower case.
fn numbers(prefix: &str) -> BTreeMap<String, usize> {
    let defined = text("reasons.p4");
    let of_line = |line: &str| {
        let (name, number) = line.strip_prefix("#define ")?.split_once(' ')?;
        let name = name.strip_prefix(prefix)?.strip_prefix('_')?.to_lowercase();
        Some((name, number.parse().expect("a number")))
    };
    defined.lines().filter_map(of_line).collect()
}

/// The value of a plain `#define`.
fn defined(name: &str) -> usize {
    let text = text("reasons.p4");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("#define {name} ")));
    line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no number {name}"))
}

#[test]
fn the_committed_programs_are_of_the_committed_sources() {
    assert_success(&run(Command::new("sh").arg(p4().join("check"))));
}

#[test]
fn a_changed_source_is_noticed() {
    let copy = tempfile::tempdir().expect("a folder for the copy");
    let from = p4();
    let files = "*.p4 Makefile slim.py check build swx".split(' ');
    let files: Vec<_> = files.map(|file| format!("{}/{file}", from.display())).collect();
    let script = format!("cp -r {} .", files.join(" "));
    assert_success(&run(Command::new("sh").args(["-c", &script]).current_dir(&copy)));
    let check = || run(Command::new("sh").arg("./check").current_dir(&copy)).status.success();
    assert!(check(), "the copy is as the original");
    let product = "build/weft-v1model-32.json";
    let swx = ["swx/address.p4", "swx/new.p4", "swx/fit.py", "build/weft-swx-32.spec"];
    for changed in ["next_step.p4", "new.p4", "slim.py", product].into_iter().chain(swx) {
        let path = copy.path().join(changed);
        let before = fs::read(&path).ok();
        fs::write(&path, [before.clone().unwrap_or_default(), b"\n".to_vec()].concat()).unwrap();
        assert!(!check(), "{changed} has changed");
        match before {
            Some(before) => fs::write(&path, before).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
    }
    assert!(check());
}

#[test]
fn drop_reasons_have_the_engine_s_numbers() {
    let known: BTreeMap<_, _> =
        DropReason::ALL.iter().map(|(reason, name)| (*name, *reason as usize)).collect();
    assert_eq!(defined("REASONS"), DropReason::COUNT);
    let numbers = numbers("REASON");
    assert!(numbers.len() > 20, "the reasons are read");
    for (name, number) in numbers {
        assert_eq!(known.get(name.as_str()), Some(&number), "{name}");
    }
}

#[test]
fn transitions_have_the_engine_s_numbers() {
    let known: BTreeMap<_, _> = counter::Transition::ALL
        .iter()
        .map(|(transition, name)| (*name, *transition as usize))
        .collect();
    let windowed = numbers("TRANSITION");
    for (name, number) in &windowed {
        assert_eq!(known.get(name.as_str()), Some(number), "{name}");
    }
    // Those of whole leases follow, in the order in which the switch's counters are read.
    let name = |transition| gather::Transition::ALL.iter().find(|(known, _)| *known == transition);
    let known = switch::WHOLE.iter().zip(counter::Transition::COUNT..);
    let known: BTreeMap<_, _> = known
        .map(|(transition, code)| (name(*transition).expect("a name").1.to_owned(), code))
        .collect();
    assert_eq!(numbers("WHOLE"), known);
    assert_eq!(defined("TRANSITIONS"), switch::CODES);
}

#[test]
fn golden_pairs_are_of_the_committed_programs() {
    let sums = text("build/SOURCES.sha256");
    let folders = fs::read_dir(p4().join("golden")).expect("golden pairs are there");
    let mut count = 0;
    for folder in folders {
        let folder = folder.expect("a folder").path();
        let about: toml::Table = text(folder.join("about.toml")).parse().expect("TOML");
        let (elements, json) = (&about["elements"], about["json"].as_str().expect("a hash"));
        let line = format!("{json}  weft-v1model-{elements}.json");
        assert!(sums.contains(&line), "{}: make -C p4 golden", folder.display());
        count += 1;
    }
    assert!(count > 30, "{count} golden pairs");
}

#[test]
fn every_guard_that_is_broken_by_script_is_there() {
    let test = "every_guard_that_is_broken_by_script_is_there";
    let has_toml = Command::new("python3").args(["-c", "import tomllib"]).output();
    if !has_toml.is_ok_and(|output| output.status.success()) {
        return skip(test, "no python3 of 3.11");
    }
    assert_success(&run(Command::new("python3").arg(p4().join("mutants.py")).arg("--check")));
}

#[test]
fn the_compiler_makes_what_is_committed() {
    if lacks("the_compiler_makes_what_is_committed", "p4c-bm2-ss") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder to build in");
    let build = folder.path().join("build");
    let variable = format!("BUILD={}", build.display());
    assert_success(&run(Command::new("make").arg("-C").arg(p4()).args(["-B", &variable])));
    let first =
        |path: &Path| fs::read_to_string(path).expect("sums").lines().next().map(str::to_owned);
    if first(&build.join("SOURCES.sha256")) != first(&p4().join("build/SOURCES.sha256")) {
        skip("the_compiler_makes_what_is_committed", "another version of p4c made it");
        return;
    }
    for entry in fs::read_dir(&build).expect("products") {
        let path = entry.expect("a product").path();
        let name = path.file_name().expect("a name");
        let same = fs::read(&path).ok() == fs::read(p4().join("build").join(name)).ok();
        assert!(same, "{} differs: make -C p4", path.display());
    }
}

#[test]
fn the_switch_does_what_the_scenarios_say() {
    if lacks("the_switch_does_what_the_scenarios_say", "simple_switch")
        || lacks("the_switch_does_what_the_scenarios_say", "simple_switch_CLI")
    {
        return;
    }
    assert_success(&run(Command::new("python3").arg(p4().join("tests/run.py"))));
}

#[test]
fn the_program_for_swx_compiles() {
    if lacks("the_program_for_swx_compiles", "p4c-dpdk") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder to build in");
    let variable = format!("BUILD={}", folder.path().display());
    // Not SOURCES.sha256, which is of the committed programs.
    let product = folder.path().join("weft-swx-32.spec");
    let mut make = Command::new("make");
    make.arg("-C").arg(p4().join("swx")).args(["-B", &variable]).arg(&product);
    assert_success(&run(&mut make));
    assert!(product.is_file());
}

#[test]
fn swx_does_what_the_scenarios_say() {
    let test = "swx_does_what_the_scenarios_say";
    let output = run(Command::new("python3").arg(p4().join("swx/run.py")));
    // It says itself what is not here.
    if output.status.code() == Some(3) {
        let why = String::from_utf8_lossy(&output.stdout);
        return skip(test, why.trim_start_matches("SKIPPED ").trim_end());
    }
    assert_success(&output);
}
