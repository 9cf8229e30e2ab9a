//! The system calls that a job's files are kept with, and nothing else, so that a test can stop
//! them anywhere.
//!
//! What is appended is there after the machine's end once the file was synchronised; a name, once
//! the directory was.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use weft_process::lock::lock;

use crate::error::NodeError;

/// A directory of one job.
pub(super) trait Disk: Debug + Send + Sync {
    /// Where it is.
    fn path(&self) -> &Path;

    /// The names in it.
    fn list(&self) -> io::Result<Vec<String>>;

    /// A whole file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Makes a file, or empties the one that is there.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Gives a file another name, and takes that from the file that had it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names durable.
    fn sync(&self) -> io::Result<()>;
}

/// A file that is written from its beginning to its end.
pub(super) trait DiskFile: Debug + Send {
    /// Appends; after an error any part of it may be there.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes what was appended durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// A directory of the file system, locked.
#[derive(Debug)]
pub(super) struct LockedDirectory {
    path: PathBuf,
    /// Held for the lock that is on it.
    _lock: File,
}

impl LockedDirectory {
    /// Makes the directory if need be, and locks it.
    pub(super) fn open(path: PathBuf) -> Result<Self, NodeError> {
        let denied = |error: io::Error| NodeError::State {
            path: path.clone(),
            problem: format!(
                "cannot be written: {error}; give server.state_dir a directory that this user may \
                 write"
            ),
        };
        fs::create_dir_all(&path).map_err(denied)?;
        sync_parents(&path);
        match lock(&path.join("lock")).map_err(denied)? {
            Some(lock) => Ok(Self { path, _lock: lock }),
            None => Err(NodeError::State {
                path,
                problem: "another weft-node serves from it; end that one first".to_owned(),
            }),
        }
    }
}

impl Disk for LockedDirectory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names =
            fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        names.filter_map(Result::transpose).collect()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path.join(name))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::create(self.path.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

impl DiskFile for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// A directory that was just made lasts when the one that it is in does. Those further up may be
/// somebody else's, who then saw to it.
fn sync_parents(path: &Path) {
    for parent in path.ancestors().skip(1) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        if File::open(parent).and_then(|directory| directory.sync_all()).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    /// The system refuses to make a device durable: so it was asked.
    #[test]
    fn files_and_names_are_made_durable_by_the_system() {
        let device = PathBuf::from("/dev/null");
        let open = || OpenOptions::new().append(true).open(&device).expect("every system has it");
        let mut file: Box<dyn DiskFile> = Box::new(open());
        file.append(b"lost").expect("it takes all");
        file.sync().expect_err("a device keeps nothing");
        let names = LockedDirectory { path: device.clone(), _lock: open() };
        names.sync().expect_err("nor has it names");
    }
}
