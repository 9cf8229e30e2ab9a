//! The commands and files that documents show, as a reader types them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A command line of a document.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Shown {
    /// The document, from the repository's root.
    pub document: String,
    /// The line, from 1.
    pub line: usize,
    /// The command without its comment.
    pub command: String,
}

/// Every command line of README.md, CONTRIBUTING.md and the pages of `docs`: lines of blocks that
/// say `sh`, and indented lines that begin with a program of Weft's.
///
/// # Errors
/// A document that cannot be read.
pub fn commands(root: &Path) -> io::Result<Vec<Shown>> {
    let mut all = Vec::new();
    for document in documents(root)? {
        let text = fs::read_to_string(root.join(&document))?;
        let mut is_shell = false;
        let lines = text.lines().enumerate().filter(|(_, line)| {
            let Some(language) = line.strip_prefix("```") else {
                return is_shell || line.starts_with("    weft");
            };
            is_shell = language == "sh";
            false
        });
        for (index, command) in joined(lines) {
            let document = document.display().to_string();
            all.push(Shown { document, line: index + 1, command });
        }
    }
    Ok(all)
}

/// The command lines of a recipe's comment, which are its indented lines.
#[must_use]
pub fn of_recipe(recipe: &str) -> Vec<String> {
    let lines = recipe.lines().filter_map(|line| line.strip_prefix("#   "));
    joined(lines.enumerate()).into_iter().map(|(_, command)| command).collect()
}

/// Commands without their comments, and where they begin. A backslash at the end of a line joins it
/// to the next.
fn joined<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    let mut begun: Option<(usize, String)> = None;
    for (index, line) in lines {
        let part = without_comment(line.trim());
        if part.is_empty() {
            continue;
        }
        let (first, mut command) = begun.take().unwrap_or((index, String::new()));
        if let Some(part) = part.strip_suffix('\\') {
            command.push_str(part);
            begun = Some((first, command));
            continue;
        }
        command.push_str(part);
        all.push((first, command));
    }
    all
}

/// The first block of `language` in a document that holds `mark`.
///
/// # Errors
/// A document that cannot be read, or has no such block.
pub fn block(root: &Path, document: &str, language: &str, mark: &str) -> io::Result<String> {
    let text = fs::read_to_string(root.join(document))?;
    let start = format!("```{language}\n");
    let blocks = text.split(&start).skip(1).filter_map(|rest| rest.split_once("\n```"));
    let found = blocks.map(|(block, _)| block).find(|block| block.contains(mark));
    found.map(str::to_owned).ok_or_else(|| {
        io::Error::other(format!("{document} has no block of {language} with {mark}"))
    })
}

fn documents(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![PathBuf::from("README.md"), PathBuf::from("CONTRIBUTING.md")];
    for entry in fs::read_dir(root.join("docs"))? {
        let name = PathBuf::from(entry?.file_name());
        if name.extension().is_some_and(|extension| extension == "md") {
            found.push(Path::new("docs").join(name));
        }
    }
    found.sort();
    Ok(found)
}

/// A comment begins with a `#` behind a space, or at the beginning.
fn without_comment(line: &str) -> &str {
    if line.starts_with('#') {
        return "";
    }
    line.split_once(" #").map_or(line, |(command, _)| command).trim_end()
}
