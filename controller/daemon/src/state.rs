//! The state file: what boxes cannot tell after a restart.
//!
//! Invariant: whatever instant the machine stops at, the file is a whole old one or a whole new
//! one: the new content goes to a file beside it, reaches the disk, and takes the name at once;
//! then the directory does.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use weft_controller_engine::Saved;

use crate::error::DaemonError;

/// Reads the state; none when there is no file yet.
///
/// # Errors
/// There is a file and it is not a state of this format.
pub fn read(path: &Path) -> Result<Option<Saved>, DaemonError> {
    let state = |problem: &dyn ToString| DaemonError::State {
        path: path.to_owned(),
        problem: problem.to_string(),
    };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(state(&error)),
    };
    let saved: Saved = serde_json::from_str(&text).map_err(|error| state(&error))?;
    match saved.schema {
        1 => Ok(Some(saved)),
        other => Err(state(&format!("schema {other} is not 1"))),
    }
}

/// Replaces the state.
///
/// # Errors
/// The directory cannot be written to; the old state is still there.
pub fn write(path: &Path, saved: &Saved) -> Result<(), DaemonError> {
    try_write(path, saved)
        .map_err(|source| DaemonError::SaveState { path: path.to_owned(), source })
}

fn try_write(path: &Path, saved: &Saved) -> std::io::Result<()> {
    let beside = beside(path);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&beside)?;
    file.write_all(serde_json::to_string(saved)?.as_bytes())?;
    file.sync_all()?;
    drop(file);
    std::fs::rename(&beside, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_while_writing_leaves_the_old_state() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        assert_eq!(read(&path).unwrap(), None);
        let old = Saved::fresh(3);
        write(&path, &old).unwrap();
        // A controller that stopped half-way leaves a part of the new file beside the old one.
        std::fs::write(beside(&path), "{\"schema\":1,\"generat").unwrap();
        assert_eq!(read(&path).unwrap().as_ref(), Some(&old));
        let new = Saved::fresh(4);
        write(&path, &new).unwrap();
        assert_eq!(read(&path).unwrap(), Some(new));
        assert!(!beside(&path).exists());
    }

    #[test]
    fn a_file_that_is_no_state_is_an_error_and_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        for text in
            ["", "{}", "{\"schema\":2,\"generation_ceiling\":0,\"jobs\":{},\"registered\":[]}"]
        {
            std::fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains("move it away"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
