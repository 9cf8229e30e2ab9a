//! The state file: what boxes cannot tell after a restart.
//!
//! Invariants: whatever instant the machine stops at, the file is a whole old one or a whole new
//! one: the new content goes to a file beside it, reaches the disk, and takes the name at once;
//! then the directory does. One process at a time has it, by a lock on a file beside it. It is an
//! object of JSON. Its last member, `crc32c`, covers all octets before that member; a file without
//! it is of an older version, or was written by hand, and is taken as it is.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crc_fast::{CrcAlgorithm, checksum};
use weft_controller_engine::Saved;
use weft_process::lock::lock;

use crate::error::DaemonError;

/// A state file that this process alone has.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    /// Held for the lock that is on it.
    _lock: File,
}

impl StateFile {
    /// Locks the file and reads the state; none when there is no file yet.
    ///
    /// # Errors
    /// Another controller has it; or there is a file and it is not a whole state of this format.
    pub fn open(path: PathBuf) -> Result<(Self, Option<Saved>), DaemonError> {
        let state = |problem: &dyn ToString| DaemonError::State {
            path: path.clone(),
            problem: problem.to_string(),
        };
        let failed = |source| DaemonError::SaveState { path: path.clone(), source };
        let lock = lock(&beside(&path, ".lock")).map_err(failed)?;
        let lock = lock.ok_or_else(|| DaemonError::StateTaken { path: path.clone() })?;
        let saved = match std::fs::read_to_string(&path) {
            Ok(text) => Some(parse(&text).map_err(|problem| state(&problem))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(state(&error)),
        };
        Ok((Self { path, _lock: lock }, saved))
    }

    /// Replaces the state.
    ///
    /// # Errors
    /// The directory cannot be written to; the old state is still there.
    pub fn write(&self, saved: &Saved) -> Result<(), DaemonError> {
        let path = &self.path;
        try_write(path, saved)
            .map_err(|source| DaemonError::SaveState { path: path.clone(), source })
    }
}

/// Reads the text of a state file.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<Saved, String> {
    let mut text = text.trim_end().to_owned();
    if let Some(at) = text.rfind(CRC_MEMBER) {
        let content = text[..at].to_owned() + "}";
        if text[at..] != crc_member(&content) {
            return Err("its crc32c is of another content".to_owned());
        }
        text = content;
    }
    let saved: Saved = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    match saved.schema {
        1 => Ok(saved),
        other => Err(format!("schema {other} is not 1")),
    }
}

fn try_write(path: &Path, saved: &Saved) -> io::Result<()> {
    let mut text = serde_json::to_string(saved)?;
    let crc = crc_member(&text);
    text.truncate(text.len() - 1);
    text += &crc;
    let beside = beside(path, ".new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    drop(file);
    std::fs::rename(&beside, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

/// The checksum of an object as its last member, with the brace behind it.
fn crc_member(object: &str) -> String {
    let crc = checksum(CrcAlgorithm::Crc32Iscsi, object.as_bytes());
    format!("{CRC_MEMBER}{crc:08x}\"}}")
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// The beginning of the last member.
const CRC_MEMBER: &str = ",\"crc32c\":\"";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> Result<Option<Saved>, DaemonError> {
        StateFile::open(path.to_owned()).map(|(_, saved)| saved)
    }

    fn write(path: &Path, saved: &Saved) {
        StateFile::open(path.to_owned()).unwrap().0.write(saved).unwrap();
    }

    #[test]
    fn a_crash_while_writing_leaves_the_old_state() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        assert_eq!(read(&path).unwrap(), None);
        let old = Saved::fresh(3);
        write(&path, &old);
        // A controller that stopped half-way leaves a part of the new file beside the old one.
        std::fs::write(beside(&path, ".new"), "{\"schema\":1,\"generat").unwrap();
        assert_eq!(read(&path).unwrap().as_ref(), Some(&old));
        let new = Saved::fresh(4);
        write(&path, &new);
        assert_eq!(read(&path).unwrap(), Some(new));
        assert!(!beside(&path, ".new").exists());
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

    /// A disk that lies: every bit of it, in turn.
    #[test]
    fn a_file_with_a_flipped_bit_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        write(&path, &Saved::fresh(3));
        let whole = std::fs::read(&path).unwrap();
        let flip = |bit: usize| {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, bytes).unwrap();
        };
        for bit in 0..8 * whole.len() {
            flip(bit);
            assert!(read(&path).is_err(), "bit {bit} of {}", String::from_utf8_lossy(&whole));
        }
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(read(&path).unwrap(), Some(Saved::fresh(3)));
        // It is JSON to all others, and one without the member is of an older version.
        let json: serde_json::Value = serde_json::from_slice(&whole).unwrap();
        assert_eq!(json["crc32c"].as_str().unwrap().len(), 8);
        std::fs::write(&path, serde_json::to_string(&Saved::fresh(9)).unwrap()).unwrap();
        assert_eq!(read(&path).unwrap(), Some(Saved::fresh(9)));
    }
}
