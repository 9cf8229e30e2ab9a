//! `weft conformance`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, anyhow};
use clap::Args;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use weft_process::say;
use weft_testbed::conformance::target::Kind;
use weft_testbed::conformance::{Ended, Script, cells, parse, play};
use weft_testbed::run::SWITCH_PROGRAM;

use super::{Exit, Failure, Format, Outcome, emit, emit_csv, emit_json, input};

#[derive(Debug, Args)]
pub(crate) struct ConformanceArgs {
    /// What the scripts are played to; may be given more than once. By default all that are here.
    #[arg(long, value_parser = ["rust", "json", "bmv2", "swx"])]
    target: Vec<String>,
    /// Write the scripts that proto/vectors/slot.toml stands for into this folder, and play none.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["target", "scripts"])]
    from_table: Option<PathBuf>,
    /// Write the verdicts as a table into this document, behind its heading "Verdicts".
    #[arg(long, value_name = "DOCUMENT", conflicts_with_all = ["from_table"])]
    table: Option<PathBuf>,
    /// Where the compiled P4 programs are.
    #[arg(long, value_name = "FOLDER", default_value = SWITCH_PROGRAM, value_parser = input())]
    programs: PathBuf,
    /// Scripts, or folders of them.
    #[arg(value_name = "SCRIPT", default_value = "tests/conformance", value_parser = input())]
    scripts: Vec<PathBuf>,
}

/// A script and a target. Outside scripts read these names.
#[derive(Debug, Serialize)]
struct Row {
    script: String,
    target: &'static str,
    verdict: &'static str,
    detail: String,
}

pub(crate) fn run(arguments: &ConformanceArgs, format: Format) -> Outcome {
    if let Some(folder) = &arguments.from_table {
        return write_cells(folder);
    }
    let mut files = Vec::new();
    for path in &arguments.scripts {
        collect(path, &mut files).map_err(|error| Exit::Usage.because(error))?;
    }
    if files.is_empty() {
        return Err(Exit::Usage.because(anyhow!("no script in the folders that were given")));
    }
    let scripts: Vec<Script> = files.iter().map(|file| read(file)).collect::<Result<_, _>>()?;
    let mut rows = Vec::new();
    let mut targets = Vec::new();
    for (kind, target) in Kind::ALL {
        if arguments.target.is_empty() {
            if let Some(reason) = kind.absence() {
                say!("weft conformance: {target} is left out: {reason}");
                continue;
            }
        } else if !arguments.target.iter().any(|asked| asked == target) {
            continue;
        }
        targets.push(target);
        rows.extend(scripts.iter().map(|script| row(script, kind, target, &arguments.programs)));
    }
    if let Some(document) = &arguments.table {
        let table = table(&rows, &targets, &made_with(arguments, &targets));
        write_table(document, &table).map_err(|error| Exit::Failed.because(error))?;
    }
    match format {
        Format::Text => emit(&text(&rows))?,
        Format::Json => emit_json(&rows)?,
        Format::Csv => emit_csv(&rows)?,
    }
    let has = |verdict| rows.iter().any(|row| row.verdict == verdict);
    Ok(if has("fail") {
        Exit::Failed as u8
    } else if has("pass") {
        0
    } else {
        Exit::CannotRun as u8
    })
}

fn row(script: &Script, kind: Kind, target: &'static str, programs: &Path) -> Row {
    let (verdict, detail) = match play(script, kind, programs) {
        Ended::Passed => ("pass", String::new()),
        Ended::Skipped(reason) => ("skipped", reason),
        Ended::Failed(differences) => {
            let lines: Vec<String> = differences.iter().map(ToString::to_string).collect();
            ("fail", lines.join("\n"))
        }
    };
    Row { script: script.file.clone(), target, verdict, detail }
}

