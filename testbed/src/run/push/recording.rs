//! What a worker leaves behind for the proof: every update that it pushed, before it was sent. Raw
//! little-endian numbers in a file of the run directory, removed after the proof.
//!
//! Layout, repeated: u64 number, u64 version, the update (f32).

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::run::RecordingError;
use crate::run::recording::wrap;

/// Where the recording of one life of a worker is in the run directory.
#[must_use]
pub fn updates_path(directory: &Path, rank: u8, life: u32) -> PathBuf {
    directory.join(format!("w{rank}.{life}.updates"))
}

/// Writes a recording; each update is in the file when [`UpdateRecording::update`] returns, so that
/// a worker that is killed afterwards leaves it behind.
#[derive(Debug)]
pub struct UpdateRecording {
    path: PathBuf,
    file: File,
    /// What is written next.
    bytes: Vec<u8>,
}

impl UpdateRecording {
    /// Creates the file.
    ///
    /// # Errors
    /// [`RecordingError`] when it cannot be created.
    pub fn create(path: &Path) -> Result<Self, RecordingError> {
        let file = File::create(path).map_err(|source| wrap(path, source))?;
        Ok(Self { path: path.to_owned(), file, bytes: Vec::new() })
    }

    /// Records an update.
    ///
    /// # Errors
    /// [`RecordingError`] when the file cannot be written.
    pub fn update(
        &mut self,
        number: u64,
        version: u64,
        update: &[f32],
    ) -> Result<(), RecordingError> {
        self.bytes.resize(HEADER_BYTES + update.len() * 4, 0);
        let (header, body) = self.bytes.split_at_mut(HEADER_BYTES);
        let (number_at, version_at) = header.split_at_mut(size_of::<u64>());
        number_at.copy_from_slice(&number.to_le_bytes());
        version_at.copy_from_slice(&version.to_le_bytes());
        for (place, value) in body.as_chunks_mut().0.iter_mut().zip(update) {
            *place = value.to_le_bytes();
        }
        self.file.write_all(&self.bytes).map_err(|source| wrap(&self.path, source))
    }
}

/// Reads a recording: all headers at once, the updates one by one.
#[derive(Debug)]
pub struct UpdateReader {
    path: PathBuf,
    file: BufReader<File>,
    elements: usize,
}

/// One recorded update, without its numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RecordedUpdate {
    /// Number of the update in its life.
    pub number: u64,
    /// Version of the model that it was computed on.
    pub version: u64,
}

impl UpdateReader {
    /// Opens a recording of updates of `elements` numbers.
    ///
    /// # Errors
    /// [`RecordingError`] when it cannot be opened.
    pub fn open(path: &Path, elements: usize) -> Result<Self, RecordingError> {
        let file = File::open(path).map_err(|source| wrap(path, source))?;
        Ok(Self { path: path.to_owned(), file: BufReader::with_capacity(1 << 16, file), elements })
    }

    /// The updates that were recorded whole, in their order.
    ///
    /// # Errors
    /// [`RecordingError`] when the file cannot be read.
    pub fn updates(&mut self) -> Result<Vec<RecordedUpdate>, RecordingError> {
        let mut updates = Vec::new();
        let stride = self.stride();
        let len = self.file.get_ref().metadata().map_err(|e| wrap(&self.path, e))?.len();
        for index in 0..len / stride {
            let mut header = [0; HEADER_BYTES];
            self.seek(index * stride)?;
            self.read(&mut header)?;
            let word = |at: usize| {
                let bytes = header[at..at + 8].try_into().expect("eight bytes");
                u64::from_le_bytes(bytes)
            };
            updates.push(RecordedUpdate { number: word(0), version: word(8) });
        }
        Ok(updates)
    }

    /// The numbers of the update at a position in the file.
    ///
    /// # Errors
    /// [`RecordingError`] when the file ends or cannot be read.
    pub fn update(&mut self, index: usize) -> Result<Vec<f32>, RecordingError> {
        self.seek(index as u64 * self.stride() + HEADER_BYTES as u64)?;
        let mut bytes = vec![0; self.elements * 4];
        self.read(&mut bytes)?;
        Ok(floats(&bytes))
    }

    fn stride(&self) -> u64 {
        (HEADER_BYTES + self.elements * 4) as u64
    }

    fn seek(&mut self, at: u64) -> Result<(), RecordingError> {
        self.file.seek(SeekFrom::Start(at)).map(drop).map_err(|source| wrap(&self.path, source))
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), RecordingError> {
        self.file.read_exact(bytes).map_err(|source| wrap(&self.path, source))
    }
}

/// Reads a model that was written as little-endian numbers; `None` when there is no such file.
///
/// # Errors
/// [`RecordingError`] when it cannot be read.
pub fn read_model(path: &Path) -> Result<Option<Vec<f32>>, RecordingError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(floats(&bytes))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(wrap(path, error)),
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let word = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    bytes.chunks_exact(4).map(word).collect()
}

const HEADER_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_cut_short_keeps_its_whole_updates() {
        let directory = tempfile::tempdir().unwrap();
        let path = updates_path(directory.path(), 3, 0);
        let mut recording = UpdateRecording::create(&path).unwrap();
        recording.update(0, 5, &[1.0, 2.0]).unwrap();
        recording.update(1, 7, &[3.0, 4.0]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let mut reader = UpdateReader::open(&path, 2).unwrap();
        assert_eq!(reader.updates().unwrap(), [RecordedUpdate { number: 0, version: 5 }]);
        assert_eq!(reader.update(0).unwrap(), [1.0, 2.0]);
        assert!(reader.update(1).is_err());
        std::fs::write(&path, &whole).unwrap();
        let mut reader = UpdateReader::open(&path, 2).unwrap();
        assert_eq!(reader.updates().unwrap()[1], RecordedUpdate { number: 1, version: 7 });
        assert_eq!(reader.update(1).unwrap(), [3.0, 4.0]);
    }
}
