//! What a worker leaves behind for the proof: each round's exponents, gradient and sum, and the
//! final model. Raw little-endian numbers in a file of the run directory, removed after the proof.
//!
//! Layout: per round u32 exponent count, the exponents (i8), the gradient (f32), the sum (f32);
//! after the last round the model's parameters (f32).

use std::fs::File;
use std::io::{BufReader, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Writes a recording.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    file: BufWriter<File>,
}

/// Reads a recording back, round by round.
#[derive(Debug)]
pub struct RecordingReader {
    path: PathBuf,
    file: BufReader<File>,
    elements: usize,
}

/// One round as it was recorded.
#[derive(Clone, Debug)]
pub struct RecordedRound {
    /// One exponent per block, or one for all.
    pub exponents: Vec<i8>,
    /// What the worker contributed.
    pub gradient: Vec<f32>,
    /// What it got back.
    pub sum: Vec<f32>,
}

/// A recording that cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[error("recording {path}: {source}", path = .path.display())]
pub struct RecordingError {
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

impl Recording {
    /// Creates the file.
    ///
    /// # Errors
    /// [`RecordingError`] when it cannot be created.
    pub fn create(path: &Path) -> Result<Self, RecordingError> {
        let file = File::create(path).map_err(|source| wrap(path, source))?;
        Ok(Self { path: path.to_owned(), file: BufWriter::with_capacity(1 << 20, file) })
    }

    /// Records what goes into a round.
    ///
    /// # Errors
    /// [`RecordingError`] when the file cannot be written.
    pub fn round(
        &mut self,
        exponents: &[i8],
        gradient: &[f32],
        sum: &[f32],
    ) -> Result<(), RecordingError> {
        let count = u32::try_from(exponents.len()).expect("one exponent per chunk at most");
        let exponents: Vec<u8> =
            exponents.iter().map(|exponent| exponent.to_le_bytes()[0]).collect();
        self.write(&count.to_le_bytes())?;
        self.write(&exponents)?;
        self.floats(gradient)?;
        self.floats(sum)
    }

    /// Records the final model and completes the file.
    ///
    /// # Errors
    /// [`RecordingError`] when the file cannot be written.
    pub fn finish(mut self, model: &[f32]) -> Result<(), RecordingError> {
        self.floats(model)?;
        self.file.flush().map_err(|source| wrap(&self.path, source))
    }

    fn floats(&mut self, values: &[f32]) -> Result<(), RecordingError> {
        for chunk in values.chunks(4096) {
            let bytes: Vec<u8> = chunk.iter().flat_map(|value| value.to_le_bytes()).collect();
            self.write(&bytes)?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), RecordingError> {
        self.file.write_all(bytes).map_err(|source| wrap(&self.path, source))
    }
}

impl RecordingReader {
    /// Opens a recording of vectors of `elements` numbers.
    ///
    /// # Errors
    /// [`RecordingError`] when it cannot be opened.
    pub fn open(path: &Path, elements: usize) -> Result<Self, RecordingError> {
        let file = File::open(path).map_err(|source| wrap(path, source))?;
        Ok(Self { path: path.to_owned(), file: BufReader::with_capacity(1 << 20, file), elements })
    }

    /// Reads the next round.
    ///
    /// # Errors
    /// [`RecordingError`] when the file ends or cannot be read.
    pub fn round(&mut self) -> Result<RecordedRound, RecordingError> {
        let mut count = [0; 4];
        self.read(&mut count)?;
        let mut exponents = vec![0; u32::from_le_bytes(count) as usize];
        self.read(&mut exponents)?;
        let exponents = exponents.into_iter().map(|byte| i8::from_le_bytes([byte])).collect();
        Ok(RecordedRound { exponents, gradient: self.floats()?, sum: self.floats()? })
    }

    /// Reads the final model.
    ///
    /// # Errors
    /// [`RecordingError`] when the file ends or cannot be read.
    pub fn model(&mut self) -> Result<Vec<f32>, RecordingError> {
        self.floats()
    }

    fn floats(&mut self) -> Result<Vec<f32>, RecordingError> {
        let mut bytes = vec![0; self.elements * 4];
        self.read(&mut bytes)?;
        let word = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        Ok(bytes.chunks_exact(4).map(word).collect())
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), RecordingError> {
        self.file.read_exact(bytes).map_err(|source| wrap(&self.path, source))
    }
}

pub(super) fn wrap(path: &Path, source: std::io::Error) -> RecordingError {
    RecordingError { path: path.to_owned(), source }
}
