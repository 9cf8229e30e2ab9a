//! A file that one process at a time may have, whatever that file stands for.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

/// Makes a file if need be, and locks it until what is returned, or this process, ends; `None`
/// where another has it.
///
/// # Errors
/// The kernel's.
pub fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