fn text(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.script.len()).max().unwrap_or(0);
    let lines = rows.iter().map(|row| {
        let detail = row.detail.replace('\n', "\n    ");
        let line = format!("{:<width$} {:<6} {:<7}  {detail}", row.script, row.target, row.verdict);
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}

/// A script a line and a target a column; reasons to skip one are notes below.
fn table(rows: &[Row], targets: &[&str], made_with: &str) -> String {
    let mut reasons: Vec<&str> = Vec::new();
    let mut lines: Vec<(&str, String)> = Vec::new();
    for row in rows {
        let cell = match row.verdict {
            "skipped" => {
                let at = reasons.iter().position(|reason| *reason == row.detail);
                let at = at.unwrap_or_else(|| {
                    reasons.push(&row.detail);
                    reasons.len() - 1
                });
                format!(" skipped ({}) |", at + 1)
            }
            verdict => format!(" {verdict} |"),
        };
        match lines.iter_mut().find(|(script, _)| *script == row.script) {
            Some((_, cells)) => *cells += &cell,
            None => lines.push((&row.script, cell)),
        }
    }
    let head: String = targets.iter().map(|target| format!(" {target} |")).collect();
    let mut text =
        format!("{made_with}\n\n| script |{head}\n|{}\n", " --- |".repeat(targets.len() + 1));
    for (script, cells) in lines {
        let name = script.strip_prefix("tests/conformance/").unwrap_or(script);
        text += &format!("| `{}` |{cells}\n", name.strip_suffix(".script").unwrap_or(name));
    }
    for (reason, number) in reasons.iter().zip(1..) {
        text += &format!("{}{number}. {reason}\n", if number == 1 { "\n" } else { "" });
    }
    text
}

/// When and with what the table was made.
fn made_with(arguments: &ConformanceArgs, targets: &[&str]) -> String {
    let day = time::OffsetDateTime::now_utc().date();
    let said = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let mut switch = said("simple_switch", &["--version"]).map_or_else(
        || "without simple_switch".to_owned(),
        |version| format!("simple_switch {version}"),
    );
    if targets.contains(&Kind::Swx.name()) {
        let version = said("pkg-config", &["--modversion", "libdpdk"]);
        switch += &format!(", the SWX pipeline of DPDK {}", version.unwrap_or_default());
    }
    let program = fs::read(arguments.programs.join("SOURCES.sha256")).map_or_else(
        |_| "no programs".to_owned(),
        |sums| Sha256::digest(sums).iter().take(6).map(|byte| format!("{byte:02x}")).collect(),
    );
    format!(
        "Made by `weft conformance --table docs/conformance.md` on {day}:\n\
         Weft {}, {switch},\n\
         the programs whose `p4/build/SOURCES.sha256` has the SHA-256 {program}….",
        env!("CARGO_PKG_VERSION")
    )
}

fn write_table(document: &Path, table: &str) -> anyhow::Result<()> {
    let told = || format!("writing the table into {}", document.display());
    let text = fs::read_to_string(document).with_context(told)?;
    let found = text.split_once(VERDICTS);
    let (before, _) = found.ok_or_else(|| anyhow!("no heading \"Verdicts\"")).with_context(told)?;
    fs::write(document, format!("{before}{VERDICTS}\n{table}")).with_context(told)
}

const VERDICTS: &str = "\n## Verdicts\n";

/// The scripts at a path, in order of their names.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let entries = fs::read_dir(path).with_context(|| format!("reading {}", path.display()))?;
    let mut entries: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    entries.sort();
    for entry in entries {
        if entry.is_dir() {
            collect(&entry, files)?;
        } else if entry.extension().is_some_and(|extension| extension == "script") {
            files.push(entry);
        }
    }
    Ok(())
}

fn read(file: &Path) -> Result<Script, Failure> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()));
    let text = text.map_err(|error| Exit::Usage.because(error))?;
    parse(&file.display().to_string(), &text).map_err(|error| Exit::Usage.because(error))
}

fn write_cells(folder: &Path) -> Outcome {
    let write = || -> anyhow::Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        for (name, text) in cells::scripts().map_err(|problem| anyhow!(problem))? {
            let file = folder.join(format!("{name}.script"));
            fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        }
        Ok(())
    };
    write().map_err(|error| Exit::Failed.because(error))?;
    Ok(0)
}
