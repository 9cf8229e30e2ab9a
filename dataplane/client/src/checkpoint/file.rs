//! Puts a checkpoint on a disk and takes it from there.
//!
//! Invariant: whatever instant the program or the machine stops at, the file is a whole old one or
//! a whole new one, or there is none yet: the new content goes to a file beside it, reaches the
//! disk, and takes the name at once; then the folder does.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::{Checkpoint, CheckpointError, Shape};

/// Why there is no checkpoint.
#[derive(thiserror::Error)]
pub enum FileError {
    /// It could not be written; the old one is still there.
    #[error(
        "cannot write the checkpoint `{path}`; give it a folder that this user may write: {cause}"
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: Error,
    },
    /// It could not be read.
    #[error("cannot read the checkpoint `{path}`: {cause}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: Error,
    },
    /// It was read, and is not what is wanted.
    #[error("the checkpoint `{path}` is refused: {source}")]
    Refused {
        /// The file.
        path: PathBuf,
        /// Why.
        source: CheckpointError,
    },
}

/// Writes a checkpoint in the place of the one that is there.
///
/// # Errors
/// [`FileError::Write`].
pub fn write(path: &Path, checkpoint: &Checkpoint) -> Result<(), FileError> {
    write_bytes(path, &checkpoint.encode())
        .map_err(|cause| FileError::Write { path: path.to_owned(), cause })
}

/// Reads a checkpoint of this shape; none when there is no file.
///
/// # Errors
/// [`FileError::Read`], [`FileError::Refused`].
pub fn read(path: &Path, shape: &Shape) -> Result<Option<Checkpoint>, FileError> {
    let bytes = match read_bytes(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(FileError::Read { path: path.to_owned(), cause }),
    };
    let checkpoint = Checkpoint::decode(&bytes, shape)
        .map_err(|source| FileError::Refused { path: path.to_owned(), source })?;
    Ok(Some(checkpoint))
}

/// Opens a file to read: a pipe of that name would wait for a writer.
pub(crate) fn open(path: &Path) -> std::io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    File::open(path)
}

pub(crate) fn read_bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn write_bytes(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let beside = beside(path);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    std::fs::rename(&beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{checkpoint, shape};
    use super::*;

    /// What is there, as bytes: one of its numbers is none, and so equals nothing.
    fn bytes_of(path: &Path) -> Option<Vec<u8>> {
        read(path, &shape()).unwrap().map(|checkpoint| checkpoint.encode())
    }

    #[test]
    fn a_crash_while_writing_leaves_the_old_checkpoint() {
        let folder = std::env::temp_dir().join(format!("weft-checkpoint-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("model.ckpt");
        assert_eq!(read(&path, &shape()).unwrap(), None);
        let old = checkpoint();
        write(&path, &old).unwrap();
        let mut new = checkpoint();
        new.position.round += 5;
        let bytes = new.encode();
        // A program that stopped at any byte left a part of the new file beside the old one.
        for len in [0, 1, 63, 64, bytes.len() - 1] {
            std::fs::write(beside(&path), &bytes[..len]).unwrap();
            assert_eq!(bytes_of(&path), Some(old.encode()));
        }
        write(&path, &new).unwrap();
        assert_eq!(bytes_of(&path), Some(bytes.clone()));
        assert!(!beside(&path).exists());
        std::fs::write(&path, &bytes[..70]).unwrap();
        let refused = read(&path, &shape()).unwrap_err().to_string();
        assert!(refused.contains("model.ckpt") && refused.contains("torn"), "{refused}");
        let nowhere = write(&folder.join("none").join("x"), &old).unwrap_err().to_string();
        assert!(nowhere.contains("may write"), "{nowhere}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
