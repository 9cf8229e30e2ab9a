//! Finds what commands left behind that were killed with SIGKILL: labs whose process is gone, and
//! files in the temporary folder that carry the id of a process that is gone.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{LabError, LabName, list};

/// Something that was left.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Left {
    /// Namespaces.
    Lab(LabName),
    /// A folder, or the socket of a memif.
    File(PathBuf),
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lab(name) => write!(f, "lab {name}"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// All that was left.
///
/// # Errors
/// When `ip` cannot be run.
pub fn find() -> Result<Vec<Left>, LabError> {
    let names = list()?.into_iter().filter_map(|entry| entry.name.parse::<LabName>().ok());
    let labs = names.filter(|name| name.owner().is_some() && !is_of_running_command(name));
    Ok(labs.map(Left::Lab).chain(files().into_iter().map(Left::File)).collect())
}

/// Files and folders of processes that are gone.
#[must_use]
pub fn files() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return Vec::new() };
    let is_left = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        owner_of_file(&name).is_some_and(|pid| !is_running(pid))
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.retain(is_left);
    found.sort_unstable();
    found
}

/// Whether the command that made a lab for itself still runs.
#[must_use]
pub fn is_of_running_command(name: &LabName) -> bool {
    name.owner().is_some_and(is_running)
}

fn is_running(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Removes what [`files`] found.
///
/// # Errors
/// The system's.
pub fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

/// The process whose id a name of ours carries: `weft-bench-123`, `weft-123.memif`.
fn owner_of_file(name: &str) -> Option<u32> {
    let rest = name.strip_prefix("weft-")?;
    let digits = rest.strip_prefix("bench-").or_else(|| rest.strip_suffix(".memif"))?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::plan::KINDS;

    #[test]
    fn only_names_with_the_id_of_a_process_are_ours() {
        assert_eq!(owner_of_file("weft-bench-12"), Some(12));
        assert_eq!(owner_of_file("weft-34.memif"), Some(34));
        for name in ["weft-bench-x", "weft-12", "bench-12", "weft-.memif", "weft-bench-1-2"] {
            assert_eq!(owner_of_file(name), None, "{name}");
        }
    }

    #[test]
    fn a_lab_of_this_process_is_not_left() {
        let name = LabName::of_this_process("run");
        assert!(is_of_running_command(&name));
        // Process ids end far below.
        let gone: LabName = "probe4294967295".parse().unwrap();
        assert!(!is_of_running_command(&gone) && gone.owner().is_some());
        for kind in KINDS {
            assert_eq!(LabName::of_this_process(kind).owner(), Some(std::process::id()), "{kind}");
        }
        let named: LabName = "runner1".parse().unwrap();
        assert_eq!(named.owner(), None);
    }
}
