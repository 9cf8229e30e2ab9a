//! `weft completions` and `weft man`: what `make install` puts beside the programs.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;

use super::{Exit, Outcome, emit};

/// Arguments of `weft completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
    /// The program: weft, weft-node or weft-controller
    #[arg(long, value_name = "NAME", default_value = "weft")]
    program: String,
}

/// Arguments of `weft man`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// The folder, made if it is not there
    folder: PathBuf,
}

/// Prints the completions of one program.
pub(crate) fn completions(
    arguments: &CompletionsArgs,
    programs: impl IntoIterator<Item = Command>,
) -> Outcome {
    let name = &arguments.program;
    let program = programs.into_iter().find(|program| program.get_name() == name);
    let mut program = program.ok_or_else(|| {
        let problem = "is no program of Weft; expected weft, weft-node or weft-controller";
        Exit::Usage.because(anyhow::anyhow!("--program: `{name}` {problem}"))
    })?;
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut program, name, &mut text);
    emit(&String::from_utf8_lossy(&text))?;
    Ok(0)
}

/// Writes a page for each program and each of their commands.
pub(crate) fn man(arguments: &ManArgs, programs: impl IntoIterator<Item = Command>) -> Outcome {
    let write = || -> anyhow::Result<()> {
        fs::create_dir_all(&arguments.folder)?;
        for program in programs {
            clap_mangen::generate_to(program, &arguments.folder)?;
        }
        Ok(())
    };
    let result = write();
    result
        .with_context(|| format!("writing manual pages into {}", arguments.folder.display()))
        .map_err(|error| Exit::Failed.because(error))?;
    Ok(0)
}
