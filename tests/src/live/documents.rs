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
        // What ends in a backslash goes on in the next line.
        let mut begun: Option<(usize, String)> = None;
        for (index, line) in text.lines().enumerate() {
            if let Some(language) = line.strip_prefix("```") {
                is_shell = language == "sh";
                continue;
            }
            let is_indented = line.starts_with("    weft");
            let part = without_comment(line.trim());
            if !(is_shell || is_indented) || part.is_empty() {
                continue;
            }
            let (line, mut command) = begun.take().unwrap_or((index + 1, String::new()));
            if let Some(part) = part.strip_suffix('\\') {
                command.push_str(part);
                begun = Some((line, command));
                continue;
            }
            command.push_str(part);
            all.push(Shown { document: document.display().to_string(), line, command });
        }
    }
    Ok(all)
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
