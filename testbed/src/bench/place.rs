//! Where a bench runs: its CPUs and its folder.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use super::BenchError;

/// The CPUs that this process may use, in order.
#[must_use]
pub fn allowed_cpus() -> Vec<u32> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return Vec::new() };
    let allowed = (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false));
    allowed.filter_map(|cpu| u32::try_from(cpu).ok()).collect()
}

/// A folder for a bench's files; removed with this handle unless the user named it.
#[derive(Debug)]
pub struct ScratchDir {
    path: PathBuf,
    keep: bool,
}

impl ScratchDir {
    /// Makes the folder: `keep`, or one of our own in the system's temporary folder.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new(keep: Option<&Path>) -> Result<Self, BenchError> {
        let own = std::env::temp_dir().join(format!("weft-bench-{}", std::process::id()));
        let path = keep.map_or(own, Path::to_owned);
        let told = if keep.is_some() { "" } else { ", where TMPDIR says or /tmp" };
        fs::create_dir_all(&path)
            .map_err(BenchError::system(format!("making {}{told}", path.display())))?;
        Ok(Self { path, keep: keep.is_some() })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if !self.keep {
            // What is left in the temporary folder does no harm.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
