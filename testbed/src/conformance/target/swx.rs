//! The program for DPDK's SWX pipeline, by `p4/swx/driver.py`: lines to it, lines from it.
//!
//! The driver waits until a frame is over before it says what came of it, so nothing is late.

use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use weft_engine::role::switch::{Counter, Rendered, Write};
use weft_p4_interpreter::TableInfo;

use super::names::{table_words, tables_of};
use super::switch::{Sent, Switch};
use super::{Refused, on_path};

/// The target and its driver.
#[derive(Debug)]
pub struct Swx {
    program: PathBuf,
    /// The order of keys and parameters, which is that of the program for v1model.
    tables: Vec<TableInfo>,
    driver: Driver,
}

/// A running driver, which ends with its input.
#[derive(Debug)]
struct Driver {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        // It ends the pipeline, which a signal to the driver alone would leave behind.
        self.to = None;
        let _ = self.child.wait();
    }
}

impl Driver {
    /// Starts the driver beside the folder of `program`, `weft-v1model-ELEMENTS.json`.
    fn start(program: &Path) -> Result<Self, Refused> {
        let failed = |problem: String| Refused::Failed(format!("{DRIVER}: {problem}"));
        let folder = program.parent().unwrap_or_else(|| Path::new("."));
        let script = folder.join("..").join(DRIVER);
        if !script.is_file() {
            return Err(Refused::Skipped(format!("there is no {}", script.display())));
        }
        let stem = program.file_stem().unwrap_or_default().to_string_lossy();
        let elements = stem.rsplit('-').next().unwrap_or_default();
        let mut command = Command::new(PYTHON);
        command.arg(script).args(["--elements", elements, "--build"]).arg(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let to = child.stdin.take();
        let from = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let mut driver = Self { child, to, from };
        let said = driver.line().map_err(failed)?;
        match said.split_once(' ') {
            None if said == "ready" => Ok(driver),
            Some(("skipped", reason)) => Err(Refused::Skipped(reason.to_owned())),
            _ => Err(failed(said)),
        }
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.from.read_line(&mut line) {
            Ok(0) => Err("it has ended".to_owned()),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn tell(&mut self, command: &str) -> Result<(), String> {
        let to = self.to.as_mut().expect("it is open while this lives");
        writeln!(to, "{command}").map_err(|error| format!("{DRIVER}: {error}"))
    }

    /// Gives it a command that is answered by `ok`.
    fn run(&mut self, command: &str) -> Result<(), String> {
        self.tell(command)?;
        match self.line()? {
            said if said == "ok" => Ok(()),
            said => Err(said),
        }
    }

    /// Gives it a frame; what came of it.
    fn pass(&mut self, port: u16, frame: &[u8]) -> Result<Sent, String> {
        let octets: String = frame.iter().map(|octet| format!("{octet:02x}")).collect();
        self.tell(&format!("frame {port} {octets}"))?;
        let mut sent = Sent::new();
        loop {
            let said = self.line()?;
            match said.split(' ').collect::<Vec<_>>()[..] {
                ["ok"] => return Ok(sent),
                ["frame", port, octets] => {
                    let came = port.parse().ok().zip(octets_of(octets));
                    sent.push(came.ok_or_else(|| format!("no frame: {said}"))?);
                }
                _ => return Err(said),
            }
        }
    }
}

/// The octets that a text has in hexadecimal; `None` where it has none.
fn octets_of(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

impl Swx {
    /// Why there is none here, if there is none.
    pub(super) fn absence() -> Option<String> {
        if on_path(PYTHON).is_none() {
            return Some(format!("{PYTHON} is not on PATH"));
        }
        let is_named = std::env::var_os(PIPELINE).is_some_and(|file| Path::new(&file).is_file());
        (!is_named).then(|| format!("{PIPELINE} names no program (docs/p4-targets.md)"))
    }
}

impl Switch for Swx {
    fn start(program: PathBuf, _ports: Vec<u16>) -> Result<Self, Refused> {
        let tables = tables_of(&program).map_err(Refused::Failed)?;
        let driver = Driver::start(&program)?;
        Ok(Self { program, tables, driver })
    }

    fn write(&mut self, write: &Write) -> Result<(), String> {
        let is_delete = matches!(write, Write::Delete(_));
        let table = match write.entry().render() {
            Rendered::Group { id, nodes } => {
                let nodes = if is_delete { &[][..] } else { nodes };
                let nodes = nodes.iter().map(|(port, instance)| format!(" {port}:{instance}"));
                return self.driver.run(&format!("group {id}{}", nodes.collect::<String>()));
            }
            // Meters count real time, which is none of a script's: they stay green.
            Rendered::Meter { .. } => return Ok(()),
            Rendered::Table(table) => table,
        };
        let how = match write {
            Write::Insert(_) => "insert",
            Write::Modify(_) => "modify",
            Write::Delete(_) => "delete",
        };
        let words = table_words(&self.tables, &table)?;
        let (name, action) = (table.table, table.action);
        self.driver.run(&format!("{how} {name} {action} {} => {}", words.keys, words.params))
    }

    fn pass(&mut self, port: u16, frame: &[u8]) -> Result<Sent, String> {
        self.driver.pass(port, frame)
    }

    fn read(&mut self, counter: Counter, cells: Range<u32>) -> Result<Vec<u64>, String> {
        if cells.is_empty() {
            return Ok(Vec::new());
        }
        self.driver.tell(&format!("read {} {} {}", counter.name(), cells.start, cells.len()))?;
        let said = self.driver.line()?;
        let values = said.strip_prefix("value ").ok_or_else(|| said.clone())?;
        let values = values.split(' ').map(|value| value.parse().map_err(|_| said.clone()));
        values.collect()
    }

    fn restart(&mut self) -> Result<(), String> {
        // The old one ends once the new one is there.
        let started = Driver::start(&self.program);
        self.driver = started.map_err(|refused| format!("it does not start: {refused:?}"))?;
        Ok(())
    }
}

const PYTHON: &str = "python3";
const DRIVER: &str = "swx/driver.py";
const PIPELINE: &str = "WEFT_SWX_PIPELINE";
