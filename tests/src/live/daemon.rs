//! A program of this build with a configuration that a test wrote: killed and started again at
//! will.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde::Serialize;
use weft_config::to_toml;

use super::program;

/// A program of this build, started again from the same file.
#[derive(Debug)]
pub struct Program {
    program: PathBuf,
    file: PathBuf,
    child: Child,
}

impl Program {
    /// Starts it with a file of this name in a directory.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(
        directory: &Path,
        name: &str,
        program_name: &str,
        config: &impl Serialize,
    ) -> Self {
        let file = directory.join(format!("{name}.toml"));
        fs::write(&file, to_toml(config)).expect("a file in a temporary directory");
        let program = program(program_name);
        let child = spawn(&program, &file);
        Self { program, file, child }
    }

    /// Kills it without a word.
    ///
    /// # Panics
    /// When it has ended by itself.
    pub fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    /// Starts it again from the same file.
    pub fn restart(&mut self) {
        self.child = spawn(&self.program, &self.file);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &Path, file: &Path) -> Child {
    let log = fs::File::options().create(true).append(true).open(file.with_extension("log"));
    let mut command = Command::new(program);
    command.arg("--config").arg(file).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(log.expect("a file in a temporary directory")).spawn().expect("it starts")
}
