//! Files that belong together: all are written under other names and renamed at the end, so that
//! those of an earlier run stay whole until then, and never stand beside newer ones.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use weft_testbed::interrupt;

use super::{Exit, Failure};

/// Files of a directory that are being written.
#[derive(Debug)]
pub(crate) struct Staged {
    directory: PathBuf,
    names: Vec<String>,
}

impl Staged {
    /// Makes the directory. From now on a signal is noted, and [`publish`](Self::publish) heeds it.
    pub(crate) fn create(directory: &Path) -> Result<Self, Failure> {
        interrupt::listen().map_err(|error| Exit::Failed.because(error))?;
        done(fs::create_dir_all(directory), "creating", directory)?;
        Ok(Self { directory: directory.to_owned(), names: Vec::new() })
    }

    /// Where to write what will be `name`.
    pub(crate) fn path(&mut self, name: &str) -> PathBuf {
        self.names.push(name.to_owned());
        self.temporary(name)
    }

    /// Writes what will be `name`.
    pub(crate) fn write(&mut self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.path(name);
        done(fs::write(&path, text), "writing", &path)
    }

    /// Gives all files their names, in the order in which they came.
    pub(crate) fn publish(self) -> Result<(), Failure> {
        if interrupt::is_raised() {
            return Err(Exit::Interrupted.because(anyhow!("before the files were in place")));
        }
        // Whoever finds the last name finds all of one run.
        for path in self.names.iter().skip(1).map(|name| self.directory.join(name)) {
            if path.exists() {
                done(fs::remove_file(&path), "replacing", &path)?;
            }
        }
        for name in &self.names {
            let path = self.directory.join(name);
            done(fs::rename(self.temporary(name), &path), "replacing", &path)?;
        }
        Ok(())
    }

    fn temporary(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.tmp"))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        for name in &self.names {
            // What was renamed is not there.
            let _ = fs::remove_file(self.temporary(name));
        }
    }
}

fn done(result: std::io::Result<()>, doing: &str, path: &Path) -> Result<(), Failure> {
    result
        .with_context(|| format!("{doing} {}", path.display()))
        .map_err(|error| Exit::Failed.because(error))
}
